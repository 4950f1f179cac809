"""The heartbeat of an agent: read from its file, run in its own session, and left out of the conversation if the
agent did not answer."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, closing
from pathlib import Path

import treadle
from tests.engine.running import journal, opened
from treadle.api.engine import HostedEngine
from treadle.automation.scheduler import Scheduler
from treadle.bootstrap.automation import HomeAgentReader
from treadle.config.home import Home
from treadle.domain.events import HeartbeatFired, LlmRequest, RunEnd, UserMessage
from treadle.domain.ids import RunId
from treadle.operations.retention import Deleted
from treadle.ports.journal import ALL_RUNS
from treadle.stores.sqlite.automation import SqliteSchedules
from treadle.stores.sqlite.connection import open_database
from treadle.stores.sqlite.writer import InlineWriter
from treadle.testing.models import ScriptedModel, ask, call, say
from treadle.testing.time import CountingIds, FakeClock

HEARTBEAT = "name: hero\nmodel: scripted/x\nmemory: {recall: 0, remember: false}\n"


@treadle.tool
async def post() -> str:
    """Post something."""
    return "posted"


class HeartbeatScenario:
    """An engine with a scheduler that polls when a test says so."""

    def __init__(self, engine: HostedEngine, schedules: SqliteSchedules, home: Home, clock: FakeClock) -> None:
        self.engine = engine
        self.schedules = schedules
        self.clock = clock
        self.home = home
        self._scheduler = Scheduler(schedules, engine.service, HomeAgentReader(home).all, clock, CountingIds())

    def write(self, more: str) -> None:
        folder = self.home.path / "agents" / "hero"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.yaml").write_text(HEARTBEAT + more)

    async def after(self, seconds: float) -> list[treadle.Result]:
        """Move the clock, and return the results of the runs that started."""
        before = {record.origin.run_id for record in await self.engine.service.runs(ALL_RUNS, 1000)}
        self.clock.pass_time(seconds)
        await self._scheduler.fire_due()
        now = [record.origin.run_id for record in await self.engine.service.runs(ALL_RUNS, 1000)]
        return [await self.engine.wait(run_id) for run_id in reversed(now) if run_id not in before]


@asynccontextmanager
async def start_heartbeats(folder: Path, model: ScriptedModel) -> AsyncGenerator[HeartbeatScenario, None]:
    clock = FakeClock()
    async with opened(folder, model, clock=clock) as engine:
        with closing(open_database(f"{folder}/t.db")) as connection:
            schedules = SqliteSchedules(InlineWriter(connection))
            yield HeartbeatScenario(engine, schedules, Home(folder / "home"), clock)


def list_messages(model: ScriptedModel) -> list[list[str]]:
    return [[message.text for message in request.conversation.messages] for request in model.requests]


async def first_end(engine: HostedEngine) -> RunId:
    """Return the first run that ends."""
    async with aclosing(engine.service.feed(0)) as feed:
        async for placed in feed:
            if isinstance(placed.event.data, RunEnd):
                return placed.event.run_id
    raise AssertionError("the feed has no end")


async def test_a_heartbeat_uses_one_session_and_silent_runs_are_left_out(tmp_path: Path) -> None:
    model = ScriptedModel(say("The door is open."), say("NO_REPLY"), say("[SILENT]"), say("It is shut again."))

    async with start_heartbeats(tmp_path, model) as beats:
        beats.write("heartbeat: {every: 15m, message: 'Is the door open?'}\n")
        assert await beats.after(0) == [], "it begins to count when it is found"
        results = [result for _ in range(4) for result in await beats.after(900)]
        assert [result.outcome for result in results] == ["completed", "silent", "silent", "completed"]
        assert len({result.session_id for result in results}) == 1
        events = await journal(beats.engine, results[0].run_id)
        assert [event.type for event in events][:3] == ["run_queued", "heartbeat_fired", "user_message"]
    asked = "Is the door open?"
    assert list_messages(model) == [[asked], *[[asked, "The door is open.", asked]] * 3]


async def test_a_silent_run_is_still_left_out_after_a_restart(tmp_path: Path) -> None:
    model = ScriptedModel(say("NO_REPLY"), say("hello"))

    async with start_heartbeats(tmp_path, model) as beats:
        beats.write("heartbeat: {every: 60, message: 'Anything?'}\n")
        await beats.after(0)
        [silent] = await beats.after(60)
    async with start_heartbeats(tmp_path, model) as beats:
        hero = beats.home.agent("hero")
        await beats.engine.run(hero, "hi", session=silent.session_id)
    assert list_messages(model)[1] == ["hi"]


async def test_the_message_of_a_person_is_not_left_out(tmp_path: Path) -> None:
    gate, reached = asyncio.Event(), asyncio.Event()

    @treadle.tool(effect="read")
    async def look() -> str:
        reached.set()
        await gate.wait()
        return "seen"

    model = ScriptedModel(ask(call("look")), say("NO_REPLY"), say("yes"))

    async with start_heartbeats(tmp_path, model) as beats:
        beats.engine.add_tools(look)
        beats.write("tools: [look]\nheartbeat: {every: 60, message: 'Anything?'}\n")
        await beats.after(0)
        waiting = asyncio.ensure_future(beats.after(60))
        await reached.wait()
        [record] = await beats.engine.service.list_unfinished()
        await beats.engine.steer(record.origin.run_id, "Remember the milk.")
        gate.set()
        await waiting
        await beats.engine.run(beats.home.agent("hero"), "hi", session=record.origin.session_id)
    assert "Remember the milk." in str(list_messages(model)[-1])


async def test_a_heartbeat_follows_changes_of_the_agent_file(tmp_path: Path) -> None:
    model = ScriptedModel(*[say("yes")] * 4)

    async with start_heartbeats(tmp_path, model) as beats:
        beats.write("heartbeat: {every: 60, message: 'One?'}\n")
        await beats.after(0)
        [first] = await beats.after(60)
        beats.write("heartbeat: {every: 60, message: 'Two?'}\n")
        [second] = await beats.after(60)
        beats.write("heartbeat: {every: 1h, message: 'Two?'}\n")
        assert await beats.after(60) == []
        [third] = await beats.after(3600)
        beats.write("model_settings: {max_tokens: never}\n")
        assert await beats.after(10) == [], "a file that is wrong for a moment changes nothing"
        [kept] = await beats.schedules.list()
        assert kept.session_id == third.session_id == second.session_id == first.session_id
        beats.write("")
        assert await beats.after(7200) == []
        assert await beats.schedules.list() == []
    assert [request[-1] for request in list_messages(model)] == ["One?", "Two?", "Two?"]


async def test_a_deleted_heartbeat_session_is_replaced_by_a_new_one(tmp_path: Path) -> None:
    model = ScriptedModel(say("one"), say("two"))

    async with start_heartbeats(tmp_path, model) as beats:
        beats.write("heartbeat: {every: 60, message: 'Anything?'}\n")
        await beats.after(0)
        [first] = await beats.after(60)
        deleted = await beats.engine.context.retention.delete_session(first.session_id, "me")
        assert isinstance(deleted, Deleted)
        [second] = await beats.after(60)
        assert second.session_id != first.session_id
        assert list_messages(model)[1] == ["Anything?"]


async def test_a_heartbeat_asks_no_user_and_calls_that_need_approval_are_denied(tmp_path: Path) -> None:
    model = ScriptedModel(ask(call("post")), say("I could not."))

    async with start_heartbeats(tmp_path, model) as beats:
        beats.engine.add_tools(post)
        beats.write(
            "tools: [post]\napprovals: {default: ask}\nheartbeat: {every: 60, message: 'Post something.'}\n"
        )
        await beats.after(0)
        [result] = await beats.after(60)
        assert result.outcome == "completed"
        types = [event.type for event in await journal(beats.engine, result.run_id)]
        assert "tool_call_error" in types
        assert "approval_requested" not in types
        assert "tool_call_start" not in types


async def test_the_agents_of_a_home_fire_while_the_engine_is_at_work(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(*[say("yes")] * 50)) as engine:
        folder = tmp_path / "home" / "agents" / "hero"
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(f"{HEARTBEAT}heartbeat: {{every: 1, message: 'Well?'}}\n")
        async with engine.context.automation().run_in_background():
            run_id = await first_end(engine)
        events = await engine.service.page(run_id)
        assert isinstance(events[1].data, HeartbeatFired)
        assert isinstance(events[2].data, UserMessage)
        assert events[2].data.message.text == "Well?"
        [request] = [event.data for event in events if isinstance(event.data, LlmRequest)]
        assert request.preface.endswith(" UTC; a scheduled message]"), "the agent knows the time"
