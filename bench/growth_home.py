"""Fills a database with valid journals, as fast as the store writes them.

One real run is the pattern of all others: its events are written again through the journal of the store, with
another message, answer, agent, user, cost and time. What people look for is rare and constant: `NEEDLES` runs,
written first, have an outcome, a user, a cost and a word that no other run has."""

import asyncio
import time
from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from bench.recall_corpus import make_memories
from treadle.api.agent import Agent
from treadle.api.engine import create_engine
from treadle.bootstrap.databases import open_stores
from treadle.domain.envelope import Draft, Event, Origin, decode_data, make_draft
from treadle.domain.events import RunEnd
from treadle.domain.ids import AgentId, EventId, Instant, RunId, SessionId
from treadle.domain.memories import Memory
from treadle.domain.messages import Message, Text, user
from treadle.engine.event_hub import EventHub
from treadle.ports.journal import Advance, Journal, Release
from treadle.system.clock import TimeOrderedIds
from treadle.testing import FakeClock, ScriptedModel, ask, call, say
from treadle.tools.function import tool

AGENTS, USERS, RUNS_PER_SESSION, RUNS_PER_MEMORY = 10, 100, 5, 10
NEEDLES = 10
NEEDLE, NEEDLE_USER, NEEDLE_COST = "zanzibar", "user-099", 99.0
DAY = 86_400.0
SESSIONS_AT_ONCE = 64
WORDS = (
    "invoice",
    "deployment",
    "migration",
    "contract",
    "release",
    "garden",
    "ticket",
    "survey",
    "backup",
    "photo",
)


@tool(effect="read")
def look_up(topic: str) -> str:
    """Look a topic up."""
    return f"{topic}: {'what is known about it, in some words. ' * 4}"


class Pattern(NamedTuple):
    """The events of the run that all others are copies of."""

    events: tuple[Draft, ...]
    end: RunEnd


async def record_pattern(database: str, steps: int) -> Pattern:
    """Execute a run with this many steps, and return its events."""
    calls = [ask(call("look_up", f"call_{number}", topic=f"topic {number}")) for number in range(steps - 1)]
    async with create_engine(database) as engine:
        engine.add_model("scripted", ScriptedModel(*calls, say("ANSWER")))
        agent = Agent("agent-0", model="scripted/any", tools=[look_up])
        result = await engine.run(agent, "QUESTION", user="user-000")
        events = [event async for event in engine.events(result.run_id)]
    end = events[-1].data
    assert isinstance(end, RunEnd)
    return Pattern(tuple(map(_to_draft, events)), end)


def _to_draft(event: Event) -> Draft:
    return Draft(event.event_id, event.timestamp, event.type, event.data, event.raw)


class GrowingHome:
    """A database that is filled step by step."""

    def __init__(self, database: str, pattern: Pattern, begin: Instant) -> None:
        self.database, self.begin, self.runs = database, begin, 0
        self._pattern = pattern
        self._clock = FakeClock(begin)
        self._ids = TimeOrderedIds()
        self._agents: list[AgentId] = []

    async def grow(self, runs: int, days: float) -> float:
        """Add runs until there are this many, over a number of days. Return the seconds that it took."""
        began, first = time.perf_counter(), self.runs
        hub = EventHub(self._clock, self._ids, lambda run_id, at: None)
        stores = await open_stores(self.database, hub, self._clock)
        try:
            self._agents = [
                await stores.runs.agent(f"agent-{number}", AgentId(self._ids("agt"))) for number in range(AGENTS)
            ]
            pace = days * DAY / max(1, runs - first)
            for begin in range(first, runs, RUNS_PER_SESSION * SESSIONS_AT_ONCE):
                end = min(runs, begin + RUNS_PER_SESSION * SESSIONS_AT_ONCE)
                starts = range(begin, end, RUNS_PER_SESSION)
                await asyncio.gather(*(self._fill_session(stores.journal, at, end) for at in starts))
                self._clock.jump(pace * (end - begin))
            await stores.memories.add(list(self._make_memories(first, runs)))
        finally:
            await stores.close()
        self.runs = runs
        return time.perf_counter() - began

    async def _fill_session(self, journal: Journal, begin: int, end: int) -> None:
        number = begin // RUNS_PER_SESSION
        session_id = SessionId(self._ids("ses"))
        for run in range(begin, min(begin + RUNS_PER_SESSION, end)):
            origin = Origin(RunId(self._ids("run")), session_id, self._agents[number % AGENTS])
            await self._write_run(journal, origin, run, number)

    async def _write_run(self, journal: Journal, origin: Origin, run: int, session: int) -> None:
        is_needle = run % RUNS_PER_SESSION == 0 and session < NEEDLES
        owner = NEEDLE_USER if is_needle or session < NEEDLES else f"user-{session % (USERS - 1):03}"
        word = NEEDLE if is_needle else WORDS[run % len(WORDS)]
        question = f"Question {run} about the {word} of the day"
        answer = (
            f"Answer {run}: the {word} is as it was. " + "It needs no attention before the end of the week. " * 4
        )
        texts = {b"QUESTION": question, b"agent-0": f"agent-{session % AGENTS}", b"user-000": owner}
        texts |= {b"ANSWER": answer}
        drafts = [self._copy(draft, texts) for draft in self._pattern.events[:-1]]
        cost = NEEDLE_COST if is_needle else run % 1000 / 10_000
        status, outcome = ("failed", "stuck") if is_needle else ("completed", "completed")
        if not is_needle and run % 100 == 7:
            status, outcome = "failed", "failed"
        metrics = replace(self._pattern.end.metrics, cost=cost)
        end = replace(self._pattern.end, status=status, outcome=outcome, text=answer, metrics=metrics)
        drafts.append(make_draft(EventId(self._ids("evt")), self._clock.now(), end))
        await journal.submit(origin, drafts[:2])
        claim = await journal.claim(origin.run_id, "bench")
        said = Release(said=(user(question), Message("assistant", (Text(answer),))))
        rest = Advance(run_id=origin.run_id, epoch=claim.epoch, seen=2, intents=tuple(drafts[2:]), release=said)
        await journal.advance(rest)

    def _copy(self, draft: Draft, texts: dict[bytes, str]) -> Draft:
        """Return an event with its own id, the time and other texts."""
        raw = draft.raw
        for old, new in texts.items():
            if old in raw:
                raw = raw.replace(old, new.encode())
        data = draft.data if raw is draft.raw else decode_data(draft.type, raw)
        return Draft(EventId(self._ids("evt")), self._clock.now(), draft.type, data, raw)

    def _make_memories(self, first: int, runs: int) -> Iterator[Memory]:
        numbers = range(first, runs, RUNS_PER_MEMORY)
        for number, text in zip(numbers, make_memories(len(numbers), seed=first), strict=True):
            yield Memory(
                memory_id=self._ids("mem"),
                agent_id=self._agents[number // RUNS_PER_MEMORY % AGENTS],
                kind="long_term",
                text=f"{text} ({number})",
                created_at=self._clock.now(),
                owner=f"user-{number // RUNS_PER_MEMORY % (USERS - 1):03}",
            )
