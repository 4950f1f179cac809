"""Several engines on one database, as in several processes."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path

import pytest

import treadle
from tests.engine.running import agent
from tests.patience import HANG_SECONDS
from tests.telemetry.watched import numbers
from treadle.api.engine import HostedEngine, create_engine
from treadle.backup.home_backup import back_up
from treadle.bootstrap.callers import open_owning_caller, open_persistent_readonly_caller
from treadle.bootstrap.databases import open_stores_readonly
from treadle.bootstrap.offline_service import open_service_readonly
from treadle.bootstrap.stores import ALL, WorkerShare
from treadle.config.home import Home
from treadle.dispatch import local
from treadle.doctor.examination import examine
from treadle.domain.errors import UsageError
from treadle.domain.events import Token
from treadle.domain.version import VERSION
from treadle.engine.client_wait import LINGER_SECONDS
from treadle.operations.system_facts import WorkerView
from treadle.ports.access import CreateToken
from treadle.ports.model import Model
from treadle.telemetry.settings import Telemetry
from treadle.testing.models import FunctionModel, ScriptedModel, ScriptedReply, ask, call, say

NOTHING, ONLY_OWN = WorkerShare(0), WorkerShare(only_own=True)


@asynccontextmanager
async def engine(
    url: str, folder: Path, model: Model | None = None, share: WorkerShare = ALL
) -> AsyncGenerator[HostedEngine, None]:
    made = create_engine(url, home=Home(folder / "home"), share=share, telemetry=Telemetry(metrics=True))
    made.add_model("scripted", model or ScriptedModel())
    async with asyncio.timeout(HANG_SECONDS), made:
        yield made


async def test_a_run_executes_in_another_process_and_is_followed_here(url: str, tmp_path: Path) -> None:
    """With every token and every durable event, each once and in order."""
    text = "one two three four five six seven eight nine ten"

    model = ScriptedModel(ask(call("look")), say(text, seconds=0.02))

    def look() -> str:
        """Look."""
        return "nothing"

    async with engine(url, tmp_path, share=NOTHING) as here, engine(url, tmp_path, model) as there:
        there.add_tools(look)
        here.add_tools(look)
        run_id = await here.submit(agent(tools=["look"]), "hello")
        durable, said = list[int](), ""
        async for event in here.events(run_id):
            if event.durable:
                durable.append(event.sequence)
            elif isinstance(event.data, Token):
                assert event.data.offset == len(said)
                said += event.data.text
        result = await here.wait(run_id)
    assert (result.outcome, result.text) == ("completed", text)
    assert durable == list(range(1, len(durable) + 1))
    assert text.startswith(said)
    assert len(said) > len(text) / 2, "tokens come while they are said; the last may be overtaken by the reply"


async def test_a_message_reaches_a_worker_in_another_process(url: str, tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def answer(request: object) -> ScriptedReply:
        del request
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError("it was not cancelled")

    async with (
        engine(url, tmp_path, share=NOTHING) as here,
        engine(url, tmp_path, FunctionModel(answer)),
    ):
        run_id = await here.submit(agent(), "hello")
        waiting = asyncio.create_task(here.wait(run_id))
        await begun.wait()
        await here.cancel(run_id)
        assert (await waiting).outcome == "cancelled"


async def test_a_command_executes_only_its_own_runs(url: str, tmp_path: Path) -> None:
    async with engine(url, tmp_path, share=NOTHING) as asking:
        of_others = await asking.submit(agent(), "hello")
        async with engine(url, tmp_path, ScriptedModel(say("done"), say("taken up")), ONLY_OWN) as command:
            assert (await command.run(agent(), "mine")).text == "done"
            assert (await asking.service.run(of_others)).status == "pending"
            command.adopt(of_others)
            assert (await command.wait(of_others)).text == "taken up"
        left = await asking.submit(agent(), "hello")
        async with engine(url, tmp_path, ScriptedModel(say("at last"))):
            assert (await asking.wait(left)).text == "at last"


async def test_a_stopping_engine_releases_its_runs_at_a_safe_point_and_another_continues(
    url: str, tmp_path: Path
) -> None:
    """The step under way is brought to its end: nothing is asked or done twice."""

    called = list[str]()
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        """Take your time."""
        called.append("slow")
        begun.set()
        await may_end.wait()
        return "slept"

    async with AsyncExitStack() as opened:
        first = await opened.enter_async_context(engine(url, tmp_path, ScriptedModel(ask(call("slow")))))
        first.add_tools(slow)
        run_id = await first.submit(agent(tools=["slow"]), "hello")
        await begun.wait()
        draining = asyncio.create_task(first.drain(10 * HANG_SECONDS))
        await asyncio.sleep(0)
        may_end.set()
        await draining
        events = [event.type async for event in first.service.read_stored(run_id)]
        assert events[-1] == "tool_call_end"
        second = await opened.enter_async_context(engine(url, tmp_path, ScriptedModel(say("done"))))
        second.add_tools(slow)
        assert (await second.wait(run_id)).text == "done"
        events = [event.type async for event in second.service.read_stored(run_id)]
        assert (called, events.count("llm_request"), "run_recovered" in events) == (["slow"], 2, False)


async def test_read_only_and_maintenance_commands_open_the_database_directly(url: str, tmp_path: Path) -> None:
    home = Home(tmp_path / "home", url)

    async with engine(url, tmp_path, ScriptedModel(say("done"))) as working:
        await working.run(agent(), "hello")
        async with open_service_readonly(home=home) as service:
            [record] = await service.runs()
            assert record.outcome == "completed"
        async with open_owning_caller(home) as caller:
            await caller.context.access.create(CreateToken("mine", ("read",)))
        async with open_persistent_readonly_caller(home) as caller:
            assert [token.name for token in await caller.context.access.list()] == ["mine"]


async def test_each_run_is_counted_by_the_process_that_executes_it(url: str, tmp_path: Path) -> None:
    model = ScriptedModel(say("done"))
    async with engine(url, tmp_path, share=NOTHING) as here, engine(url, tmp_path, model) as there:
        run_id = await here.submit(agent(), "hello")
        await here.wait(run_id)
        wanted = {"treadle_runs_queued_total": 1}, {"treadle_runs_total": 1}
        async with asyncio.timeout(HANG_SECONDS):
            while (_runs(here), _runs(there)) != wanted:  # noqa: ASYNC110 -- no event reports a count
                await asyncio.sleep(0.01)


def _runs(of: HostedEngine) -> dict[str, float]:
    """How many runs it counts: those there are now, those that were asked for, those that have ended; not 0."""
    counted = ("treadle_runs", "treadle_runs_total", "treadle_runs_queued_total")
    found = numbers(of).items()
    sums = {name: sum(value for (each, _), value in found if each == name) for name in counted}
    return {name: value for name, value in sums.items() if value}


async def test_workers_are_listed_while_they_are_connected(url: str, tmp_path: Path) -> None:
    """Idle ones too, with their version and places; not the processes that execute nothing."""

    async def list_idle(here: HostedEngine, wanted: int) -> list[WorkerView]:
        while True:
            found = [each for each in await here.context.system.workers() if each.connected_at is not None]
            if len(found) == wanted:
                return found

    async with engine(url, tmp_path, share=NOTHING) as here:
        assert await list_idle(here, 0) == []
        async with engine(url, tmp_path, share=WorkerShare(7)):
            [found] = await list_idle(here, 1)
            assert (found.runs, found.lease_until, found.version, found.places) == (0, None, VERSION, 7)
            assert found.worker.split(":")[1] == str(os.getpid())
        assert await list_idle(here, 0) == []


def test_a_backup_is_left_to_the_tools_of_the_server(tmp_path: Path) -> None:
    home = Home(tmp_path, "postgresql://me:secret@db.example/treadle")
    with pytest.raises(UsageError, match="pg_dump") as refused:
        back_up(home, tmp_path / "x", replace=False)
    assert "secret" not in str(refused.value)


async def test_many_readers_follow_a_run_of_another_process(url: str, tmp_path: Path) -> None:
    model = FunctionModel(lambda request: say("a b c d e f", seconds=0.01))
    async with engine(url, tmp_path, share=NOTHING) as here, engine(url, tmp_path, model) as there:
        run_id = await here.submit(agent(), "hello")

        async def read(at: HostedEngine) -> list[int]:
            async with aclosing(at.events(run_id)) as events:
                return [event.sequence async for event in events if event.durable]

        found = await asyncio.gather(*(read(at) for at in (here, here, there, here)))
        assert all(numbers == list(range(1, len(found[0]) + 1)) for numbers in found)


async def test_doctor_checks_the_server_and_changes_nothing(url: str, bare: str, tmp_path: Path) -> None:
    async def database(of: str) -> list[tuple[str, str]]:
        found = await examine(Home(tmp_path / "home", of))
        return [(each.state, each.found) for each in found if each.about == "database"]

    [(state, found)] = await database(url)
    assert state == "ok"
    assert "0 runs, 0 of them unfinished, 0 events" in found
    for _ in range(2):
        [(state, found)] = await database(bare)
        assert (state, found.endswith("is empty")) == ("note", True)


async def test_the_concurrency_limit_of_an_agent_holds_over_all_processes(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No run waits for a sweep: there is none."""
    monkeypatch.setattr(local, "SWEEP_SECONDS", 10 * HANG_SECONDS)

    now, most = 0, 0

    async def answer(request: object) -> ScriptedReply:
        nonlocal now, most
        del request
        now, most = now + 1, max(most, now + 1)
        await asyncio.sleep(0.05)
        now -= 1
        return say("done")

    model = FunctionModel(answer)
    async with engine(url, tmp_path, model) as one, engine(url, tmp_path, model) as two:
        runs = [await each.submit(agent(concurrency=2), "go") for each in (one, two) * 5]
        for run_id in runs:
            assert (await one.wait(run_id)).outcome == "completed"
        assert most == 2


@pytest.mark.parametrize("session", ["ses_shared", None], ids=["of a session", "of an agent"])
async def test_a_run_that_waits_for_a_run_of_another_process_starts_after_it(
    url: str, tmp_path: Path, session: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although both take only their own, and the first has left by then."""
    monkeypatch.setattr(local, "SWEEP_SECONDS", 0.1)

    begun, may_end = asyncio.Event(), asyncio.Event()

    async def answer(request: object) -> ScriptedReply:
        del request
        begun.set()
        await may_end.wait()
        return say("done")

    hero = agent(concurrency=1)
    async with engine(url, tmp_path, FunctionModel(answer), ONLY_OWN) as second:
        async with engine(url, tmp_path, FunctionModel(answer), ONLY_OWN) as first:
            one = await first.submit(hero, "go", session=session)
            await begun.wait()
            two = await second.submit(hero, "go", session=session)
            await asyncio.sleep(0.3)
            may_end.set()
            assert (await first.wait(one)).outcome == "completed"
        assert (await second.wait(two)).outcome == "completed"


def test_a_missing_package_is_reported_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("treadle.bootstrap.postgres", "treadle.dispatch.pgqueuer"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delattr("treadle.bootstrap.postgres", raising=False)
    monkeypatch.setitem(sys.modules, "pgqueuer", None)
    with pytest.raises(UsageError, match=r'pgqueuer is not installed.*pip install "treadle\[postgres\]"'):
        open_stores_readonly("postgresql://db.example/treadle")


async def test_a_run_that_waits_for_people_in_another_process_is_found_here(url: str, tmp_path: Path) -> None:
    delegates = ask(call("invoke_agent", agent="hero", message="Look."))
    model = ScriptedModel(ask(call("look")), say("seen"), delegates, ask(call("look")), say("seen"), say("done"))

    def look() -> str:
        """Look."""
        return "nothing"

    hero = agent(tools=[look], approvals={"default": "ask"})
    lead = agent(name="lead", tools=[look, "invoke_agent"])
    async with engine(url, tmp_path, share=NOTHING) as here, engine(url, tmp_path, model) as there:
        for each in (here, there):
            each.add_agents(hero)
        for chosen, text in ((hero, "seen"), (lead, "done")):
            waiting = await here.run(chosen, "go", asker="api")
            [approval] = waiting.approvals
            await here.decide(approval.approval_id, "approve")
            assert (await here.wait(waiting.run_id)).text == text


@pytest.mark.parametrize("pause", [0.0, LINGER_SECONDS + 0.5], ids=["in memory", "released"])
async def test_results_of_the_client_reach_a_run_in_another_process(pause: float, url: str, tmp_path: Path) -> None:
    """Whether the run is in memory there, or released and claimed again."""
    both = ask(call("weather", "c1", day=1), call("weather", "c2", day=2))
    script = [both, ask(call("weather", "c3", day=3)), say("sunny")]
    declared = treadle.ClientTool("weather")
    async with engine(url, tmp_path, share=NOTHING) as here, engine(url, tmp_path, ScriptedModel(*script)):
        result = await here.run(agent(), "hello", client_tools=[declared])
        calls: list[str] = []
        while result.client_calls:
            await asyncio.sleep(pause)
            for asked in result.client_calls:
                calls.append(asked.call_id)
                await here.deliver_result(result.run_id, asked.call_id, "sun")
            result = await here.wait(result.run_id)
        assert (result.text, calls) == ("sunny", ["c1", "c2", "c3"])
