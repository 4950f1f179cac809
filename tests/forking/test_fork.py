"""A fork starts in exactly the state of its step, and repeats no effect."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.engine.running import agent, in_virtual_time, journal, opened, until, virtually
from tests.engine.test_compaction import SMALL, UNCOUNTED, WORDS, is_summary
from treadle.bootstrap.engine import encode_request
from treadle.domain.agents import AgentSpec
from treadle.domain.envelope import Event
from treadle.domain.errors import InvalidState, QuotaExceeded, UnknownModel, UnknownRun, UsageError
from treadle.domain.events import (
    ContextCompacted,
    LlmRequest,
    PhantomAction,
    RunForked,
    RunQueued,
    RunStart,
    ToolCallBlocked,
    ToolCallStart,
)
from treadle.domain.ids import RunId
from treadle.domain.messages import Image, Message, Thinking
from treadle.domain.runs import Usage
from treadle.ports.model import Completed, Failed, ModelRequest, Show
from treadle.testing.models import FunctionModel, ScriptedModel, ScriptedReply, ScriptStep, Silence, ask, call, say
from treadle.vault.store import SecretGrant, VaultStore

QUIET = {"recall": 0, "remember": False}
PICTURE = Image("image/png", "aGk=")


class CountingTools:
    """A tool that counts how often it was used."""

    def __init__(self) -> None:
        self.sent: list[str] = []

        @treadle.tool
        async def send_mail(to: str) -> str:
            """Send a mail."""
            self.sent.append(to)
            return f"sent to {to}"

        @treadle.tool(effect="read", repeatable=True)
        async def look(at: str) -> str:
            """Look at something."""
            self.sent.append(at)
            return "always the same"

        @treadle.tool(effect="read")
        async def fetch() -> str:
            """Fetch a lot."""
            return "line\n" * 30_000

        self.tools = [send_mail, look, fetch]


def hero(desk: CountingTools, **more: Any) -> treadle.Agent:
    return agent(tools=desk.tools, memory=QUIET, **more)


def list_texts(request: ModelRequest) -> list[str]:
    return [message.text for message in request.conversation.messages]


def find_fork(events: Sequence[Event]) -> RunForked:
    [found] = [event.data for event in events if isinstance(event.data, RunForked)]
    return found


@pytest.mark.parametrize("step", [1, 2, 3])
async def test_a_fork_sends_the_same_request_as_the_old_run(tmp_path: Path, step: int) -> None:
    desk = CountingTools()
    old = [ask(call("send_mail", to="ada"), thinking="hm"), ask(call("look", at="it"), text="so"), say("done")]
    model = ScriptedModel(*old, say("again"))

    async with opened(tmp_path, model) as engine:
        first = await engine.run(hero(desk), "Write to Ada.", attachments=[PICTURE])
        before = [event.raw for event in await journal(engine, first.run_id)]
        done = list(desk.sent)
        fork = await engine.fork(first.run_id, step=step)
        result = await engine.wait(fork)
        events = await journal(engine, fork)
        shown = await engine.service.prompt(fork, 1)
        wanted = await engine.service.prompt(first.run_id, step)
        assert encode_request("scripted", shown.request) == encode_request("scripted", wanted.request)
        assert shown.event.input_estimate == wanted.event.input_estimate
        assert [event.raw for event in await journal(engine, first.run_id)] == before
    sent, asked = model.requests[step - 1], model.requests[-1]
    assert asked.conversation.messages == sent.conversation.messages
    assert asked.preamble.system == sent.preamble.system
    assert asked.preamble.tools == sent.preamble.tools
    assert desk.sent == done, "nothing is done again"
    assert (result.text, result.metrics.steps, result.metrics.actions) == ("again", 1, 0)
    assert result.session_id != first.session_id
    assert [event.type for event in events[:2]] == ["run_queued", "run_forked"]
    assert (find_fork(events).run_id, find_fork(events).step) == (first.run_id, step)


async def test_the_last_step_is_forked_by_default(tmp_path: Path) -> None:
    desk = CountingTools()
    model = ScriptedModel(ask(call("look", at="it")), say("done"), say("again"))

    async with opened(tmp_path, model) as engine:
        first = await engine.run(hero(desk), "Look.")
        fork = await engine.fork(first.run_id)
        await engine.wait(fork)
        assert find_fork(await journal(engine, fork)).step == 2
    assert model.requests[2].conversation.messages == model.requests[1].conversation.messages


async def test_a_message_replaces_the_question_or_follows_the_results(tmp_path: Path) -> None:
    desk = CountingTools()
    model = ScriptedModel(ask(call("look", at="it")), say("done"), say("one"), say("two"))

    async with opened(tmp_path, model) as engine:
        first = await engine.run(hero(desk), "Look.", attachments=[PICTURE])
        for step in (1, 2):
            fork = await engine.fork(first.run_id, step=step, message="Look again.")
            await engine.wait(fork)
    at_first, later = model.requests[2:]
    assert list_texts(at_first) == ["Look again."]
    assert at_first.conversation.messages[0].parts[1:] == (PICTURE,), "what was attached stays"
    assert list_texts(later)[0] == "Look."
    assert [message.role for message in later.conversation.messages] == ["user", "assistant", "tool", "user"]
    assert list_texts(later)[-1] == "Look again."


async def test_another_model_or_agent_can_answer_a_fork(tmp_path: Path) -> None:
    desk = CountingTools()
    model = ScriptedModel(ask(call("look", at="it")), say("done"))
    other = ScriptedModel(say("from another"), say("of another agent"))

    async with opened(tmp_path, model) as engine:
        engine.add_model("other", other)
        first = await engine.run(hero(desk, persona="Be brave."), "Look.")
        fork = await engine.fork(first.run_id, model="other/y")
        assert (await engine.wait(fork)).text == "from another"
        wise = agent(name="sage", model="other/z", persona="Be wise.", memory=QUIET)
        fork = await engine.fork(first.run_id, agent=wise)
        assert (await engine.wait(fork)).text == "of another agent"
        record = await engine.service.run(fork)
        assert record.agent == "sage"
    one, two = other.requests
    assert (one.model, two.model) == ("y", "z")
    assert one.preamble.system.startswith("Be brave.")
    assert two.preamble.system.startswith("Be wise.")
    assert list_texts(one) == list_texts(two) == list_texts(model.requests[1])
    assert two.preamble.tools == ()


class SigningModel:
    """A provider that signs its thoughts. Implements `Model`."""

    async def reply(self, request: ModelRequest, show: Show) -> Completed | Failed:
        if any(message.role == "tool" for message in request.conversation.messages):
            return Completed(say("done").calls, "end_turn", Usage(1, 1))
        thought = Thinking("hm", request.provider, request.model, "signed")
        return Completed((thought, call("look", at="it")), "tool_use", Usage(1, 1))


async def test_reasoning_is_kept_for_the_model_it_came_from(tmp_path: Path) -> None:
    desk = CountingTools()
    model = ScriptedModel(say("again"))

    async with opened(tmp_path, SigningModel()) as engine:
        engine.add_model("other", model)
        first = await engine.run(hero(desk, limits={"max_steps": 2}), "Look.")
        await engine.wait(await engine.fork(first.run_id, model="other/y", step=2))
    thoughts = [part for m in model.requests[0].conversation.messages for part in m.parts
                if isinstance(part, Thinking)]  # fmt: skip
    assert thoughts
    assert not any(thought.belongs_to("other", "y") for thought in thoughts)
    assert all(thought.belongs_to("scripted", "x") for thought in thoughts)


async def test_the_next_run_of_its_session_sees_the_conversation_once(tmp_path: Path) -> None:
    desk = CountingTools()
    model = ScriptedModel(ask(call("look", at="it")), say("done"), say("again"), say("more"), say("and more"))

    async with opened(tmp_path, model) as engine:
        first = await engine.run(hero(desk), "Look.")
        fork = await engine.wait(await engine.fork(first.run_id))
        await engine.run(hero(desk), "And?", session=fork.session_id)
    async with opened(tmp_path, model) as engine:  # which has nothing of it in memory
        engine.add_tools(*desk.tools)
        await engine.run(hero(desk), "And then?", session=fork.session_id)
    assert list_texts(model.requests[3]) == ["Look.", "", "", "again", "And?"]
    assert list_texts(model.requests[4]) == ["Look.", "", "", "again", "And?", "more", "And then?"]


async def test_the_fork_is_restored_after_a_crash_without_the_old_run(tmp_path: Path) -> None:
    desk = CountingTools()

    model = ScriptedModel(ask(call("send_mail", to="ada")), say("done"), Silence("half"))
    async with opened(tmp_path, model) as engine:
        first = await engine.run(hero(desk), "Write to Ada.")
        fork = await engine.fork(first.run_id)
        await until(engine, fork, "token")
        sent = model.requests[-1]
        await engine.context.retention.delete_session(first.session_id, "a test")
    again = ScriptedModel(say("I have sent the mail to Ada."))
    async with opened(tmp_path, again) as engine:
        engine.add_tools(*desk.tools)
        result = await engine.wait(fork)
        with pytest.raises(UnknownRun, match="deleted"):
            await engine.fork(first.run_id)
    assert (result.text, result.unverified_claim) == ("I have sent the mail to Ada.", "")
    assert again.requests[0].conversation.messages == sent.conversation.messages
    assert desk.sent == ["ada"]


async def test_calls_of_the_old_run_support_a_claim_of_the_fork(tmp_path: Path) -> None:
    desk = CountingTools()
    model = ScriptedModel(
        ask(call("send_mail", to="ada")), say("done"), say("I have sent the mail."), say("I have sent the mail."),
        say("I have sent nothing."),
    )  # fmt: skip

    async with opened(tmp_path, model) as engine:
        first = await engine.run(hero(desk), "Write to Ada.")
        borne_out = await engine.fork(first.run_id, step=2)
        assert (await engine.wait(borne_out)).unverified_claim == ""
        not_yet = await engine.fork(first.run_id, step=1)
        assert (await engine.wait(not_yet)).text == "I have sent nothing."
        events = await journal(engine, not_yet)
        assert [event for event in events if isinstance(event.data, PhantomAction)]


async def test_a_fork_of_a_looping_run_keeps_its_guard_counts(tmp_path: Path) -> None:
    """Also through a fork of a fork."""
    desk = CountingTools()
    same = ask(call("look", at="it"))
    model = ScriptedModel(same, same, say("done"), say("hm"), same, say("well"))

    async with opened(tmp_path, model) as engine:
        first = await engine.run(hero(desk), "Look.")
        once = await engine.fork(first.run_id, step=3)
        await engine.wait(once)
        twice = await engine.fork(once, step=1)
        await engine.wait(twice)
        events = await journal(engine, twice)
    blocked = [event.data for event in events if isinstance(event.data, ToolCallBlocked)]
    assert [block.guard for block in blocked] == ["loop"], "the third time it would bring the same"
    assert desk.sent == ["it", "it"]
    note = list_texts(model.requests[2])[-1]
    assert "brought the same result again" in note
    assert list_texts(model.requests[3])[-1] == list_texts(model.requests[4])[-1] == note


async def test_an_answer_that_was_cut_is_continued(tmp_path: Path) -> None:
    model = ScriptedModel(say("The first half", stop="max_tokens"), say(" and more."), say(" and the second."))

    async with opened(tmp_path, model) as engine:
        first = await engine.run(agent(memory=QUIET), "Tell.")
        fork = await engine.wait(await engine.fork(first.run_id))
    assert fork.text == "The first half and the second."


def test_a_summarized_conversation_is_forked_as_the_model_saw_it() -> None:
    def answer(request: ModelRequest) -> ScriptStep:
        if is_summary(request):
            return say("They talked at length.", usage=UNCOUNTED)
        asked.append([*request.conversation.messages])
        turn = len(asked)
        return ask(call("long", f"c{turn}", n=turn), usage=UNCOUNTED) if turn < 12 else say("so", usage=UNCOUNTED)

    @treadle.tool(effect="read")
    async def long(n: int) -> str:
        """Look for long."""
        return f"{n} {WORDS * 8}"

    asked: list[list[Message]] = []

    async def scenario() -> None:
        async with in_virtual_time(FunctionModel(answer)) as engine:
            first = await engine.run(agent(tools=[long], memory=QUIET, **SMALL), "Look.")
            events = await journal(engine, first.run_id)
            assert any(isinstance(event.data, ContextCompacted) for event in events)
            steps = [event.data.step for event in events if isinstance(event.data, LlmRequest)]
            seen = [*asked]
            for step in (1, len(steps) // 2, len(steps)):
                fork = await engine.fork(first.run_id, step=step)
                await engine.wait(fork)
                shown = await engine.service.prompt(fork, 1)
                assert shown.request.conversation.messages[: len(seen[step - 1])] == seen[step - 1]

    virtually(scenario())


async def test_a_truncated_result_can_be_recalled_in_the_fork(tmp_path: Path) -> None:
    desk = CountingTools()
    model = ScriptedModel(
        ask(call("fetch")), say("done"), ask(call("recall", call_id="call_fetch", start=100_000)), say("read")
    )

    async with opened(tmp_path, model) as engine:
        reader = agent(tools=[*desk.tools, "recall"], memory=QUIET)
        first = await engine.run(reader, "Fetch.")
        fork = await engine.fork(first.run_id)
        await engine.context.retention.delete_session(first.session_id, "a test")
        assert (await engine.wait(fork)).text == "read"
    told = str(model.requests[-1].conversation.messages[-1].parts[0])
    assert "line\\nline" in told


async def test_notes_and_memories_of_the_system_prompt_stay_as_they_were(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "AGENTS.md").write_text("the first notes")
    model = ScriptedModel(say("Ada likes tea"), say("tea"), say("tea again"), say("other"))
    memory = {"place": "system", "embedder": "none"}

    async with opened(tmp_path, model) as engine:
        one = agent(workspace=work, memory=memory)
        await engine.run(one, "What does Ada like?", user="ada")
        second = await engine.run(one, "What is it that Ada likes?", user="ada")
        (work / "AGENTS.md").write_text("the second notes")
        fork = await engine.fork(second.run_id)
        await engine.wait(fork)
        other = await engine.fork(second.run_id, agent=agent(persona="Another.", workspace=work, memory=QUIET))
        await engine.wait(other)
        events = await journal(engine, fork)
    old, again, changed = model.requests[1:]
    assert "likes tea" in old.preamble.system
    assert again.preamble.system == old.preamble.system
    assert again.conversation.messages == old.conversation.messages
    assert "the second notes" in changed.preamble.system
    assert "likes tea" not in changed.preamble.system
    assert [event.data.notes for event in events if isinstance(event.data, RunStart)] != [""]


async def test_secrets_that_were_added_later_are_redacted(tmp_path: Path) -> None:
    desk = CountingTools()
    model = ScriptedModel(ask(call("send_mail", to="hunter2-hunter2")), say("done"), say("again"))

    async with opened(tmp_path, model) as engine:
        first = await engine.run(hero(desk), "The word is hunter2-hunter2.")
    with closing(VaultStore(tmp_path / "home", {})) as vault:
        vault.put("KEY", "hunter2-hunter2", (SecretGrant("hero"),))
    async with opened(tmp_path, model) as engine:
        engine.add_tools(*desk.tools)
        fork = await engine.fork(first.run_id, message="And hunter2-hunter2?")
        await engine.wait(fork)
        events = await journal(engine, fork)
    assert not any(b"hunter2" in event.raw for event in events)
    assert "redacted" in {event.type for event in events}


async def test_a_key_makes_one_fork(tmp_path: Path) -> None:
    model = FunctionModel(lambda _: say("so"))

    async with opened(tmp_path, model) as engine:
        first = await engine.run(agent(memory=QUIET), "Go.")
        one = await engine.fork(first.run_id, key="k")
        assert await engine.fork(first.run_id, key="k") == one
        assert await engine.fork(first.run_id) != one
        assert len(await engine.service.runs()) == 3


async def test_a_run_in_progress_can_be_forked(tmp_path: Path) -> None:
    desk = CountingTools()
    model = ScriptedModel(ask(call("look", at="it")), Silence("hm"), say("faster"))

    async with opened(tmp_path, model) as engine:
        slow = await engine.submit(hero(desk), "Look.")
        await until(engine, slow, "token")
        fork = await engine.fork(slow, step=2)
        assert (await engine.wait(fork)).text == "faster"
        assert (await engine.service.run(slow)).outcome is None
        await engine.cancel(slow)
        await engine.wait(slow)


async def test_a_run_that_cannot_be_forked_is_refused_with_the_reason(tmp_path: Path) -> None:
    model = FunctionModel(lambda _: say("so"))

    async with opened(tmp_path, model) as engine:
        one = agent(memory=QUIET)
        first = await engine.run(one, "Go.")
        command = await engine.run(one, "/pin this", session=first.session_id)
        with pytest.raises(InvalidState, match="/pin this"):
            await engine.fork(command.run_id)
        with pytest.raises(UsageError, match="its steps are 1 to 1"):
            await engine.fork(first.run_id, step=2)
        for step in (0, -1):
            with pytest.raises(UsageError, match="counted from 1"):
                await engine.fork(first.run_id, step=step)
        with pytest.raises(UnknownRun):
            await engine.fork("run_nothing")
        with pytest.raises(UsageError, match="empty"):
            await engine.fork(first.run_id, message=" ")
        with pytest.raises(UsageError, match="no name"):
            await engine.fork(first.run_id, model=" ")
        with pytest.raises(UnknownModel):
            await engine.fork(first.run_id, model="nobody/there")
        with pytest.raises(UsageError, match="no tool"):
            await engine.fork(first.run_id, agent=AgentSpec("hero", "scripted/x", tools=("nonsense",)))
        await engine.service.set_agent_state("hero", "paused")
        with pytest.raises(InvalidState, match="paused"):
            await engine.fork(first.run_id)
        assert len(await engine.service.runs()) == 2


async def test_a_run_that_asked_no_model_has_nothing_to_fork(tmp_path: Path) -> None:
    async with opened(tmp_path, FunctionModel(lambda _: Silence("hm"))) as engine:
        one = agent(memory=QUIET)
        first = await engine.submit(one, "Go.", session="ses_x")
        await until(engine, first, "token")
        behind = await engine.submit(one, "And?", session="ses_x")
        with pytest.raises(UsageError, match=r"called no model.*treadle runs show"):
            await engine.fork(behind)
        await engine.cancel(behind)
        await engine.cancel(first)
        await engine.wait(behind)
        with pytest.raises(UsageError, match="called no model"):
            await engine.fork(behind)


async def test_quotas_apply_to_forks_too(tmp_path: Path) -> None:
    async with opened(tmp_path, FunctionModel(lambda _: say("so", usage=Usage(5000, 10)))) as engine:
        one = agent(memory=QUIET, quotas={"max_llm_tokens_per_hour": 4000}, model_settings={"max_tokens": 100})
        first = await engine.run(one, "Go.")
        with pytest.raises(QuotaExceeded):
            await engine.fork(first.run_id)


async def test_a_fork_of_a_routed_run_goes_to_the_same_model(tmp_path: Path) -> None:
    desk = CountingTools()
    large = ScriptedModel(ask(call("look", at="it")), say("done"), say("again"))

    async with opened(tmp_path, ScriptedModel()) as engine:
        engine.add_model("large", large)
        tiers = [{"model": "scripted/small", "upto": 10}, {"model": "large/x"}]
        first = await engine.run(hero(desk, routing={"tiers": tiers}), "words " * 500)
        fork = await engine.fork(first.run_id)
        assert (await engine.wait(fork)).text == "again"
        [queued, *_] = await journal(engine, fork)
        assert isinstance(queued.data, RunQueued)
        assert not [event for event in await journal(engine, fork) if isinstance(event.data, ToolCallStart)]


async def test_a_fork_of_a_fork_replaces_only_the_question(tmp_path: Path) -> None:
    """Only what was asked makes way, never the results of the steps before."""
    desk = CountingTools()
    script: list[ScriptedReply] = [ask(call("look", at="it")), say("done"), *[say("so")] * 4]
    model = ScriptedModel(*script)

    async with opened(tmp_path, model) as engine:
        first = await engine.run(hero(desk), "Look.")
        for step, expected in ((1, ["Other."]), (2, ["Look.", "", "", "Other."])):
            fork = RunId(await engine.fork(first.run_id, step=step))
            await engine.wait(fork)
            again = await engine.fork(fork, step=1, message="Other.")
            await engine.wait(again)
            assert list_texts(model.requests[-1]) == expected
