"""Answers of schedules that go to a channel, and agents that send messages with approvals."""

import asyncio
from pathlib import Path
from typing import Any, cast

from bench.channel_idle import fill

from tests.channels.home import AGENT, Chat, chatting
from tests.channels.test_telegram import ANNA, perform
from treadle.domain.events import ApprovalRequested
from treadle.domain.messages import user
from treadle.operations.approval_service import Answer
from treadle.operations.schedules import NewSchedule
from treadle.operations.submissions import Submission
from treadle.testing.models import FunctionModel, ScriptedModel, ask, call, say

RECIPIENTS = {"anna": {"to": str(ANNA), "agents": ["hero"]}}


def test_a_schedule_delivers_its_answers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with chatting(tmp_path, FunctionModel(lambda _: say("the news")), recipients=RECIPIENTS) as chat:
            automation = chat.engine.context.automation()
            async with automation.run_in_background():
                new = NewSchedule("hero", "news", 1, deliver="telegram:anna")
                schedule = await automation.schedules.add(new)
                await chat.says(ANNA, "the news")
                await automation.schedules.remove(schedule.schedule_id)
            runs = await chat.engine.context.service.runs()
            assert chat.fake.texts(ANNA).count("the news") <= len(runs), "each answer once"

    perform(scenario())


def test_an_agent_sends_after_an_approval(tmp_path: Path) -> None:
    async def scenario() -> None:
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

    perform(scenario())


def test_a_thousand_idle_conversations_have_no_tasks_and_timers(tmp_path: Path) -> None:
    """`python -m bench.channel_idle` measures their CPU."""

    async def scenario() -> None:
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

    perform(scenario())


async def answer_and_count(chat: Chat) -> tuple[int, int]:
    """Let a message be answered. Return how many tasks and timers there are afterwards."""
    await chat.fake.write(ANNA, "hi")
    await chat.says(ANNA, "ok")
    await quiet()
    timers = cast("Any", asyncio.get_running_loop())._scheduled
    return len(asyncio.all_tasks()), len([timer for timer in timers if not timer.cancelled()])


async def quiet() -> None:
    """Wait until the tasks of the last answer have ended."""
    for _ in range(200):
        await asyncio.sleep(0.005)
        if not any("_FollowedRun" in repr(task) for task in asyncio.all_tasks()):
            return
