"""A simulated run whose workers die, to check that the engine quarantines it."""

import logging
import random
from collections.abc import Sequence

from treadle.domain.agents import AgentSpec
from treadle.domain.envelope import Origin, make_draft
from treadle.domain.events import EventData, RunQueued
from treadle.domain.ids import AgentId, RunId, SessionId
from treadle.engine import isolation
from treadle.engine.deps import ChildDeps, EngineDeps, ModelDeps, SessionDeps, ToolDeps, Worker
from treadle.engine.event_hub import EventHub
from treadle.engine.isolation import Isolation
from treadle.engine.loop import advance
from treadle.models.registry import ModelRegistry
from treadle.stores.sqlite.connection import open_database
from treadle.stores.sqlite.journal import SqliteJournal
from treadle.stores.sqlite.writer import InlineWriter
from treadle.system.clock import SystemClock, TimeOrderedIds
from treadle.tools.toolbox import ToolRegistry

MAX_DEATHS = 6


async def simulate_deadly_run() -> Sequence[EventData]:
    """Return the events of a run in memory whose workers die one after another without progress.

    The warnings that such deaths cause are silenced: nothing is wrong on this machine."""
    warnings = logging.getLogger(isolation.__name__)
    level = warnings.level
    warnings.setLevel(logging.ERROR)
    clock, ids = SystemClock(), TimeOrderedIds()
    hub = EventHub(clock, ids, lambda run, at: None)
    journal = SqliteJournal(InlineWriter(open_database(":memory:")), hub, clock)
    models, tools = ModelRegistry({}), ToolRegistry()
    deps = EngineDeps(
        worker=Worker(name="doctor", journal=journal, hub=hub, clock=clock, ids=ids, random=random.random),
        models=ModelDeps(models, tools),
        tools=ToolDeps(tools),
        children=ChildDeps(models, tools),
        session=SessionDeps(models),
        isolation=Isolation(hold_seconds=0, gather_seconds=0),
    )
    try:
        origin = Origin(RunId(ids("run")), SessionId(ids("ses")), AgentId(ids("agt")))
        queued = make_draft(ids("evt"), clock.now(), RunQueued(AgentSpec("doctor", "none/missing")))
        await journal.submit(origin, [queued])
        for _ in range(MAX_DEATHS):
            if (await journal.record(origin.run_id)).outcome is None:
                await journal.claim(origin.run_id, "a worker that dies")
                await journal.void_leases()
                await advance(origin.run_id, deps)
        return [event.data for event in await journal.read(origin.run_id)]
    finally:
        warnings.setLevel(level)
        await journal.close()
