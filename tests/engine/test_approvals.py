"""Approvals: a parked run holds nothing, survives a restart, and runs exactly what was approved."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.engine.running import agent, in_virtual_time, journal, opened, types, until, virtually
from tests.observed import all_told
from tests.patience import HANG_SECONDS
from treadle.api.engine import HostedEngine
from treadle.domain.envelope import Event
from treadle.domain.errors import InvalidState, UsageError
from treadle.domain.events import ApprovalDecided, ApprovalRequested, RunWaiting, ToolCallStart
from treadle.domain.ids import RunId
from treadle.testing.models import ScriptedModel, ask, call, say

ASKS: dict[str, Any] = {"approvals": {"default": "ask"}}
TERMINAL: dict[str, Any] = {"asker": "terminal"}


class Post:
    """A tool that must not be called without leave, and the letters that it has posted."""

    def __init__(self) -> None:
        self.letters: list[str] = []

        @treadle.tool
        async def post(letter: str) -> str:
            """Post a letter."""
            self.letters.append(letter)
            return f"posted {letter}"

        self.tool = post


async def wait_for_approval(engine: HostedEngine, run_id: str) -> ApprovalRequested:
    await until(engine, run_id, "run_waiting")
    requests = [event.data async for event in engine.service.read_stored(RunId(run_id))]
    [request] = [data for data in requests if isinstance(data, ApprovalRequested)]
    return request


async def idle(engine: HostedEngine) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while engine.busy:  # noqa: ASYNC110 -- no event reports that a run was released
            await asyncio.sleep(0.01)


def read_last_result(model: ScriptedModel) -> str:
    [result] = all_told(model.requests[-1].conversation.messages[-1].parts)
    return result.content


def letter(text: str) -> Any:
    return ask(call("post", "c1", letter=text))


async def test_an_approved_call_runs_once(tmp_path: Path) -> None:
    post, model = Post(), ScriptedModel(letter("hello"), say("done"))

    async with opened(tmp_path, model) as engine:
        run_id = await engine.submit(agent(tools=[post.tool], **ASKS), "go", **TERMINAL)
        request = await wait_for_approval(engine, run_id)
        assert post.letters == []
        assert (request.name, request.arguments) == ("post", '{"letter":"hello"}')
        await engine.decide(request.approval_id, "approve", by="ada")
        result = await engine.wait(run_id)
        assert (result.text, post.letters) == ("done", ["hello"])
        events = await journal(engine, run_id)
        assert types(events).count("tool_call_start") == 1


async def test_a_denied_call_does_not_run_and_the_model_is_told_not_to_retry(tmp_path: Path) -> None:
    post, model = Post(), ScriptedModel(letter("hello"), say("done"))

    async with opened(tmp_path, model) as engine:
        run_id = await engine.submit(agent(tools=[post.tool], **ASKS), "go", **TERMINAL)
        await engine.decide((await wait_for_approval(engine, run_id)).approval_id, "deny", note="not to her")
        await engine.wait(run_id)
    assert post.letters == []
    assert "not to her" in read_last_result(model)
    assert "Do not try this call again" in read_last_result(model)


async def test_a_pending_approval_survives_a_restart_with_the_same_id(tmp_path: Path) -> None:
    post = Post()

    async with opened(tmp_path, ScriptedModel(letter("hello"))) as engine:
        run_id = await engine.submit(agent(tools=[post.tool], **ASKS), "go", **TERMINAL)
        request = await wait_for_approval(engine, run_id)
        await idle(engine)
    async with opened(tmp_path, ScriptedModel(say("done"))) as engine:
        engine.add_tools(post.tool)
        [waiting] = await engine.service.approvals()
        assert waiting.approval_id == request.approval_id
        assert (await engine.service.run(waiting.origin.run_id)).status == "waiting"
        await engine.decide(request.approval_id, "approve")
        assert (await engine.wait(run_id)).text == "done"
        assert post.letters == ["hello"]
        assert await engine.service.approvals() == []


async def test_only_the_first_decision_counts(tmp_path: Path) -> None:
    post = Post()

    async with opened(tmp_path, ScriptedModel(letter("hello"), say("done"))) as engine:
        run_id = await engine.submit(agent(tools=[post.tool], **ASKS), "go", **TERMINAL)
        approval = (await wait_for_approval(engine, run_id)).approval_id
        answers = await asyncio.gather(
            *(engine.decide(approval, "approve") for _ in range(3)),
            *(engine.decide(approval, "deny") for _ in range(3)),
            return_exceptions=True,
        )
        assert sum(isinstance(answer, InvalidState) for answer in answers) == 5
        await engine.wait(run_id)
        with pytest.raises(InvalidState, match="already"):
            await engine.decide(approval, "deny")
        events = await journal(engine, run_id)
        [decided] = [event.data for event in events if isinstance(event.data, ApprovalDecided)]
        assert post.letters == (["hello"] if decided.decision == "approve" else [])


async def test_edited_arguments_run_and_must_be_valid(tmp_path: Path) -> None:
    post, model = Post(), ScriptedModel(letter("hello"), say("done"))

    async with opened(tmp_path, model) as engine:
        run_id = await engine.submit(agent(tools=[post.tool], **ASKS), "go", **TERMINAL)
        approval = (await wait_for_approval(engine, run_id)).approval_id
        with pytest.raises(UsageError, match="unknown parameter `leter`"):
            await engine.decide(approval, "approve", arguments={"leter": "oops"})
        await engine.decide(approval, "approve", arguments={"letter": "goodbye"})
        await engine.wait(run_id)
        events = await journal(engine, run_id)
    assert post.letters == ["goodbye"]
    [start] = [event.data for event in events if isinstance(event.data, ToolCallStart)]
    assert start.arguments == '{"letter":"goodbye"}'
    assert "A reviewer edited the arguments" in read_last_result(model)
    assert "posted goodbye" in read_last_result(model)


@pytest.mark.parametrize("via", [None, "api"])
async def test_an_approval_without_a_reviewer_is_denied_at_once(tmp_path: Path, via: str | None) -> None:
    """In a program, a schedule or a pipe there is no reviewer, unless the agent says that there is one at the
    API."""
    post, model = Post(), ScriptedModel(letter("hello"), say("done"))

    async with opened(tmp_path, model) as engine:
        run_id = await engine.submit(agent(tools=[post.tool], approvals={"default": "ask", "via": via}), "go")
        if via is not None:
            await engine.decide((await wait_for_approval(engine, run_id)).approval_id, "approve")
        await engine.wait(run_id)
        kinds = types(await journal(engine, run_id))
    assert post.letters == (["hello"] if via else [])
    assert ("approval_requested" in kinds) is (via is not None)
    if via is None:
        assert "no reviewer can be asked" in read_last_result(model)


@pytest.mark.parametrize("on_expiry", ["deny", "end"])
def test_a_pending_approval_expires(on_expiry: str) -> None:
    post, model = Post(), ScriptedModel(letter("hello"), *([say("went on")] if on_expiry == "deny" else []))

    async def scenario() -> None:
        async with in_virtual_time(model) as engine:
            hero = agent(tools=[post.tool], approvals={"default": "ask", "expires": "2h", "on_expiry": on_expiry})
            run_id = await engine.submit(hero, "go", **TERMINAL)
            request = await wait_for_approval(engine, run_id)
            result = await engine.wait(run_id, until="ended")
            assert result.metrics.duration_ms >= 2 * 3_600_000
            with pytest.raises(InvalidState, match="no longer open"):
                await engine.decide(request.approval_id, "approve")
            assert "approval_expired" in types(await journal(engine, run_id))
        assert post.letters == []
        if on_expiry == "deny":
            assert result.text == "went on"
            assert "no reviewer answered in time" in read_last_result(model)
        else:
            assert (result.outcome, result.status) == ("approval_expired", "failed")

    virtually(scenario())


async def test_an_interrupting_message_supersedes_the_approval(tmp_path: Path) -> None:
    post, model = Post(), ScriptedModel(letter("hello"), say("something else"))

    async with opened(tmp_path, model) as engine:
        run_id = await engine.submit(agent(tools=[post.tool], **ASKS), "go", **TERMINAL)
        approval = (await wait_for_approval(engine, run_id)).approval_id
        await engine.steer(run_id, "never mind", mode="interrupt")
        assert (await engine.wait(run_id)).text == "something else"
        with pytest.raises(InvalidState):
            await engine.decide(approval, "approve")
    assert post.letters == []
    conversation = [part for message in model.requests[-1].conversation.messages for part in message.parts]
    assert any("superseded" in getattr(part, "content", "") for part in conversation)
    assert model.requests[-1].conversation.messages[-1].text == "never mind"


async def test_a_cancel_ends_a_pending_approval(tmp_path: Path) -> None:
    post = Post()

    async with opened(tmp_path, ScriptedModel(letter("hello"))) as engine:
        run_id = await engine.submit(agent(tools=[post.tool], **ASKS), "go", **TERMINAL)
        approval = (await wait_for_approval(engine, run_id)).approval_id
        await engine.cancel(run_id)
        assert (await engine.wait(run_id)).outcome == "cancelled"
        with pytest.raises(InvalidState):
            await engine.decide(approval, "approve")
        assert await engine.service.approvals() == []
    assert post.letters == []


async def test_a_session_grant_needs_no_further_approval(tmp_path: Path) -> None:
    post = Post()
    model = ScriptedModel(letter("one"), say("first"), letter("two"), say("second"), letter("three"))

    async with opened(tmp_path, model) as engine:
        hero = agent(tools=[post.tool], **ASKS)
        run_id = await engine.submit(hero, "go", session="ses_a", **TERMINAL)
        await engine.decide((await wait_for_approval(engine, run_id)).approval_id, "approve", remember="session")
        assert (await engine.wait(run_id)).text == "first"
        assert (await engine.run(hero, "again", session="ses_a", **TERMINAL)).text == "second"
        other = await engine.submit(hero, "go", session="ses_b", **TERMINAL)
        await wait_for_approval(engine, other)
        await engine.cancel(other)
    assert post.letters == ["one", "two"]


async def test_a_deny_rule_needs_no_reviewer(tmp_path: Path) -> None:
    post, model = Post(), ScriptedModel(letter("to the king"), letter("to ada"), say("done"))
    rules = [{"tool": "post", "match": "to the *", "do": "deny"}]

    async with opened(tmp_path, model) as engine:
        result = await engine.run(agent(tools=[post.tool], approvals={"rules": rules}), "go")
    assert (result.text, post.letters) == ("done", ["to ada"])


async def test_other_calls_run_while_one_waits_for_approval(tmp_path: Path) -> None:
    """Of calls that may run together, those that need no leave do not wait for it."""
    seen: list[str] = []

    @treadle.tool(effect="read")
    async def look(place: str) -> str:
        """Look."""
        seen.append(place)
        return place

    calls = tuple(call("look", place, place=place) for place in ("hall", "vault", "yard"))
    model = ScriptedModel(ask(*calls), say("done"))
    rules = [{"tool": "look", "match": "vault", "do": "ask"}]

    async with opened(tmp_path, model) as engine:
        run_id = await engine.submit(agent(tools=[look], approvals={"rules": rules}), "go", **TERMINAL)
        request = await wait_for_approval(engine, run_id)
        assert seen == ["hall", "yard"]
        await engine.decide(request.approval_id, "approve")
        await engine.wait(run_id)
    assert seen == ["hall", "yard", "vault"]
    results = all_told(model.requests[-1].conversation.messages[-1].parts)
    assert [result.content for result in results] == ["hall", "vault", "yard"]


async def test_callbacks_may_decide_and_answer(tmp_path: Path) -> None:
    post = Post()
    asked: list[str] = []

    def approve(event: Event) -> Any:
        assert isinstance(event.data, ApprovalRequested)
        asked.append(event.data.arguments)
        return "approve"

    async with opened(tmp_path, ScriptedModel(letter("hello"), say("done"))) as engine:
        callbacks = treadle.Callbacks(on_approval=approve)
        result = await engine.run(agent(tools=[post.tool], **ASKS), "go", callbacks)
    assert (result.text, post.letters, asked) == ("done", ["hello"], ['{"letter":"hello"}'])


async def test_the_wait_names_its_reason(tmp_path: Path) -> None:
    post = Post()

    async with opened(tmp_path, ScriptedModel(letter("hello"))) as engine:
        run_id = await engine.submit(agent(tools=[post.tool], **ASKS), "go", **TERMINAL)
        event = await until(engine, run_id, "run_waiting")
        assert isinstance(event.data, RunWaiting)
        assert event.data.reason == "approval"
        assert "`post` is on ask by default" in event.data.detail
        assert event.data.wake_at is not None
        await engine.cancel(run_id)
