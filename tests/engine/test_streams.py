"""Readers get every durable event with no gaps and live text once; a slow reader gets a reset. Callbacks and
scripts."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import pytest

import treadle
from tests.engine.running import agent, in_virtual_time, journal, opened, types, until, virtually
from tests.patience import HANG_SECONDS
from treadle.api.engine import create_engine
from treadle.config.home import Home
from treadle.domain.envelope import Event
from treadle.domain.errors import StoreError
from treadle.domain.events import StreamReset, ThinkingDelta, Token, ToolCallDelta, ToolCallProgress
from treadle.domain.messages import Text
from treadle.domain.runs import Usage
from treadle.ports.model import CallDelta, Completed, Delta, ModelRequest, ReasoningDelta, Show, TextDelta
from treadle.testing.models import ScriptedFailure, ScriptedModel, Silence, ask, call, say


@treadle.tool(effect="read")
async def look(at: str, context: treadle.ToolContext) -> str:
    context.progress("opening ")
    context.progress("closing")
    return f"seen {at}"


def test_durable_events_come_once_and_without_gaps_from_any_position() -> None:
    async def scenario() -> None:
        model = ScriptedModel(ask(call("look", at="a")), say("done and dusted"))
        async with in_virtual_time(model) as engine:
            live = [event async for event in engine.stream(agent(tools=[look]), "go")]
            whole = await journal(engine, live[0].run_id)
            for after in range(len(whole)):
                async with aclosing(engine.events(live[0].run_id, after)) as events:
                    assert [event async for event in events] == whole[after:]
        assert [event for event in live if event.durable] == whole
        assert [event.sequence for event in whole] == list(range(1, len(whole) + 1))

    virtually(scenario())


async def test_a_reader_positioned_at_the_end_does_not_wait(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(say("done"))) as engine:
        result = await engine.run(agent(), "go")
        last = (await journal(engine, result.run_id))[-1].sequence
        async with asyncio.timeout(HANG_SECONDS), aclosing(engine.events(result.run_id, last)) as events:
            assert [event async for event in events] == []


def test_live_events_carry_their_request_their_attempt_and_their_offset() -> None:
    async def scenario() -> None:
        model = ScriptedModel(ScriptedFailure(text="no no"), say("one two three"))
        async with in_virtual_time(model) as engine:
            events = [event async for event in engine.stream(agent(retry={"schedule": "linear"}), "go")]
        tokens = [event.data for event in events if isinstance(event.data, Token)]
        requests = [event.sequence for event in events if event.type == "llm_request"]
        assert tokens == [
            Token(requests[0], 1, 0, "no"),
            Token(requests[0], 1, 2, " no"),
            Token(requests[1], 2, 0, "one"),
            Token(requests[1], 2, 3, " two"),
            Token(requests[1], 2, 7, " three"),
        ]
        assert types(events).index("attempt_reset") < types(events).index("llm_response")
        live = [event for event in events if not event.durable]
        assert all(event.sequence in requests for event in live)

    virtually(scenario())


async def test_progress_carries_its_start_and_its_offset(tmp_path: Path) -> None:
    model = ScriptedModel(ask(call("look", at="a")), say("done"))
    async with opened(tmp_path, model) as engine:
        events = [event async for event in engine.stream(agent(tools=[look]), "go")]
    [start] = [event.sequence for event in events if event.type == "tool_call_start"]
    progress = [event for event in events if event.type == "tool_call_progress"]
    assert [event.sequence for event in progress] == [start, start]
    assert [event.data for event in progress] == [
        ToolCallProgress(start, "call_look", 0, "opening "),
        ToolCallProgress(start, "call_look", 8, "closing"),
    ]


async def test_a_late_reader_gets_the_text_in_flight_once(tmp_path: Path) -> None:
    model = PacedModel()
    async with opened(tmp_path, model) as engine:
        run_id = await engine.submit(agent(), "go")
        for _ in range(3):
            await model.say("word ")
        text = ""
        async with aclosing(engine.events(run_id)) as events:
            async for event in events:
                if isinstance(event.data, Token):
                    assert event.data.offset == len(text)
                    text += event.data.text
                    if len(text) == 15:
                        await model.say("and more")
                        await model.finish()
        assert text == "word word word and more"


class PacedModel:
    """A model that says what a test tells it to, when it tells it to."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Delta | Completed] = asyncio.Queue()
        self._said = ""

    async def say(self, text: str) -> None:
        self._said += text
        await self.send(TextDelta(text))

    async def send(self, event: Delta) -> None:
        await self._queue.put(event)
        await self._queue.join()

    async def finish(self) -> None:
        self._queue.put_nowait(Completed((Text(self._said or "done"),), "end_turn", Usage()))

    async def reply(self, request: ModelRequest, show: Show) -> Completed:
        while True:
            event = await self._queue.get()
            if isinstance(event, Completed):
                return event
            show(event)
            self._queue.task_done()


@pytest.mark.parametrize(
    ("first", "second", "offset"),
    [
        (ReasoningDelta("hm, "), ReasoningDelta("well"), 4),
        (CallDelta(0, "look", '{"a'), CallDelta(0, "look", 't":1}'), 3),
    ],
)
async def test_a_late_reader_gets_the_beginning_too_and_offsets_are_absolute(
    tmp_path: Path, first: Delta, second: Delta, offset: int
) -> None:
    model = PacedModel()
    async with opened(tmp_path, model) as engine:
        run_id = await engine.submit(agent(), "go")
        await model.send(first)
        seen: list[int] = []
        pushed = asyncio.get_running_loop().create_future()
        async with aclosing(engine.events(run_id)) as events:
            async for event in events:
                if event.type == "llm_request":
                    pushed = asyncio.ensure_future(model.send(second))
                if isinstance(event.data, ThinkingDelta | ToolCallDelta):
                    seen.append(event.data.offset)
                    pushed.add_done_callback(lambda _: asyncio.ensure_future(model.finish()))
    assert seen == [0, offset]


async def test_a_slow_reader_gets_a_reset_from_which_it_can_resume(tmp_path: Path) -> None:
    model = PacedModel()
    async with opened(tmp_path, model) as engine:
        run_id = await engine.submit(agent(), "go")
        await model.say("0")
        seen: list[Event] = []
        async with aclosing(engine.service.events(run_id, backlog=5)) as events:
            async for event in events:
                seen.append(event)
                if event.type == "token":
                    for number in range(1, 20):  # no reader reads meanwhile
                        await model.say(f" {number}")
                    await model.finish()
        last = [event.sequence for event in seen if event.durable][-1]
        assert isinstance(seen[-1].data, StreamReset)
        assert seen[-1].data.after == last
        assert len(seen) < 20
        async with aclosing(engine.service.events(run_id, last)) as events:
            rest = [event async for event in events if event.durable]
        assert [event for event in seen if event.durable] + rest == await journal(engine, run_id)


def test_a_slow_reader_does_not_slow_the_run() -> None:
    async def scenario() -> None:
        async with in_virtual_time(ScriptedModel(say("a b c d e f g h"))) as engine:
            run_id = await engine.submit(agent(), "go")
            async with aclosing(engine.service.events(run_id, backlog=2)) as events:
                await anext(events)
                result = await engine.wait(run_id)
            assert result.outcome == "completed"

    virtually(scenario())


async def test_closing_the_engine_ends_waits_for_runs(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(Silence("half"))) as engine:
        run_id = await engine.submit(agent(), "go")
        waiting = asyncio.ensure_future(engine.wait(run_id))
        await until(engine, run_id, "token")
    with pytest.raises(StoreError, match="closed"):
        await asyncio.wait_for(waiting, HANG_SECONDS)


@pytest.mark.parametrize("read", [1, 7])
async def test_closing_the_engine_ends_streams(tmp_path: Path, read: int) -> None:
    """One reader is behind, among what was stored; the other is up to date and waits."""

    async with opened(tmp_path, ScriptedModel(Silence("half"))) as engine:
        run_id = await engine.submit(agent(), "go")
        await until(engine, run_id, "token")
        events = engine.events(run_id)
        for _ in range(read):
            await anext(events)
    rest = asyncio.ensure_future(_drain(events))
    with pytest.raises(StoreError, match="closed"):
        await asyncio.wait_for(rest, HANG_SECONDS)


async def _drain(events: AsyncGenerator[Event, None]) -> None:
    async for _ in events:
        pass


# ── Callbacks and scripts ──


async def test_each_callback_is_called_for_its_events(tmp_path: Path) -> None:
    heard: dict[str, list[str]] = {}

    def note(name: str, value: str) -> None:
        heard.setdefault(name, []).append(value)

    callbacks = treadle.Callbacks(
        on_stream_delta=lambda text: note("delta", text),
        on_thinking=lambda text: note("thinking", text),
        on_reasoning=lambda text: note("reasoning", text),
        on_tool_gen=lambda event: note("tool_gen", event.type),
        on_tool_progress=lambda event: note("tool", event.type),
        on_step=lambda event: note("step", event.type),
        on_status=lambda event: note("status", event.type),
    )

    model = ScriptedModel(
        ScriptedFailure(retry_after=0.01),
        ask(call("look", "c1", at="a"), call("look", "c2", wrong=1), thinking="I could look"),
        say("all done"),
    )
    async with opened(tmp_path, model) as engine:
        await engine.run(agent(tools=[look]), "go", callbacks)
    assert heard == {
        "delta": ["all", " done"],
        "thinking": ["I could look"],
        "reasoning": ["I could look"],
        "tool_gen": ["tool_call_delta", "tool_call_delta"],
        "tool": [
            "tool_call_error", "tool_call_start", "tool_call_progress", "tool_call_progress", "tool_call_end",
        ],
        "step": ["step_end", "step_end"],
        "status": ["run_queued", "run_start", "llm_retry", "run_waiting", "run_end"],
    }  # fmt: skip


def test_callbacks_that_are_not_given_are_not_called() -> None:
    async def scenario() -> treadle.Result:
        model = ScriptedModel(ask(call("look", at="a"), thinking="hm"), say("done"))
        async with in_virtual_time(model) as engine:
            return await engine.run(agent(tools=[look]), "go", treadle.Callbacks())

    assert virtually(scenario()).text == "done"


def test_run_sync_works_repeatedly_without_an_event_loop(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/t.db", home=Home(tmp_path))
    engine.add_model("scripted", ScriptedModel(say("one"), say("two")))
    first = engine.run_sync(agent(), "go")
    second = engine.run_sync(agent(), "go", session=first.session_id)
    assert (first.text, second.text, second.session_id) == ("one", "two", first.session_id)


async def test_a_run_records_its_usage(tmp_path: Path) -> None:
    async def scenario() -> treadle.Result:
        usage = Usage(100, 10, cache_read_tokens=50)
        model = ScriptedModel(ask(call("look", at="a"), usage=usage), say("done", usage=usage))
        async with opened(tmp_path, model) as engine:
            return await engine.run(agent(tools=[look]), "go")

    metrics = (await scenario()).metrics
    assert (metrics.steps, metrics.model_calls, metrics.actions) == (2, 2, 1)
    assert (metrics.input_tokens, metrics.output_tokens, metrics.cache_hit_rate) == (200, 20, 0.5)
    assert metrics.duration_ms >= metrics.model_ms + metrics.tool_ms - 2
