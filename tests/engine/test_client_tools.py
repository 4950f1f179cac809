"""Tools that the sender of a message brings and runs: the run waits for each result, over restarts."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.engine.running import agent, in_virtual_time, journal, opened, types, until, virtually
from tests.observed import all_told
from treadle.api.engine import HostedEngine
from treadle.domain.errors import InvalidState, UnknownCall, UsageError
from treadle.domain.events import ClientCallRequested, ClientResult, RunWaiting, ToolCallEnd, ToolCallError
from treadle.domain.ids import RunId
from treadle.ports.hooks import HookedCall
from treadle.ports.journal import Advance, Advanced
from treadle.ports.tool import Observation
from treadle.stores.sqlite.journal import SqliteJournal
from treadle.testing.models import ScriptedModel, ScriptStep, ask, call, say

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = treadle.ClientTool("weather", "Look up the weather.", SCHEMA)


def ask_for_weather(call_id: str = "c1", name: str = "weather") -> ScriptStep:
    return ask(call(name, call_id, city="Ulm"))


def read_results(model: ScriptedModel) -> list[tuple[str, bool]]:
    """Return the results that the model was told last."""
    return [(each.content, each.is_error) for each in all_told(model.requests[-1].conversation.messages[-1].parts)]


async def test_run_waits_for_the_result_over_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(ask_for_weather())) as engine:
        waiting = await engine.run(agent(), "go", client_tools=[WEATHER])
        assert waiting.status == "waiting"
        [asked] = waiting.client_calls
        assert (asked.name, asked.arguments) == ("weather", '{"city":"Ulm"}')
        run_id = waiting.run_id
    model = ScriptedModel(say("It is sunny."))
    async with opened(tmp_path, model) as engine:
        [again] = await engine.list_client_calls(run_id)
        assert again == asked
        sequence = await engine.deliver_result(run_id, "c1", "sunny")
        assert (await engine.wait(run_id)).text == "It is sunny."
        assert await engine.deliver_result(run_id, "c1", "sunny") == sequence, "the same result is accepted"
        with pytest.raises(InvalidState, match="another result already"):
            await engine.deliver_result(run_id, "c1", "rainy")
        with pytest.raises(UnknownCall):
            await engine.deliver_result(run_id, "c9", "sunny")
        events = await journal(engine, run_id)
    assert read_results(model) == [("sunny", False)]
    assert "tool_call_start" not in types(events), "nothing was run here"
    [waited] = [event.data for event in events if isinstance(event.data, RunWaiting)]
    assert (waited.reason, waited.subjects) == ("client_tool", ("c1",))


async def test_functions_run_while_the_program_waits(tmp_path: Path) -> None:
    def weather(city: str) -> str:
        """Look up the weather."""
        return f"sunny in {city}"

    async def fail(reason: str) -> str:
        raise ValueError(reason)

    model = ScriptedModel(ask(call("weather", "c1", city="Ulm"), call("fail", "c2", reason="no net")), say("done"))
    async with opened(tmp_path, model) as engine:
        result = await engine.run(agent(), "go", client_tools=[weather, fail])
        assert result.text == "done"
        assert read_results(model)[0] == ("sunny in Ulm", False)
        told, is_error = read_results(model)[1]
        assert "ValueError: no net" in told
        assert is_error


async def test_stream_runs_functions(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(ask_for_weather(), say("sunny then"))) as engine:
        stream = engine.stream(agent(), "go", client_tools=[lookup("sunny")])
        seen = [event.type async for event in stream]
        assert stream.result.text == "sunny then"
        assert seen.index("client_call_requested") < seen.index("client_result") < seen.index("tool_call_end")
    async with opened(tmp_path, ScriptedModel(ask_for_weather(), say("sunny then"))) as engine:
        text = [piece async for piece in engine.stream_text(agent(), "go", client_tools=[lookup("sunny")])]
        assert "".join(text) == "sunny then"


def lookup(answer: str) -> Any:
    def weather(city: str) -> str:
        return answer

    return weather


async def test_clashing_name_gets_a_prefix_and_the_client_sees_its_own(tmp_path: Path) -> None:
    def weather(city: str) -> str:
        return "the agent's own"

    model = ScriptedModel(
        ask(call("weather", "c1", city="Ulm"), call("client__weather", "c2", city="Ulm")), say("ok")
    )
    async with opened(tmp_path, model) as engine:
        waiting = await engine.run(agent(tools=[weather]), "go", client_tools=[WEATHER])
        [asked] = waiting.client_calls
        assert (asked.call_id, asked.name) == ("c2", "weather")
        await engine.deliver_result(waiting.run_id, "c2", "the client's")
        await engine.wait(waiting.run_id)
    assert [spec.name for spec in model.requests[0].preamble.tools] == ["weather", "client__weather"]
    assert read_results(model) == [("the agent's own", False), ("the client's", False)]


async def test_agent_may_refuse_or_prefer_tools_of_clients(tmp_path: Path) -> None:
    def own(x: str) -> str:
        return x

    model = ScriptedModel(say("ok"), say("ok"))
    async with opened(tmp_path, model) as engine:
        with pytest.raises(UsageError, match="client_tools: off"):
            await engine.run(agent(client_tools="off"), "go", client_tools=[WEATHER])
        replacing = agent(client_tools="replace", tools=[own])
        await engine.run(replacing, "go", client_tools=[WEATHER])
        await engine.run(replacing, "go")
    assert [[spec.name for spec in request.preamble.tools] for request in model.requests] == [["weather"], ["own"]]


@pytest.mark.parametrize(
    ("tools", "problem"),
    [
        ([treadle.ClientTool("a b")], "letters, digits"),
        ([WEATHER, WEATHER], "two of them are called `weather`"),
        ([treadle.ClientTool(f"t{number}") for number in range(129)], "at most 128"),
        ([treadle.ClientTool("big", "x" * 300_000)], "at most 262144"),
        ([treadle.ClientTool("list", schema={"type": "array"})], "must be that of an object"),
    ],
)
async def test_invalid_tools_are_refused(tmp_path: Path, tools: list[treadle.ClientTool], problem: str) -> None:
    async with opened(tmp_path, ScriptedModel()) as engine:
        with pytest.raises(UsageError, match=problem):
            await engine.submit(agent(), "go", client_tools=tools)
        assert await engine.list_runs() == []


async def test_message_supersedes_an_abandoned_call(tmp_path: Path) -> None:
    model = ScriptedModel(ask_for_weather(), say("as you wish"))
    async with opened(tmp_path, model) as engine:
        waiting = await engine.run(agent(), "go", client_tools=[WEATHER])
        same = await engine.run(agent(), "never mind", session=waiting.session_id, client_tools=[WEATHER])
        assert (same.run_id, same.text) == (waiting.run_id, "as you wish")
        with pytest.raises(InvalidState, match="no longer waits"):
            await engine.deliver_result(waiting.run_id, "c1", "sunny")
        [error] = [
            event.data for event in await journal(engine, same.run_id) if isinstance(event.data, ToolCallError)
        ]
        assert (error.kind, error.cause) == ("skipped", "superseded")


async def test_message_with_other_tools_begins_a_run_of_its_own(tmp_path: Path) -> None:
    model = ScriptedModel(ask_for_weather(), say("without tools"))
    async with opened(tmp_path, model) as engine:
        waiting = await engine.run(agent(), "go", client_tools=[WEATHER])
        other = await engine.run(agent(), "never mind", session=waiting.session_id)
        assert other.run_id != waiting.run_id
        assert other.text == "without tools"
        assert (await engine.wait(waiting.run_id)).outcome == "cancelled"
    assert model.requests[-1].preamble.tools == ()


def test_call_expires_without_a_result() -> None:
    async def work() -> None:
        model = ScriptedModel(ask_for_weather(), say("nobody answered"))
        async with in_virtual_time(model) as engine:
            result = await engine.run(agent(limits={"client_tool_wait": "10m"}), "go", client_tools=[WEATHER])
            assert result.client_calls[0].expires_at is not None
            ended = await engine.wait(result.run_id, until="ended")
            assert ended.text == "nobody answered"
            [error] = [e.data for e in await journal(engine, result.run_id) if isinstance(e.data, ToolCallError)]
            assert (error.kind, error.cause) == ("timeout", "expired")
            assert "Whether the client ran the tool is not known" in error.content

    virtually(work())


async def test_result_is_truncated_and_redacted_like_that_of_any_tool(tmp_path: Path) -> None:
    model = ScriptedModel(ask_for_weather(), say("long"))
    async with opened(tmp_path, model) as engine:
        waiting = await engine.run(agent(), "go", client_tools=[WEATHER])
        await engine.deliver_result(waiting.run_id, "c1", "x" * 2_000_000)
        await engine.wait(waiting.run_id)
        [end] = [e.data for e in await journal(engine, waiting.run_id) if isinstance(e.data, ToolCallEnd)]
        assert end.truncated
    assert len(read_results(model)[0][0]) < 1_000_000


async def test_rules_apply_to_the_tools_of_clients(tmp_path: Path) -> None:
    def rules(do: str) -> dict[str, Any]:
        return {"rules": [{"tool": "weather*", "do": do}]}

    model = ScriptedModel(ask_for_weather(), say("denied"), ask_for_weather("c2"), say("done"))
    async with opened(tmp_path, model) as engine:
        denied = await engine.run(agent(approvals=rules("deny")), "go", client_tools=[WEATHER])
        assert denied.text == "denied"
        assert len(denied.denied) == 1
        asked = await engine.run(agent(approvals=rules("ask")), "go", client_tools=[WEATHER], asker="api")
        [approval] = asked.approvals
        await engine.decide(approval.approval_id, "approve", arguments={"city": "Bonn"})
        waiting = await engine.wait(asked.run_id)
        assert waiting.client_calls[0].arguments == '{"city":"Bonn"}'
        await engine.deliver_result(asked.run_id, "c2", "rain")
        assert (await engine.wait(asked.run_id)).text == "done"


async def test_default_of_asking_does_not_concern_tools_of_clients(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(ask_for_weather(), say("ok"))) as engine:
        waiting = await engine.run(agent(approvals={"default": "ask"}), "go", client_tools=[WEATHER])
        assert waiting.client_calls


async def test_transcript_shows_the_call_with_the_client_and_its_time(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(ask_for_weather(), say("ok"))) as engine:
        waiting = await engine.run(agent(), "go", client_tools=[WEATHER])
        [item] = [each for each in await engine.transcript(waiting.run_id) if isinstance(each, treadle.CallItem)]
        assert item.state == "client"
        await asyncio.sleep(0.05)
        await engine.deliver_result(waiting.run_id, "c1", "sunny")
        await engine.wait(waiting.run_id)
        [item] = [each for each in await engine.transcript(waiting.run_id) if isinstance(each, treadle.CallItem)]
        assert (item.state, item.result) == ("done", "sunny")
        assert item.duration_ms is not None
        assert item.duration_ms >= 50


async def test_run_with_tools_of_a_client_replays_without_a_difference(tmp_path: Path) -> None:
    script = ask(call("weather", "c1", city="Ulm"), call("weather", "c2", city="Bonn"))
    async with opened(tmp_path, ScriptedModel(script, ask_for_weather("c3"), say("ok"))) as engine:
        waiting = await engine.run(agent(), "go", client_tools=[WEATHER])
        assert [each.call_id for each in waiting.client_calls] == ["c1", "c2"]
        await engine.deliver_result(waiting.run_id, "c1", "sunny")
        await engine.deliver_result(waiting.run_id, "c2", "broken", is_error=True)
        waiting = await engine.wait(waiting.run_id)
        await engine.deliver_result(waiting.run_id, "c3", "sunny")
        await engine.wait(waiting.run_id)
        replayed = await engine.replay(waiting.run_id)
        assert replayed.is_same, replayed


async def test_cancelled_run_says_that_the_outcome_is_unknown(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(ask_for_weather())) as engine:
        waiting = await engine.run(agent(), "go", client_tools=[WEATHER])
        await engine.cancel(waiting.run_id)
        await engine.wait(waiting.run_id)
        [error] = [e.data for e in await journal(engine, waiting.run_id) if isinstance(e.data, ToolCallError)]
        assert error.cause == "outcome_unknown"


async def test_arguments_that_are_no_object_never_reach_the_client(tmp_path: Path) -> None:
    from treadle.domain.messages import ToolUse

    model = ScriptedModel(ask(ToolUse("c1", "weather", "[1]")), say("ok"))
    async with opened(tmp_path, model) as engine:
        result = await engine.run(agent(), "go", client_tools=[WEATHER])
        assert result.text == "ok"
        events = [event.data for event in await journal(engine, result.run_id)]
        assert not any(isinstance(data, ClientCallRequested) for data in events)


async def answer_at_once(engine: HostedEngine, run_id: RunId) -> list[int]:
    """Deliver a result for each call as soon as it is asked. Return the sequences."""
    return [
        await engine.deliver_result(run_id, event.data.call_id, f"{event.data.call_id} is sunny")
        async for event in engine.events(run_id)
        if isinstance(event.data, ClientCallRequested)
    ]


async def test_result_that_comes_at_once_is_committed_with_what_the_run_does_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal is neither read nor written for it alone."""
    groups: list[list[str]] = []
    advance = SqliteJournal.advance

    async def recorded(self: SqliteJournal, wanted: Advance) -> Advanced:
        groups.append([draft.type for draft in (*wanted.facts, *wanted.intents)])
        return await advance(self, wanted)

    async def refuse(*_: Any) -> Any:
        raise AssertionError("the result was delivered to the journal")

    monkeypatch.setattr(SqliteJournal, "advance", recorded)
    monkeypatch.setattr(SqliteJournal, "deliver", refuse)
    async with opened(tmp_path, ScriptedModel(ask_for_weather(), ask_for_weather("c2"), say("ok"))) as engine:
        run_id = await engine.submit(agent(), "go", client_tools=[WEATHER])
        sequences = await answer_at_once(engine, run_id)
        stored = {event.sequence: event.data for event in await journal(engine, run_id)}
        delivered = [stored[sequence] for sequence in sequences]
        assert [each.call_id for each in delivered if isinstance(each, ClientResult)] == ["c1", "c2"]
        assert await engine.deliver_result(run_id, "c1", "c1 is sunny") == sequences[0]
        with pytest.raises(InvalidState, match="another result already"):
            await engine.deliver_result(run_id, "c1", "rainy")
        assert (await engine.replay(run_id)).is_same
    asked = ["llm_response", "client_call_requested", "run_waiting"]
    answered = ["client_result", "tool_call_end", "step_end", "step_start", "llm_request"]
    assert groups[1:5] == [asked, answered, asked, answered]


async def test_parallel_calls_answered_at_the_same_time_have_one_result_each(tmp_path: Path) -> None:
    calls = [call("weather", f"c{number}", city=f"{number}") for number in range(4)]
    model = ScriptedModel(ask(*calls), say("ok"))
    async with opened(tmp_path, model) as engine:
        waiting = await engine.run(agent(), "go", client_tools=[WEATHER])
        texts = [(asked.call_id, text) for asked in waiting.client_calls for text in ("sunny", "sunny", "rainy")]
        found = await asyncio.gather(
            *(engine.deliver_result(waiting.run_id, call_id, text) for call_id, text in texts),
            return_exceptions=True,
        )
        assert (await engine.wait(waiting.run_id)).text == "ok"
        results = [e for e in await journal(engine, waiting.run_id) if isinstance(e.data, ClientResult)]
    assert sorted(e.data.call_id for e in results if isinstance(e.data, ClientResult)) == ["c0", "c1", "c2", "c3"]
    places = {(e.data.call_id, e.data.content): e.sequence for e in results if isinstance(e.data, ClientResult)}
    for delivery, outcome in zip(texts, found, strict=True):
        if delivery in places:
            assert outcome == places[delivery]
        else:
            assert isinstance(outcome, InvalidState)
    assert len(read_results(model)) == 4


async def test_result_is_durable_before_a_slow_hook_sees_it(tmp_path: Path) -> None:
    gate = asyncio.Event()

    class SlowHook(treadle.Hook):
        async def after(self, call: HookedCall, result: Observation) -> Observation:
            await gate.wait()
            return Observation(result.content.upper())

    model = ScriptedModel(ask_for_weather(), say("ok"))
    async with opened(tmp_path, model) as engine:
        engine.add_hooks(SlowHook())
        run_id = await engine.submit(agent(), "go", client_tools=[WEATHER])
        await until(engine, run_id, "run_waiting")
        sequence = await engine.deliver_result(run_id, "c1", "sunny")
        assert not gate.is_set(), "the client need not wait for the hook"
        gate.set()
        assert types(await journal(engine, run_id))[sequence - 1] == "client_result"
    assert read_results(model) == [("SUNNY", False)]


async def test_client_that_disconnects_delays_no_other(tmp_path: Path) -> None:
    """The result that it gave stands, and the other client is told so."""
    async with opened(tmp_path, ScriptedModel(ask_for_weather(), say("ok"))) as engine:
        waiting = await engine.run(agent(), "go", client_tools=[WEATHER])
        deliveries = [asyncio.create_task(engine.deliver_result(waiting.run_id, "c1", "sunny")) for _ in range(2)]
        await asyncio.sleep(0)
        deliveries[0].cancel()
        sequence = await deliveries[1]
        assert (await engine.wait(waiting.run_id)).text == "ok"
        results = [e for e in await journal(engine, waiting.run_id) if isinstance(e.data, ClientResult)]
        assert [each.sequence for each in results] == [sequence]


def test_call_that_expires_soon_does_not_linger() -> None:
    async def work() -> None:
        async with in_virtual_time(ScriptedModel(ask_for_weather(), say("late"))) as engine:
            result = await engine.run(agent(limits={"client_tool_wait": 0.5}), "go", client_tools=[WEATHER])
            await engine.wait(result.run_id, until="ended")
            [error] = [e for e in await journal(engine, result.run_id) if isinstance(e.data, ToolCallError)]
            expires_at = result.client_calls[0].expires_at
            assert expires_at is not None
            assert 0 <= error.timestamp - expires_at.timestamp() < 0.1

    virtually(work())


async def test_program_waits_with_its_tools_after_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(ask_for_weather())) as engine:
        run_id = await engine.submit(agent(), "go", client_tools=[lookup("sunny")])
        await until(engine, run_id, "run_waiting")
    async with opened(tmp_path, ScriptedModel(say("ok"))) as engine:
        assert (await engine.wait(run_id, client_tools=[lookup("sunny")])).text == "ok"
