"""What a program reads while a run works."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
import pydantic
import pytest
from typing_extensions import TypedDict

import treadle
from tests.api.programs import HELPER, OPERATOR, deploy, make_engine
from treadle.api.streams import COPIES_PER_CHARACTER, read_output, read_text
from treadle.domain.envelope import Event, Origin
from treadle.domain.errors import UsageError
from treadle.domain.events import Token
from treadle.domain.ids import AgentId, EventId, RunId, SessionId
from treadle.domain.messages import Text
from treadle.domain.runs import Usage
from treadle.ports.model import Completed, ModelRequest, Show, TextDelta
from treadle.testing.models import ask, call, say
from treadle.tools.answer_types import parse_answer

ASKS = ask(call("deploy", version="1.2"), text="I deploy it.")


async def test_text_arrives_in_pieces_and_the_result_follows(tmp_path: Path) -> None:
    async with make_engine(tmp_path, say("Looms are old.")) as engine:
        stream = engine.stream_text(HELPER, "Tell me about looms.")
        with pytest.raises(UsageError, match="has no result yet"):
            _ = stream.result
        pieces = [text async for text in stream]
        assert len(pieces) > 1
        assert ("".join(pieces), stream.result.text, stream.result.outcome) == (
            "Looms are old.",
            "Looms are old.",
            "completed",
        )
        assert (await engine.show(stream.run_id)).outcome == "completed"


async def test_an_empty_line_separates_the_replies_of_a_run(tmp_path: Path) -> None:
    async with make_engine(tmp_path, ASKS, say("It is live.")) as engine:
        stream = engine.stream_text(OPERATOR, "Deploy 1.2.", on_approval=lambda _: True)
        assert "".join([text async for text in stream]) == "I deploy it.\n\nIt is live."


async def test_text_ends_where_the_run_waits_for_people(tmp_path: Path) -> None:
    async with make_engine(tmp_path, ASKS, say("It is live.")) as engine:
        stream = engine.stream_text(OPERATOR, "Deploy 1.2.")
        assert "".join([text async for text in stream]) == "I deploy it."
        assert (stream.result.status, len(stream.result.approvals)) == ("waiting", 1)


async def test_text_that_was_written_before_its_reader_came_is_not_missing(tmp_path: Path) -> None:
    async with make_engine(tmp_path, ASKS, say("It is live.")) as engine:
        waiting = await engine.run(OPERATOR, "Deploy 1.2.")
        await engine.decide(waiting.approvals[0].approval_id, True)
        await engine.wait(waiting.run_id)
        pieces = [text async for text in read_text(engine.events(waiting.run_id))]
        assert pieces == ["I deploy it.", "\n\nIt is live."]


async def test_the_reader_of_events_decides_what_the_run_asks(tmp_path: Path) -> None:
    seen: list[str] = []
    async with make_engine(tmp_path, ASKS, say("It is live.")) as engine:
        stream = engine.stream(OPERATOR, "Deploy 1.2.")
        async for event in stream:
            match event.data:
                case treadle.Token(text=text):
                    seen.append(text)
                case treadle.ApprovalRequested(approval_id=approval_id):
                    await engine.decide(approval_id, "approve")
                case treadle.ToolCallEnd(content=content):
                    seen.append(f"[{content}]")
                case _:
                    pass
        assert "[deployed 1.2]" in "".join(seen)
        assert stream.result.text == "It is live."


async def test_items_show_a_run_as_people_see_it(tmp_path: Path) -> None:
    states: list[str] = []
    async with make_engine(tmp_path, ASKS, say("It is live.")) as engine:
        async for item in engine.stream_items(OPERATOR, "Deploy 1.2."):
            match item:
                case treadle.CallItem(name=name, state=state):
                    states.append(f"{name} {state}")
                case treadle.ApprovalItem(approval_id=approval_id, state="pending"):
                    await engine.decide(approval_id, "approve")
                case treadle.AnswerItem(text=text, state="done"):
                    states.append(text)
                case _:
                    pass
        assert states[0] == "deploy writing"
        assert states[-2:] == ["deploy done", "It is live."]
        [first, *_, last] = await engine.transcript((await engine.list_runs())[0].run_id)
        assert isinstance(first, treadle.MessageItem)
        assert isinstance(last, treadle.EndItem)


async def test_a_stream_that_is_left_does_not_stop_its_run(tmp_path: Path) -> None:
    async with make_engine(tmp_path, say("Looms are old.")) as engine:
        async with engine.stream_text(HELPER, "Tell me about looms.") as stream:
            async for _ in stream:
                break
        assert (await engine.wait(stream.run_id)).text == "Looms are old."


async def test_a_stream_that_is_read_in_the_wrong_way_says_how_to_read_it(tmp_path: Path) -> None:
    async with make_engine(tmp_path, say("Looms are old.")) as engine:
        with pytest.raises(TypeError, match="async for"):
            await engine.stream_text(HELPER, "Hello.")
        with pytest.raises(TypeError, match="async for"):
            list(engine.stream(HELPER, "Hello."))  # pyright: ignore[reportArgumentType, reportCallIssue] -- the mistake
        assert await engine.list_runs() == []


def test_a_program_without_an_event_loop_opens_the_engine_once(tmp_path: Path) -> None:
    with make_engine(tmp_path, say("One."), say("Two words."), ASKS, say("It is live.")) as engine:
        assert engine.run_sync(HELPER, "First?").text == "One."
        assert "".join(engine.stream_text_sync(HELPER, "Second?")) == "Two words."
        waiting = engine.run_sync(OPERATOR, "Deploy 1.2.")
        engine.do_sync(engine.decide(waiting.approvals[0].approval_id, "approve"))
        assert engine.do_sync(engine.wait(waiting.run_id)).text == "It is live."
        assert len(engine.do_sync(engine.list_runs())) == 3
        for _ in engine.stream_text_sync(HELPER, "The script has ended."):
            break
    with pytest.raises(UsageError, match=r"with treadle\.Engine"):
        engine.do_sync(engine.list_runs())


# ── Answers that grow ──


class Article(pydantic.BaseModel):
    title: str
    tags: list[str]


class Row(TypedDict):
    a: int


class Loom(msgspec.Struct):
    name: str
    parts: list[str]
    heddles: int = 0


WEAVER = treadle.Agent("weaver", model="scripted/any", output=Loom, tools=[deploy])
LOOM = '{"name": "Jacquard 🎈", "parts": ["warp", "weft"], "heddles": 400}'


def assert_grows(values: list[Any]) -> None:
    """Each value differs from the one before, and its text and its lists only get longer."""
    assert all(one != other for one, other in pairwise(values))
    for one, other in pairwise(values):
        assert set(one) <= set(other)
        assert other["name"].startswith(one["name"])


class Writer:
    """A model that writes a part of its answer, and the rest once someone has read the part."""

    def __init__(self) -> None:
        self.was_read = asyncio.Event()

    async def reply(self, request: ModelRequest, show: Show) -> Completed:
        show(TextDelta(LOOM[:12]))
        await self.was_read.wait()
        for character in LOOM[12:]:
            show(TextDelta(character))
        return Completed((Text(LOOM),), "end_turn", Usage(1, 1))


async def test_an_answer_grows_until_it_is_the_validated_one(tmp_path: Path) -> None:
    async with make_engine(tmp_path) as engine:
        engine.add_model("scripted", writer := Writer())
        stream = engine.stream_output(WEAVER, "Name a loom.")
        values: list[Any] = []
        async for value in stream:
            values.append(value)
            writer.was_read.set()
        assert values[0] == {"name": "Ja"}
        assert len(values) > 20
        assert_grows(values)
        assert values[-1] == json.loads(LOOM) == msgspec.to_builtins(stream.result.output)
        assert stream.result.output == Loom("Jacquard 🎈", ["warp", "weft"], 400)


async def test_a_refused_answer_is_followed_by_the_next_one(tmp_path: Path) -> None:
    async with make_engine(tmp_path, say('{"name": "x"}'), say(LOOM)) as engine:
        values = [value async for value in engine.stream_output(WEAVER, "Name a loom.") if value]
        assert {"name": "x"} in values
        assert values[-1] == json.loads(LOOM)


async def test_text_before_tool_calls_yields_nothing(tmp_path: Path) -> None:
    texts = ("I deploy it.", "12 looms, then.", "")
    replies = [ask(call("deploy", version="1.2"), text=text) for text in texts]
    async with make_engine(tmp_path, *replies, say(LOOM)) as engine:
        values = [value async for value in engine.stream_output(WEAVER, "Name a loom.")]
        assert all(isinstance(value, dict) for value in values)
        assert values[-1] == json.loads(LOOM)


async def test_an_answer_that_was_cut_goes_on_growing(tmp_path: Path) -> None:
    async with make_engine(tmp_path, say(LOOM[:20], stop="max_tokens"), say(LOOM[20:])) as engine:
        stream = engine.stream_output(WEAVER, "Name a loom.")
        values = [value async for value in stream if value]
        assert_grows(values)
        assert (values[-1], stream.result.outcome) == (json.loads(LOOM), "completed")


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (list[Loom], f"[{LOOM}, {LOOM}]"),
        (Loom | None, "null"),
        (Loom | int, "7"),
        (Literal["yes", "no"], '"yes"'),
        (Row, '{"a": 1}'),
        (Article, '{"title": "Looms", "tags": ["old"]}'),
        (list[Article] | None, '[{"title": "Looms", "tags": []}]'),
    ],
    ids=str,
)
async def test_answers_of_any_type_are_streamed(tmp_path: Path, type_: Any, text: str) -> None:
    async with make_engine(tmp_path, say(text)) as engine:
        stream = engine.stream_output(HELPER, "Answer.", output=type_)
        values = [value async for value in stream]
        assert values[-1] == json.loads(text)
        assert stream.result.output == parse_answer(text, type_)


async def test_an_agent_without_an_output_has_no_answer_to_stream(tmp_path: Path) -> None:
    async with make_engine(tmp_path) as engine:
        with pytest.raises(UsageError, match=r"has no `output`.* use `stream_text`"):
            await anext(engine.stream_output(HELPER, "Name a loom."))
        assert await engine.list_runs() == []


async def test_an_answer_that_does_not_fit_in_the_end_is_not_yielded_as_a_whole(tmp_path: Path) -> None:
    wrong = say('{"name": 1, "parts": 2}')
    async with make_engine(tmp_path, wrong, wrong, wrong) as engine:
        stream = engine.stream_output(WEAVER, "Name a loom.")
        assert [value async for value in stream]
        assert (stream.result.outcome, stream.result.output) == ("failed", None)


def test_answers_grow_without_an_event_loop(tmp_path: Path) -> None:
    with make_engine(tmp_path, say(LOOM)) as engine:
        values = list(engine.stream_output_sync(WEAVER, "Name a loom."))
        assert_grows(values[1:])
        assert values[-1] == json.loads(LOOM)


async def read_pieces(text: str) -> tuple[list[Any], int]:
    """Return the values of an answer that arrives in single characters, and how much of it was copied."""
    origin = Origin(RunId("run_a"), SessionId("ses_a"), AgentId("agt_a"))

    async def events() -> AsyncGenerator[Event, None]:
        for offset, character in enumerate(text):
            token = Token(1, 1, offset, character)
            yield Event(EventId("evt_a"), 0.0, origin, 1, "token", token, b"")

    values = [value async for value in read_output(events())]
    return values, sum(count_copied(one, other) for one, other in pairwise(values))


def count_copied(one: Any, other: Any) -> int:
    """Return how many items and characters of a value are not shared with the one before."""
    if one is other:
        return 0
    if isinstance(other, str):
        return len(other)
    if isinstance(other, dict):
        before = cast("dict[str, Any]", one if isinstance(one, dict) else {})
        after = cast("dict[str, Any]", other)
        return len(after) + sum(count_copied(before.get(key), value) for key, value in after.items())
    if isinstance(other, list):
        items = cast("list[Any]", one if isinstance(one, list) else []), cast("list[Any]", other)
        return len(items[1]) + sum(count_copied(*pair) for pair in zip_longest(*items))
    return 0


SHAPES: list[Callable[[int], Any]] = [lambda n: ["x" * n], lambda n: [1] * n, lambda n: {"a": ["y"] * n}]


@pytest.mark.parametrize("make", SHAPES, ids=["a string", "numbers", "strings"])
async def test_the_cost_of_a_growing_answer_grows_with_its_length_only(make: Callable[[int], Any]) -> None:
    small, large = json.dumps(make(2_000)), json.dumps(make(20_000))
    (_, few), (values, many) = await read_pieces(small), await read_pieces(large)
    assert many <= 12 * few, "ten times the text"
    assert many <= COPIES_PER_CHARACTER * len(large)
    assert len(values) > 100
