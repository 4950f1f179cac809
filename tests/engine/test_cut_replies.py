"""No tool call of a reply that was cut, failed, malformed or filtered is ever run, wherever the cut is. The session
continues with the next message."""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import treadle
from tests import anthropic_wire, responses_wire
from tests.engine.running import agent, journal
from tests.fake_endpoint import DONE, Answer, Behaviour, FakeEndpoint, Request, delta, fragment, says, usage
from tests.models.chat import HELLO
from tests.models.test_calls_in_pieces import WRITTEN
from tests.models.test_finish import WORDS
from tests.patience import HANG_SECONDS
from treadle.api.engine import HostedEngine, create_engine
from treadle.config.home import Home
from treadle.domain.control_tokens import strip_end_tokens
from treadle.domain.events import CallWritten, Continuation, LlmError, LlmResponse, ToolCallStart
from treadle.domain.messages import ToolUse
from treadle.domain.providers import ApiMode
from treadle.models.formats import load_format
from treadle.models.http.sse import PayloadParser
from treadle.models.http.wire import UnusableReply
from treadle.ports.model import Completed

FORBIDDING = [word for end in ("cut", "filtered", "malformed", "failed", "unknown") for word in WORDS[end]]
"""The words after which no call runs."""


class Wire(NamedTuple):
    """A reply with two calls of `strike` in one format."""

    mode: ApiMode
    pieces: Sequence[bytes]
    """Its events; the last is the one that says that it ended well."""
    end: Callable[[str], list[bytes]]
    """The events of an end with this word instead."""
    answer: Answer
    """A healthy answer."""


def _chat_end(word: str) -> list[bytes]:
    return [delta(finish=word), usage(), DONE]


def _anthropic_end(word: str) -> list[bytes]:
    return [anthropic_wire.ends(word), anthropic_wire.STOP]


def _responses_end(word: str) -> list[bytes]:
    return list(responses_wire.wire(responses_wire.incomplete_event(reason=word)))


_CALLS = [responses_wire.call("c1", "strike", '{"at": "a"}'), responses_wire.call("c2", "strike", '{"at": "b"}')]
WIRES = (
    Wire(
        "chat_completions",
        [
            delta(role="assistant", content="I strike."),
            delta(tool_calls=[fragment(0, "c1", "strike", '{"at":')]),
            delta(tool_calls=[fragment(0, None, None, ' "a"}')]),
            delta(tool_calls=[fragment(1, "c2", "strike", "")]),
            delta(tool_calls=[fragment(1, None, None, '{"at": "b"}')]),
            delta(finish="tool_calls"),
        ],
        _chat_end,
        says("All is well."),
    ),
    Wire(
        "anthropic_messages",
        anthropic_wire.stream(
            anthropic_wire.text(0, "I strike."),
            anthropic_wire.asks(1, "c1", "strike", '{"at":', ' "a"}'),
            anthropic_wire.asks(2, "c2", "strike", '{"at": "b"}'),
            stop="tool_use",
        ),
        _anthropic_end,
        anthropic_wire.says("All is well."),
    ),
    Wire(
        "responses",
        responses_wire.wire(*responses_wire.replied(responses_wire.message("I strike."), *_CALLS)),
        _responses_end,
        Answer(responses_wire.wire(*responses_wire.replied(responses_wire.message("All is well.")))),
    ),
)
BY_MODE: dict[ApiMode, Wire] = {wire.mode: wire for wire in WIRES}


# ── Every byte and every word, at the format ───────────────────────────────────────────────────────


def calls_in(mode: ApiMode, body: bytes) -> list[str]:
    """The calls that a format finds in a stream that ends here."""
    payloads, reply = PayloadParser(), load_format(mode).reply(HELLO)
    try:
        for chunk in (payloads.feed(body), payloads.end()):
            if not reply.done and reply.feed(chunk):
                return []
        whole = reply.finish(0)
    except UnusableReply:
        return []
    return [part.name for part in whole.parts if isinstance(part, ToolUse)]


@pytest.mark.parametrize("mode", BY_MODE)
def test_a_stream_cut_at_any_byte_contains_no_call(mode: ApiMode) -> None:
    body = b"".join(BY_MODE[mode].pieces)
    assert calls_in(mode, body) == ["strike", "strike"]
    last = len(body.rstrip())  # its last event needs no blank line behind it
    for end in range(last):
        assert calls_in(mode, body[:end]) == [], body[:end][-80:]


@pytest.mark.parametrize("mode", BY_MODE)
def test_a_stream_that_fails_after_any_event_contains_no_call(mode: ApiMode) -> None:
    wire = BY_MODE[mode]
    for word in FORBIDDING:
        for count in range(len(wire.pieces)):
            assert calls_in(mode, b"".join([*wire.pieces[:count], *wire.end(word)])) == [], (word, count)


def test_a_valid_end_before_or_after_an_invalid_one_runs_no_call() -> None:
    for mode in ("chat_completions", "anthropic_messages"):
        wire = BY_MODE[mode]
        calls = wire.pieces[:-1] if mode == "chat_completions" else wire.pieces[:-2]
        good = wire.end("tool_calls")[0]
        for word in FORBIDDING:
            bad, *rest = wire.end(word)
            assert calls_in(mode, b"".join([*calls, good, bad, *rest])) == []
            assert calls_in(mode, b"".join([*calls, bad, good, *rest])) == []


# ── Whole runs ─────────────────────────────────────────────────────────────────────────────────────


class Session:
    """An agent with a tool that counts its calls, over a scripted server."""

    def __init__(self, engine: HostedEngine, script: list[Behaviour]) -> None:
        self._engine = engine
        self._script = script
        self._number = 0
        self.struck: list[str] = []

        @treadle.tool
        async def strike(at: str) -> str:
            """Strike somewhere."""
            self.struck.append(at)
            return "struck"

        self.tool = strike

    async def survives(self, mode: ApiMode, *faults: Behaviour, tools: bool = True) -> list[Any]:
        """Send a message that meets these faults, and then one that meets none. Return the events of the first."""
        self._number += 1
        wire = BY_MODE[mode]
        given = [self.tool] if tools else []
        # Each has a model of its own, so that no breaker stands in its way.
        hero = agent(model=f"{mode}/m{self._number}", tools=given, retry={"attempts": 0})
        self._script[:] = [*faults, *[wire.answer] * 3]
        first = await self._engine.run(hero, "go", session=f"s{self._number}")
        self._script[:] = [wire.answer]
        second = await self._engine.run(hero, "and now?", session=f"s{self._number}")
        assert (second.outcome, second.text) == ("completed", "All is well."), faults
        return [event.data for event in await journal(self._engine, first.run_id)]


def in_sessions(folder: Path, work: Callable[[Session], Any]) -> None:
    async def run() -> None:
        script: list[Behaviour] = []

        def answer(_: Request) -> Behaviour:
            return script.pop(0)

        async with asyncio.timeout(10 * HANG_SECONDS), FakeEndpoint(policy=answer) as server:
            engine = create_engine(f"sqlite:///{folder}/t.db", home=Home(folder / "home"))
            for mode in BY_MODE:
                engine.add_provider(mode, base_url=server.url, api_mode=mode, api_key="sk-fake-1234")
            async with engine:
                await work(Session(engine, script))

    asyncio.run(run())


def faults(wire: Wire) -> Iterator[Answer]:
    """The reply, cut behind every event, with a clean end or a lost connection; and one bad word of each kind."""
    for count in range(len(wire.pieces)):
        yield Answer(wire.pieces[:count])
    for count in (1, len(wire.pieces) // 2, len(wire.pieces) - 1):
        yield Answer(wire.pieces[:count], ending="cut")
    for end in ("cut", "filtered", "malformed", "failed", "unknown"):
        whole = wire.pieces[:-1] if wire.mode != "anthropic_messages" else wire.pieces[:-2]
        yield Answer([*whole, *wire.end(WORDS[end][0])])


@pytest.mark.parametrize("mode", BY_MODE)
def test_no_call_of_a_faulty_reply_runs_and_the_session_continues(tmp_path: Path, mode: ApiMode) -> None:
    async def work(session: Session) -> None:
        for fault in faults(BY_MODE[mode]):
            events = await session.survives(mode, fault)
            assert session.struck == []
            assert not [data for data in events if isinstance(data, ToolCallStart)]

    in_sessions(tmp_path, work)


def test_a_healthy_reply_does_run_its_calls(tmp_path: Path) -> None:
    async def work(session: Session) -> None:
        for mode, wire in BY_MODE.items():
            await session.survives(mode, Answer(wire.pieces))
        assert session.struck == ["a", "b"] * 3

    in_sessions(tmp_path, work)


def test_a_cut_reply_is_continued_and_its_dropped_calls_are_reported_to_the_model(tmp_path: Path) -> None:
    async def work(session: Session) -> None:
        for mode, wire in BY_MODE.items():
            end = -2 if mode == "anthropic_messages" else -1
            events = await session.survives(mode, Answer([*wire.pieces[:end], *wire.end("max_tokens")]))
            [note] = [data.note for data in events if isinstance(data, Continuation)]
            assert "none of its tool calls was run" in note
            replies = [data for data in events if isinstance(data, LlmResponse)]
            assert replies[0].dropped_calls == ("strike", "strike")
            assert not [data for data in events if isinstance(data, LlmError)]

    in_sessions(tmp_path, work)


def test_a_paused_reply_is_sent_back_and_continued(tmp_path: Path) -> None:
    """Anthropic documents that the content of a reply that ends with `pause_turn` is sent back to continue it."""

    async def work(session: Session) -> None:
        paused = anthropic_wire.stream(anthropic_wire.text(0, "I look it up, and "), stop="pause_turn")
        events = await session.survives("anthropic_messages", Answer(paused))
        assert (events[-1].outcome, events[-1].text) == ("completed", "I look it up, and All is well.")
        [note] = [data.note for data in events if isinstance(data, Continuation)]
        assert note.startswith("The provider paused your last reply.")
        assert [data.raw_stop for data in events if isinstance(data, LlmResponse)] == ["pause_turn", None]
        wire = BY_MODE["anthropic_messages"]
        events = await session.survives(wire.mode, Answer([*wire.pieces[:-2], *wire.end("pause_turn")]))
        [note] = [data.note for data in events if isinstance(data, Continuation)]
        assert "none of its tool calls was run" in note
        assert session.struck == []
        events = await session.survives("anthropic_messages", *[Answer(paused)] * 6)
        assert events[-1].outcome == "truncated"
        assert events[-1].reason == "The answer was paused by the provider and 5 continuations were not enough."

    in_sessions(tmp_path, work)


# ── Calls written as text ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dialect", WRITTEN)
def test_a_call_written_as_text_is_challenged_once_and_then_ends_the_run(tmp_path: Path, dialect: Any) -> None:
    text = WRITTEN[dialect][0].replace("add", "strike")

    async def work(session: Session) -> None:
        events = await session.survives("chat_completions", says(text))
        assert [data.count for data in events if isinstance(data, CallWritten)] == [1]
        assert events[-1].outcome == "completed"
        events = await session.survives("chat_completions", says(text), says(text))
        assert events[-1].outcome == "model_error"
        assert "strike" in events[-1].reason, "it says what was received"
        assert session.struck == []

    in_sessions(tmp_path, work)


def test_an_agent_without_tools_may_write_anything(tmp_path: Path) -> None:
    async def work(session: Session) -> None:
        for texts in WRITTEN.values():
            for text in texts:
                events = await session.survives("chat_completions", says(text), tools=False)
                assert (events[-1].outcome, events[-1].text) == ("completed", strip_end_tokens(text))

    in_sessions(tmp_path, work)


def test_thinking_alone_is_not_an_answer(tmp_path: Path) -> None:
    async def work(session: Session) -> None:
        events = await session.survives("chat_completions", says("<think>I should say something"))
        assert events[-1].text == "All is well."

    in_sessions(tmp_path, work)


def test_unsafe_calls_are_dropped_whatever_the_adapter_returns() -> None:
    from treadle.domain.runs import Usage
    from treadle.engine.guarded_model import _drop_unsafe_calls  # pyright: ignore[reportPrivateUsage]

    use = ToolUse("c", "strike", json.dumps({"at": "a"}))
    for stop in ("max_tokens", "refusal", "interrupted"):
        end = _drop_unsafe_calls(Completed((use,), stop, Usage()))
        assert isinstance(end, Completed)
        assert (end.parts, end.dropped_calls) == ((), ("strike",))
    assert not isinstance(_drop_unsafe_calls(Completed((use,), "other", Usage())), Completed)
