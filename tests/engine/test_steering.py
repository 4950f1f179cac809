"""Users who steer, interrupt and resume a run in progress."""

from pathlib import Path

import pytest

import treadle
from tests.engine.running import Gate, agent, in_virtual_time, journal, opened, types, until, virtually
from treadle.domain.errors import InvalidState, SizeLimitExceeded, UnknownRun, UsageError
from treadle.domain.events import LlmResponse, RunWaiting
from treadle.domain.messages import Message, Text, user
from treadle.testing.models import ScriptedFailure, ScriptedModel, Silence, ask, call, say


def list_messages(model: ScriptedModel) -> list[tuple[str, str]]:
    """Return the messages of the last request."""
    return [(message.role, message.text) for message in model.requests[-1].conversation.messages]


async def test_a_queued_message_is_delivered_at_the_next_step(tmp_path: Path) -> None:
    gate = Gate()

    @treadle.tool
    async def hold() -> str:
        await gate.pass_through()
        return "held"

    model = ScriptedModel(ask(call("hold")), say("as you wish"))
    async with opened(tmp_path, model) as engine:
        run_id = await engine.submit(agent(tools=[hold]), "go")
        await gate.reached.wait()
        await engine.steer(run_id, "and be quick")
        gate.open.set()
        assert (await engine.wait(run_id)).text == "as you wish"
    assert list_messages(model)[-1] == ("user", "and be quick")
    assert len(model.requests) == 2


async def test_a_message_during_the_last_answer_is_answered_in_the_same_run(tmp_path: Path) -> None:
    model = ScriptedModel(say("one two three", seconds=0.02), say("four"))
    async with opened(tmp_path, model) as engine:
        run_id = await engine.submit(agent(), "go")
        await until(engine, run_id, "token")
        await engine.steer(run_id, "more")
        assert (await engine.wait(run_id)).text == "four"
    assert list_messages(model) == [("user", "go"), ("assistant", "one two three"), ("user", "more")]


async def test_an_interrupting_message_cuts_the_reply_and_keeps_its_text_marked(tmp_path: Path) -> None:
    model = ScriptedModel(Silence("I was going to"), say("changed"))
    async with opened(tmp_path, model) as engine:
        run_id = await engine.submit(agent(), "go")
        await until(engine, run_id, "token")
        await engine.steer(run_id, "stop, do this", mode="interrupt")
        assert (await engine.wait(run_id)).text == "changed"
        events = await journal(engine, run_id)
    first = next(event.data for event in events if isinstance(event.data, LlmResponse))
    assert (first.stop, first.parts, first.usage.estimated) == ("interrupted", (Text("I was going to"),), True)
    assert list_messages(model) == [("user", "go"), ("assistant", "I was going to"), ("user", "stop, do this")]


async def test_an_interrupted_run_waits_until_it_is_resumed(tmp_path: Path) -> None:
    model = ScriptedModel(Silence("half a"), say("whole"))
    async with opened(tmp_path, model) as engine:
        run_id = await engine.submit(agent(), "go")
        await until(engine, run_id, "token")
        await engine.interrupt(run_id)
        waiting = await until(engine, run_id, "run_waiting")
        assert isinstance(waiting.data, RunWaiting)
        assert waiting.data.reason == "interrupted"
        record = await engine.service.run(run_id)
        assert (record.status, record.waiting_for) == ("waiting", "interrupted")
        assert len(model.requests) == 1
        await engine.resume(run_id)
        assert (await engine.wait(run_id)).text == "whole"
    assert list_messages(model)[1] == ("assistant", "half a")


async def test_a_message_to_a_session_whose_run_waits_goes_to_that_run(tmp_path: Path) -> None:
    model = ScriptedModel(Silence("half a"), say("yes"))
    async with opened(tmp_path, model) as engine:
        run_id = await engine.submit(agent(), "go")
        await until(engine, run_id, "token")
        await engine.interrupt(run_id)
        await until(engine, run_id, "run_waiting")
        session = (await engine.service.runs())[0].origin.session_id
        result = await engine.run(agent(), "here I am", session=session)
        assert (result.run_id, result.text) == (run_id, "yes")
    assert list_messages(model)[-1] == ("user", "here I am")


async def test_an_interrupt_during_a_tool_stops_it_and_reports_it(tmp_path: Path) -> None:
    gate = Gate()

    @treadle.tool
    async def hold() -> str:
        await gate.pass_through()
        return "never"

    model = ScriptedModel(ask(call("hold", "c1")), say("then not"))
    async with opened(tmp_path, model) as engine:
        run_id = await engine.submit(agent(tools=[hold]), "go")
        await gate.reached.wait()
        await engine.interrupt(run_id)
        await until(engine, run_id, "run_waiting")
        await engine.resume(run_id)
        assert (await engine.wait(run_id)).text == "then not"
    [answer] = model.requests[-1].conversation.messages[2].parts
    assert "outcome unknown" in str(answer)


async def test_a_steer_in_interrupt_mode_waits_for_a_running_tool(tmp_path: Path) -> None:
    gate = Gate()

    @treadle.tool
    async def hold() -> str:
        await gate.pass_through()
        return "held"

    model = ScriptedModel(ask(call("hold", "c1")), say("ok"))
    async with opened(tmp_path, model) as engine:
        run_id = await engine.submit(agent(tools=[hold]), "go")
        await gate.reached.wait()
        await engine.steer(run_id, "hurry", mode="interrupt")
        gate.open.set()
        await engine.wait(run_id)
        assert "tool_call_end" in types(await journal(engine, run_id))


def test_a_message_ends_the_wait_for_a_retry() -> None:
    async def scenario() -> None:
        model = ScriptedModel(ScriptedFailure(retry_after=3600.0), say("now"))
        async with in_virtual_time(model) as engine:
            run_id = await engine.submit(agent(), "go")
            await until(engine, run_id, "run_waiting")
            await engine.steer(run_id, "still there?")
            result = await engine.wait(run_id)
        assert result.text == "now"
        assert result.metrics.duration_ms < 3_000_000

    virtually(scenario())


async def test_a_run_can_be_cancelled_while_it_waits(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(Silence("half"))) as engine:
        run_id = await engine.submit(agent(), "go")
        await until(engine, run_id, "token")
        await engine.interrupt(run_id)
        await until(engine, run_id, "run_waiting")
        await engine.cancel(run_id)
        assert (await engine.wait(run_id)).outcome == "cancelled"


async def test_an_ended_run_accepts_no_messages(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(say("done"))) as engine:
        result = await engine.run(agent(), "go")
        before = await journal(engine, result.run_id)
        with pytest.raises(InvalidState, match=result.session_id):
            await engine.steer(result.run_id, "wait")
        with pytest.raises(InvalidState):
            await engine.cancel(result.run_id)
        assert await journal(engine, result.run_id) == before


async def test_an_unknown_run_accepts_no_messages(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel()) as engine:
        for attempt in (engine.steer("run_x", "hi"), engine.cancel("run_x"), engine.wait("run_x")):
            with pytest.raises(UnknownRun, match="run_x"):
                await attempt
        with pytest.raises(UnknownRun):
            await until(engine, "run_x", "run_end")


async def test_a_message_delivered_twice_under_one_key_counts_once(tmp_path: Path) -> None:
    gate = Gate()

    @treadle.tool
    async def hold() -> str:
        await gate.pass_through()
        return "held"

    model = ScriptedModel(ask(call("hold")), say("ok"))
    async with opened(tmp_path, model) as engine:
        ticket = await engine.submit(agent(tools=[hold]), "go")
        await gate.reached.wait()
        sequences = [await engine.service.steer(ticket, user("once"), key="k") for _ in range(3)]
        gate.open.set()
        await engine.wait(ticket)
    assert len(set(sequences)) == 1
    assert list_messages(model)[-1] == ("user", "once")


async def test_a_steered_message_is_limited_like_any_other(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(Silence())) as engine:
        run_id = await engine.submit(agent(), "go")
        with pytest.raises(SizeLimitExceeded):
            await engine.steer(run_id, "x" * 128_001)


async def test_an_empty_message_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(Silence())) as engine:
        with pytest.raises(UsageError):
            await engine.submit(agent(), " \n")
        run_id = await engine.submit(agent(), "go")
        with pytest.raises(UsageError):
            await engine.steer(run_id, "", mode="interrupt")


async def test_resuming_after_the_answer_adds_nothing_to_the_conversation(tmp_path: Path) -> None:
    model = ScriptedModel(say("one two three four", seconds=0.02), say("yes"))
    async with opened(tmp_path, model) as engine:
        run_id = await engine.submit(agent(), "go")
        await until(engine, run_id, "token")
        await engine.resume(run_id)  # a user pressed it once too often
        first = await engine.wait(run_id)
        await engine.run(agent(), "and now?", session=first.session_id)
    last = model.requests[-1].conversation.messages
    assert last == [user("go"), Message("assistant", (Text("one two three four"),)), user("and now?")]
