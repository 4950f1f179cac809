"""Answers of schedules that go to a channel, and agents that send messages with approvals."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from bench.channel_idle import fill
from msgspec.structs import replace

from tests.channels.home import AGENT, Chat, chatting, write_home
from tests.channels.test_telegram import ANNA
from treadle.channels.telegram import Telegram
from treadle.config.home import Home
from treadle.doctor.channels import describe_channels
from treadle.domain.errors import UsageError
from treadle.domain.events import ApprovalRequested
from treadle.domain.messages import user
from treadle.operations.approval_service import Answer
from treadle.operations.automation import NewSchedule
from treadle.operations.channel_manager import ChannelView
from treadle.operations.submissions import Submission
from treadle.testing.models import FunctionModel, ScriptedModel, ask, call, say

RECIPIENTS = {"anna": {"to": str(ANNA), "agents": ["hero"]}}


async def test_a_schedule_delivers_its_answers(tmp_path: Path) -> None:
    async with chatting(tmp_path, FunctionModel(lambda _: say("the news")), recipients=RECIPIENTS) as chat:
        automation = chat.engine.context.automation()
        async with automation.run_in_background():
            new = NewSchedule("hero", "news", 1, deliver="telegram:anna")
            schedule = await automation.schedules.add(new)
            await chat.says(ANNA, "the news")
            await automation.schedules.remove(schedule.schedule_id)
        runs = await chat.engine.context.service.runs()
        assert chat.fake.texts(ANNA).count("the news") <= len(runs), "each answer once"


async def test_answers_go_to_named_recipients_only(tmp_path: Path) -> None:
    """A mistyped name must not become an address, and a schedule may not write to any chat."""

    async with chatting(tmp_path, FunctionModel(lambda _: say("news")), recipients=RECIPIENTS) as chat:
        schedules = chat.engine.context.automation().schedules
        for target in ("telegram:stranger", f"telegram:{ANNA}", "nowhere:anna", "telegram:", "anna"):
            with pytest.raises(UsageError, match="is not a recipient; known: telegram:anna"):
                await schedules.add(NewSchedule("hero", "news", 60, deliver=target))


async def test_a_heartbeat_delivers_its_answers(tmp_path: Path) -> None:
    agent = AGENT + "heartbeat: {every: 1s, message: 'Anything urgent?', deliver: 'telegram:anna'}\n"
    model = FunctionModel(lambda _: say("the house is on fire"))
    async with (
        chatting(tmp_path, model, agent=agent, recipients=RECIPIENTS) as chat,
        chat.engine.context.automation().run_in_background(),
    ):
        await chat.says(ANNA, "the house is on fire")


@pytest.mark.parametrize("target", ["telegram:stranger", "nowhere:anna"])
async def test_doctor_finds_a_heartbeat_whose_answers_are_lost(tmp_path: Path, target: str) -> None:
    agent = AGENT + f"heartbeat: {{every: 1h, message: 'Anything urgent?', deliver: '{target}'}}\n"
    channel = {"agent": "hero", "settings": {"token": "{{vault:T}}"}, "recipients": RECIPIENTS}
    home = Home(write_home(tmp_path, {"telegram": channel}, {"T": "a-long-token"}, agent))
    [state, lost] = await describe_channels(home)
    assert (state.about, state.state) == ("channel telegram", "set")
    assert (lost.about, lost.state) == ("heartbeat of hero", "wrong")
    assert f"`{target}` is not a recipient" in lost.found


@pytest.mark.parametrize(
    ("changes", "state", "found"),
    [
        (
            {"status": "connected", "account": "@bot"},
            "ok",
            "connected as @bot since 2026-11-17 09:30 UTC, 0 people",
        ),
        ({"status": "connected", "account": "@bot", "reason": "limited"}, "note", "connected as @bot: limited"),
        ({"status": "connected", "failed": 3}, "note", "3 messages were given up"),
        (
            {"status": "failed", "reason": "no network"},
            "note",
            "not connected since 2026-11-17 09:30 UTC, reconnecting: no network",
        ),
    ],
)
async def test_doctor_shows_the_state_of_a_channel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], state: str, found: str
) -> None:
    async def read(home: Home) -> list[ChannelView]:
        async with chatting(tmp_path / "other", ScriptedModel()) as chat:
            [view] = await chat.engine.context.channels().list()
            return [replace(view, since=datetime(2026, 11, 17, 9, 30, tzinfo=UTC), **changes)]

    monkeypatch.setattr("treadle.doctor.channels.read_channels", read)
    channel = {"agent": "hero", "settings": {"token": "{{vault:T}}"}}
    home = Home(write_home(tmp_path, {"telegram": channel}, {"T": "a-long-token"}))
    [finding] = await describe_channels(home)
    assert (finding.about, finding.state) == ("channel telegram", state)
    assert found in finding.found


async def test_an_agent_sends_after_an_approval(tmp_path: Path) -> None:
    model = ScriptedModel(ask(call("send_message", to="telegram:anna", text="hi **Anna**")), say("sent"))
    agent = AGENT + "tools: [send_message]\napprovals: {via: api}\n"
    async with chatting(tmp_path, model, agent=agent, recipients=RECIPIENTS) as chat:
        engine = chat.engine
        service = engine.context.service
        spec = engine.context.agents.find("hero")
        ticket = await service.submit(Submission(spec, user("greet Anna")))
        async for event in service.events(ticket.run_id):
            if isinstance(event.data, ApprovalRequested):
                assert chat.fake.texts(ANNA) == []
                await service.decide(event.data.approval_id, Answer("approve"))
        await chat.says(ANNA, "hi Anna")


async def test_a_thousand_idle_conversations_have_no_tasks_and_timers(tmp_path: Path) -> None:
    """`python -m bench.channel_idle` measures their CPU."""

    model = FunctionModel(lambda _: say("ok"))
    async with chatting(tmp_path, model) as chat:
        await chat.admit(ANNA)
        before = await answer_and_count(chat)
        manager: Any = chat.engine.context.channels()
        places = [fill(manager.store, "telegram", f"idle{number}", number) for number in range(1000)]
        await asyncio.gather(*places)
    async with chatting(tmp_path, model) as chat:
        tasks, timers = await answer_and_count(chat)
        assert tasks <= before[0] + 20, "an idle conversation has no task"
        assert timers <= before[1] + 20, "an idle conversation has no timer"


async def answer_and_count(chat: Chat) -> tuple[int, int]:
    """Let a message be answered. Return how many tasks and timers there are afterwards."""
    await chat.fake.write(ANNA, "hi")
    await chat.says(ANNA, "ok")
    await wait_until_idle()
    timers = cast("Any", asyncio.get_running_loop())._scheduled
    return len(asyncio.all_tasks()), len([timer for timer in timers if not timer.cancelled()])


async def wait_until_idle() -> None:
    """Wait until the tasks of the last answer have ended."""
    for _ in range(200):
        await asyncio.sleep(0.005)
        if not any("_FollowedRun" in repr(task) for task in asyncio.all_tasks()):
            return


async def test_a_limited_connection_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Telegram, "limitation", "It is slow.", raising=False)

    async with chatting(tmp_path, FunctionModel(lambda _: say("hello"))) as chat:
        await chat.admit(ANNA)
        manager = chat.engine.context.channels()
        [view] = await manager.list()
        assert (view.status, view.reason) == ("connected", "It is slow.")
        assert await manager.test("telegram") == f"{view.account}. It is slow."
