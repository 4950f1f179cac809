"""What a program reads while a run works."""

from pathlib import Path

import pytest

import treadle
from tests.api.programs import HELPER, OPERATOR, make_engine
from treadle.api.streams import read_text
from treadle.domain.errors import UsageError
from treadle.testing.models import ask, call, say

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
