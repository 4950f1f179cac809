"""Long conversations are trimmed, summarized and restored, and nothing is lost."""

import re
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.engine.running import agent, journal, opened
from treadle.core.context.compaction import INSTRUCTIONS
from treadle.core.context.transcript import repair
from treadle.domain import events as e
from treadle.domain.agents import Limits
from treadle.domain.errors import UsageError
from treadle.domain.messages import Message
from treadle.domain.runs import Usage
from treadle.ports.model import Completed, Failed, ModelRequest, Show
from treadle.testing.models import (
    FunctionModel,
    ScriptedFailure,
    ScriptedReply,
    ScriptStep,
    ask,
    call,
    perform,
    say,
)

UNCOUNTED = Usage(estimated=True)
WORDS = "some words that take their room in the conversation and say little. "
SMALL: dict[str, Any] = {"limits": Limits(context_window=2000)}


@treadle.tool(effect="read", repeatable=True)
async def look(at: int) -> str:
    """Look at something."""
    return f"thing {at}: " + WORDS * 8


@treadle.tool(effect="read", repeatable=True)
async def read_all() -> str:
    """Read a lot."""
    return "".join(f"line {n}\n" for n in range(600))


def is_summary(request: ModelRequest) -> bool:
    return request.preamble.system.startswith(INSTRUCTIONS)


def prompt_of(request: ModelRequest) -> str:
    return request.conversation.messages[0].text


class Recorder:
    """A model that keeps every request it is sent, as it was then, and answers by a function."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self.asked: list[list[Message]] = []
        self.summaries: list[str] = []

    async def reply(self, request: ModelRequest, show: Show) -> Completed | Failed:
        if is_summary(request):
            self.summaries.append(prompt_of(request))
        else:
            messages = list(request.conversation.messages)
            assert repair(messages) == tuple(messages), "no provider would take this"
            self.asked.append(messages)
        step: ScriptStep = self._answer(request, self)
        return await perform(step, show, lambda: 0.0)


def numbered(_: ModelRequest, model: Recorder) -> ScriptStep:
    return say(f"answer {len(model.asked)}", usage=UNCOUNTED)


def greeting(_: ModelRequest, model: Recorder) -> ScriptStep:
    return say("hello", usage=UNCOUNTED)


def steps(count: int, summary: ScriptStep | None = None) -> Recorder:
    """Calls a tool this many times, then answers. Summarises on request."""

    def answer(request: ModelRequest, model: Recorder) -> ScriptStep:
        if is_summary(request):
            number = len(model.summaries)
            return summary or say(f"## Goal\nlook around\n## Done\nsummary number {number}", usage=UNCOUNTED)
        if len(model.asked) <= count:
            return ask(call("look", f"c{len(model.asked)}", at=len(model.asked)), usage=UNCOUNTED)
        return say("done", usage=UNCOUNTED)

    return Recorder(answer)


def of(kind: type[Any], events: list[Any]) -> list[Any]:
    return [event.data for event in events if isinstance(event.data, kind)]


async def test_a_long_run_is_summarised_repeatedly_and_never_exceeds_the_window(tmp_path: Path) -> None:
    model = steps(40)

    async with opened(tmp_path, model) as engine:
        result = await engine.run(agent(tools=[look], **SMALL), "Look around. The password is swordfish.")
        events = await journal(engine, result.run_id)
    assert (result.outcome, result.text) == ("completed", "done")
    compacted = of(e.ContextCompacted, events)
    assert len(compacted) >= 3
    assert all(each.trigger == "threshold" and each.tokens_after < each.tokens_before for each in compacted)
    assert max(request.input_estimate for request in of(e.LlmRequest, events)) <= 2000
    for number, request in enumerate(model.summaries[1:], start=1):
        assert f"summary number {number}" in request, "each updates the one before"
    last = model.asked[-1]
    assert "swordfish" in last[0].text, "what the task is stays, as it was said"
    assert [message.mark for message in last].count("summary") == 1
    assert last[-1].role == "tool", "and so do the latest turns"
    segments = of(e.SegmentOpened, events)
    assert [each.parent for each in segments[1:]] == [each.segment_id for each in segments[:-1]]
    assert result.metrics.model_calls == len(model.asked) + len(model.summaries)


async def test_the_next_run_continues_from_the_summary_and_undo_restores_everything(tmp_path: Path) -> None:
    model = steps(12)

    async with opened(tmp_path, model) as engine:
        hero = agent(tools=[look], **SMALL)
        first = await engine.run(hero, "Look around.")
        before = await engine.run(hero, "Say it again.", session=first.session_id)
        assert any(message.mark == "summary" for message in model.asked[-1])
        events = await journal(engine, first.run_id)
        compactions = len(of(e.ContextCompacted, events))
        assert compactions == 1
        whole = len(of(e.ToolCallEnd, events))

        undone = await engine.run(hero, "/undo", session=first.session_id)
        assert (undone.outcome, "back" in undone.text) == ("completed", True)
        wide = agent(tools=[look])
        after = await engine.run(wide, "And once more.", session=first.session_id)
        assert (before.text, after.text) == ("done", "done")
        sent = model.asked[-1]
        assert not any(message.mark == "summary" for message in sent)
        assert sum(message.role == "tool" for message in sent) == whole
        assert [message.text for message in sent if message.role == "user"] == [
            "Look around.", "Say it again.", "And once more.",
        ]  # fmt: skip
        again = await engine.run(wide, "/undo", session=first.session_id)
        assert again.outcome == "failed"
        assert "nothing to undo" in again.reason


async def test_time_and_place_stay_with_their_messages_through_compaction_and_undo(tmp_path: Path) -> None:
    model = steps(12)

    async with opened(tmp_path, model) as engine:
        hero, wide = agent(tools=[look], **SMALL), agent(tools=[look])
        first = await engine.run(hero, "Look around.", asker="terminal")
        await engine.run(hero, "Say it again.", session=first.session_id, asker="terminal")
        folded = [message for message in model.asked[-1] if message.role == "user" and not message.mark]
        assert any(message.mark == "summary" for message in model.asked[-1])
        await engine.run(hero, "/undo", session=first.session_id)
        await engine.run(wide, "And once more.", session=first.session_id, asker="terminal")
        whole = [message for message in model.asked[-1] if message.role == "user"]
    assert folded[-1].preface.endswith("the user is at a terminal]")
    assert all(message.preface.endswith("the user is at a terminal]") for message in whole)
    assert [message.text for message in whole] == ["Look around.", "Say it again.", "And once more."]
    assert (folded[-1].preface, folded[-1].text) == (whole[1].preface, whole[1].text)


async def test_an_undo_does_not_cause_an_early_summary(tmp_path: Path) -> None:
    model = steps(11)

    async with opened(tmp_path, model) as engine:
        hero = agent(tools=[look], **SMALL)
        first = await engine.run(hero, "Look around.")
        await engine.run(hero, "/undo", session=first.session_id)
        made = len(model.summaries)
        result = await engine.run(agent(tools=[look], limits=Limits(context_window=2600)), "Go on.",
                                  session=first.session_id)  # fmt: skip
        assert result.outcome == "completed"
        assert len(model.summaries) == made, "over three quarters, and it still fits"


EMPTY = (say("  \n", usage=UNCOUNTED), say("## Goal\n## Done\n"), ScriptedFailure(retryable=False))


@pytest.mark.parametrize("summary", EMPTY)
async def test_a_failed_summary_loses_nothing_and_the_next_method_is_tried(
    tmp_path: Path, summary: ScriptStep
) -> None:
    model = steps(30, summary)

    async with opened(tmp_path, model) as engine:
        result = await engine.run(agent(tools=[look], **SMALL), "Look around.")
        events = await journal(engine, result.run_id)
    assert of(e.CompactionFailed, events)
    assert not of(e.ContextCompacted, events)
    trimmed = of(e.ContextTrimmed, events)
    assert [each.stage for each in trimmed][:1] == ["trim"], "the results of old turns are cut instead"
    assert all(each.freed > 0 for each in trimmed)
    assert max(request.input_estimate for request in of(e.LlmRequest, events)) <= 2000


async def test_an_overflow_error_tries_every_remedy_once(tmp_path: Path) -> None:
    """It takes less than it says: the run ends only when nothing more can be left out, and names the ways out."""

    def answer(request: ModelRequest, model: Recorder) -> ScriptStep:
        if is_summary(request):
            return say("## Done\nlooked", usage=UNCOUNTED)
        if len(model.asked) <= 6:
            tool = "read_all" if len(model.asked) == 2 else "look"
            more = {} if tool == "read_all" else {"at": len(model.asked)}
            return ask(call(tool, f"c{len(model.asked)}", **more), usage=UNCOUNTED)
        return ScriptedFailure("overflow", "prompt is too long", retryable=False, compact=True)

    model = Recorder(answer)

    async with opened(tmp_path, model) as engine:
        hero = agent(tools=[look, read_all], limits=Limits(context_window=8000))
        result = await engine.run(hero, "Look around.")
        events = await journal(engine, result.run_id)
    ways = [
        event.data.stage
        for event in events
        if isinstance(event.data, e.ContextTrimmed | e.ContextCompacted | e.CompactionFailed)
    ]
    possible = ["shrink", "trim", "compact", "harder"]
    assert ways == possible[: len(ways)], "in this order, each once, those that free nothing left out"
    assert len(ways) >= 3
    assert result.outcome == "context_overflow"
    assert "prompt is too long" in result.reason
    assert "/compact" in result.next
    assert "/reset" in result.next


async def test_a_truncated_result_can_be_recalled_completely(tmp_path: Path) -> None:
    def answer(request: ModelRequest, model: Recorder) -> ScriptStep:
        if len(model.asked) == 1:
            return ask(call("read_all", "big"), usage=UNCOUNTED)
        if len(model.asked) == 2:
            return ScriptedFailure("overflow", "too long", retryable=False, compact=True)
        if len(model.asked) == 3:
            return ask(call("recall", "again", call_id="big", start=2000, length=100), usage=UNCOUNTED)
        return say("done", usage=UNCOUNTED)

    model = Recorder(answer)

    async with opened(tmp_path, model) as engine:
        hero = agent(tools=[read_all, "recall"], limits=Limits(context_window=5000))
        result = await engine.run(hero, "Read.")
        events = await journal(engine, result.run_id)
    assert [each.stage for each in of(e.ContextTrimmed, events)] == ["shrink"]
    ends = {each.call_id: each.content for each in of(e.ToolCallEnd, events)}
    whole = "".join(f"line {n}\n" for n in range(600))
    assert whole[2050:2080] in ends["again"]
    assert "are left out here" in str(model.asked[2][-1].parts[0])


async def test_the_message_limit_drops_the_oldest_and_keeps_pinned_ones(tmp_path: Path) -> None:
    model = Recorder(numbered)

    async with opened(tmp_path, model) as engine:
        hero = agent(limits=Limits(history_messages=8))
        first = await engine.run(hero, "message 0")
        await engine.run(hero, "/pin I am allergic to nuts", session=first.session_id)
        for number in range(1, 12):
            await engine.run(hero, f"message {number}", session=first.session_id)
        for messages in model.asked:
            assert len(messages) <= 8 + 1, "and the one that is pinned"
        assert [message.text for message in model.asked[-1] if message.mark == "pinned"] == [
            "I am allergic to nuts"
        ]
        assert model.asked[-1][-1].text == "message 11"


async def test_commands_are_separate_runs_without_model_calls(tmp_path: Path) -> None:
    model = Recorder(greeting)

    async with opened(tmp_path, model) as engine:
        hero = agent()
        first = await engine.run(hero, "my name is Ada")
        session = first.session_id
        nothing = await engine.run(hero, "/compact", session=session)
        assert "nothing to summarise" in nothing.text
        pinned = await engine.run(hero, "/pin", session=session)
        assert pinned.text == "Pinned: my name is Ada"
        usage = await engine.run(hero, "/usage", session=session)
        assert "runs      3" in usage.text
        assert "segments  1" in usage.text
        reset = await engine.run(hero, "/reset", session=session)
        assert reset.outcome == "completed"
        await engine.run(hero, "who am I?", session=session)
        assert [message.text for message in model.asked[-1]] == ["who am I?"]
        await engine.run(hero, "/undo", session=session)
        await engine.run(hero, "and now?", session=session)
        said = [message.text for message in model.asked[-1] if message.role == "user"]
        assert said == ["my name is Ada", "who am I?", "and now?"]
        assert len(model.asked) == 3
        nowhere = await engine.run(hero, "/home/ada/notes.txt is a path, and no command")
        assert nowhere.text == "hello"
        with pytest.raises(UsageError, match="takes no argument"):
            await engine.run(hero, "/reset everything", session=session)


async def test_a_compaction_by_command_folds_even_a_short_conversation_once(tmp_path: Path) -> None:
    def answer(request: ModelRequest, model: Recorder) -> ScriptStep:
        if is_summary(request):
            assert "above all: the names" in prompt_of(request)
            return say("## Done\nAda said hello", usage=UNCOUNTED)
        return say(f"answer {len(model.asked)}: {WORDS}", usage=UNCOUNTED)

    model = Recorder(answer)

    async with opened(tmp_path, model) as engine:
        hero = agent()
        first = await engine.run(hero, "message 0")
        for number in range(1, 6):
            await engine.run(hero, f"message {number}", session=first.session_id)
        done = await engine.run(hero, "/compact the names", session=first.session_id)
        assert (done.outcome, "shorter" in done.text) == ("completed", True)
        again = await engine.run(hero, "/compact the names", session=first.session_id)
        assert "nothing to summarise" in again.text, "nothing was said since"
        assert len(model.summaries) == 1
        records = await engine.context.sessions.segments(first.session_id)
        assert [record.reason for record in records] == ["compaction"]


async def test_another_model_writes_the_summary_and_the_agents_model_replaces_it_on_failure(tmp_path: Path) -> None:
    written: list[str] = []

    def write(request: ModelRequest) -> ScriptedReply | ScriptedFailure:
        written.append(request.model)
        return (
            ScriptedFailure(retryable=False) if len(written) > 1 else say("## Done\nby the other", usage=UNCOUNTED)
        )

    model = steps(30)

    async with opened(tmp_path, model) as engine:
        engine.add_model("scribe", FunctionModel(write))
        hero = agent(tools=[look], compaction={"model": "scribe/small"}, **SMALL)
        result = await engine.run(hero, "Look around.")
        events = await journal(engine, result.run_id)
    compacted = of(e.ContextCompacted, events)
    assert compacted[0].model == "scribe/small"
    assert {each.model for each in compacted[1:]} == {"scripted/x"}
    assert len(of(e.CompactionFailed, events)) == len(compacted) - 1


async def test_the_request_is_rebuilt_from_the_journal(tmp_path: Path) -> None:
    model = steps(25)

    async with opened(tmp_path, model) as engine:
        hero = agent(tools=[look], **SMALL)
        first = await engine.run(hero, "Look around.")
        second = await engine.run(hero, "Go on.", session=first.session_id)
        for result in (first, second):
            asked = of(e.LlmRequest, await journal(engine, result.run_id))
            for request in asked:
                seen = await engine.service.prompt(result.run_id, request.step)
                index = (request.step if result is first else len(model.asked)) - 1
                assert seen.request.conversation.messages == model.asked[index]
        with pytest.raises(UsageError, match="its steps are 1 to"):
            await engine.service.prompt(first.run_id, 99)


RULE = "Never touch the garden."


def reading(request: ModelRequest, model: Recorder) -> ScriptStep:
    """Read a file in each of 20 requests, then answer. The summaries say little."""
    if is_summary(request):
        return say("## Decisions\n- go west\n## Goal\nlook", usage=UNCOUNTED)
    if len(model.asked) % 20:
        return ask(call("read_file", f"c{len(model.asked)}", path="a.txt", lines=len(model.asked)), usage=UNCOUNTED)
    return say("done", usage=UNCOUNTED)


async def test_what_is_kept_with_a_summary_is_journaled_and_survives_forks_and_undo(tmp_path: Path) -> None:
    model = Recorder(reading)
    (tmp_path / "a.txt").write_text(WORDS * 8)

    async with opened(tmp_path, model) as engine:
        hero = agent(tools=["read_file", "recall"], workspace=str(tmp_path), **SMALL)
        first = await engine.run(hero, "Look around.")
        await engine.run(hero, f"Look there. {RULE}", session=first.session_id)
        second = await engine.run(hero, "Look again.", session=first.session_id)
        events = await journal(engine, second.run_id)
        compacted = of(e.ContextCompacted, events)
        assert compacted
        assert RULE in compacted[-1].record
        assert "- go west" in compacted[-1].record, "the summary before had it"
        sent = next(message for message in model.asked[-1] if message.mark == "summary")
        assert compacted[-1].record in sent.text
        named = re.search(r'a\.txt: recall\(call_id="(\w+)"\)', sent.text)
        assert named is not None
        calls = await engine.service.full_result(first.session_id, named[1])
        assert calls is not None
        assert WORDS in calls
        for result in (first, second):
            assert (await engine.service.replay(result.run_id)).is_same

        fork = await engine.fork(second.run_id, message="And now?")
        await engine.wait(fork)
        assert any(RULE in message.text for message in model.asked[-1] if message.mark == "summary")

        await engine.run(hero, "/undo", session=first.session_id)
        await engine.run(agent(tools=[], workspace=str(tmp_path)), "What now?", session=first.session_id)
        assert compacted[-1].record not in "".join(message.text for message in model.asked[-1])
