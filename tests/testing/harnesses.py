"""Opens Treadle's own implementations for the conformance checks."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from tests.fake_endpoint import DONE, Answer, Behaviour, FakeEndpoint, delta, fragment, refuses, usage
from tests.models.chat import endpoint
from treadle.dispatch.local import LocalDispatcher
from treadle.domain.ids import Instant
from treadle.models.formats.chat_completions import FORMAT
from treadle.models.http.client import ModelClient
from treadle.models.http.transport import Connections
from treadle.ports.clock import Clock
from treadle.ports.dispatcher import Dispatcher
from treadle.ports.journal import Publisher, Wakes
from treadle.ports.model import Model
from treadle.stores.sqlite.access import SqliteRequests, SqliteTokens
from treadle.stores.sqlite.accounts import SqliteAccounts
from treadle.stores.sqlite.automation import SqliteHooks, SqliteSchedules, SqliteWebhooks
from treadle.stores.sqlite.connection import open_database, open_reader
from treadle.stores.sqlite.deletion import SqliteDeletions
from treadle.stores.sqlite.journal import SqliteJournal
from treadle.stores.sqlite.memory import SqliteMemories
from treadle.stores.sqlite.overview import SqliteOverview
from treadle.stores.sqlite.sessions import SqliteSessions
from treadle.stores.sqlite.sign_ins import SqliteSignIns
from treadle.stores.sqlite.writer import InlineWriter, ThreadWriter
from treadle.testing.conformance.model import (
    ProviderAction,
    ProviderBreak,
    ProviderCalls,
    ProviderRefusal,
    ProviderSilence,
    ProviderText,
)
from treadle.testing.conformance.store import Store
from treadle.testing.conformance.store_harness import FullStore
from treadle.testing.models import FunctionModel, ScriptedFailure, ScriptedModel, ScriptStep, Silence, ask, say
from treadle.testing.simulation.loop import SimulatedLoop
from treadle.testing.time import LoopClock

Result = TypeVar("Result")


def simulated(work: Coroutine[Any, Any, Result], seed: int = 0) -> Result:
    """Run it on a loop with virtual time."""
    with asyncio.Runner(loop_factory=lambda: SimulatedLoop(Random(seed))) as runner:
        return runner.run(work)


# ── Stores ─────────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def opened(path: str, publisher: Publisher, clock: Clock) -> AsyncGenerator[SqliteJournal, None]:
    """Yield a journal on a file, with its threads."""
    writer = ThreadWriter(open_database(path), open_reader(path), path, publisher.on_lost)
    journal = SqliteJournal(writer, publisher, clock)
    try:
        yield journal
    finally:
        await journal.close()


class OnFile:
    """SQLite on a file, committed to by a thread."""

    def __init__(self, folder: Path) -> None:
        self._path = str(folder / "conformance.db")

    @asynccontextmanager
    async def open(self, publisher: Publisher, clock: Clock) -> AsyncGenerator[Store, None]:
        async with opened(self._path, publisher, clock) as journal:
            yield journal


class InMemory:
    """SQLite in memory, committed to by the event loop."""

    def __init__(self) -> None:
        self._disk = open_database(":memory:")

    @asynccontextmanager
    async def open(self, publisher: Publisher, clock: Clock) -> AsyncGenerator[Store, None]:
        yield SqliteJournal(InlineWriter(self._disk), publisher, clock)


class KeptOnFile:
    """SQLite on a file, with the other stores. Implements `KeptHarness`."""

    def __init__(self, folder: Path) -> None:
        self._path = str(folder / "conformance.db")

    @asynccontextmanager
    async def open(self, publisher: Publisher, clock: Clock) -> AsyncGenerator[FullStore, None]:
        writer = ThreadWriter(open_database(self._path), open_reader(self._path), self._path, publisher.on_lost)
        try:
            yield FullStore(
                runs=SqliteJournal(writer, publisher, clock),
                memories=SqliteMemories(writer),
                tokens=SqliteTokens(writer),
                sign_ins=SqliteSignIns(writer),
                requests=SqliteRequests(writer),
                schedules=SqliteSchedules(writer),
                hooks=SqliteHooks(writer),
                webhooks=SqliteWebhooks(writer),
                deletions=SqliteDeletions(writer, self._path, clock),
                sessions=SqliteSessions(writer),
                accounts=SqliteAccounts(writer, clock),
                overview=SqliteOverview(writer),
            )
        finally:
            await writer.close()


# ── Models ─────────────────────────────────────────────────────────────────────────────────────────


def script_step(scene: ProviderAction) -> ScriptStep:
    match scene:
        case ProviderText(text):
            return say(text)
        case ProviderCalls(calls):
            return ask(*calls)
        case ProviderRefusal():
            return ScriptedFailure()
        case ProviderBreak(text):
            return ScriptedFailure("malformed", "the stream broke off", text=text)
        case ProviderSilence(text):
            return Silence(text)


class Scripted:
    @asynccontextmanager
    async def open(self, *scenes: ProviderAction) -> AsyncGenerator[Model, None]:
        with ScriptedModel(*map(script_step, scenes)) as model:
            yield model


class Function:
    @asynccontextmanager
    async def open(self, *scenes: ProviderAction) -> AsyncGenerator[Model, None]:
        steps = list(map(script_step, scenes))
        yield FunctionModel(lambda _: steps.pop(0))


def behaviour(scene: ProviderAction) -> Behaviour:
    match scene:
        case ProviderText(text):
            words = [delta(content=word) for word in text.replace(" ", " \0").split("\0")]
            return Answer([*words, delta(finish="stop"), usage(), DONE])
        case ProviderCalls(calls):
            begun = [delta(tool_calls=[fragment(n, use.call_id, use.name)]) for n, use in enumerate(calls)]
            halves = [
                delta(tool_calls=[fragment(n, arguments=half)])
                for n, use in enumerate(calls)
                for half in (use.arguments[:3], use.arguments[3:])
            ]
            return Answer([*begun, *halves, delta(finish="tool_calls"), usage(), DONE])
        case ProviderRefusal():
            return refuses(500, {"error": {"message": "out of order"}})
        case ProviderBreak(text):
            return Answer([delta(content=text)])
        case ProviderSilence(text):
            return Answer([delta(content=text)], ending="hang")


class OverHttp:
    """The chat_completions adapter, over a real server on loopback."""

    @asynccontextmanager
    async def open(self, *scenes: ProviderAction) -> AsyncGenerator[Model, None]:
        connections = Connections()
        async with FakeEndpoint(*map(behaviour, scenes)) as server:
            try:
                yield ModelClient(FORMAT, endpoint(server.url), connections)
            finally:
                await connections.close()


# ── Dispatchers ────────────────────────────────────────────────────────────────────────────────────


class Local:
    """The dispatcher of one process, by the time of the running loop."""

    def __init__(self) -> None:
        self._clock = LoopClock()

    def make(self, wakes: Wakes, worker: str, concurrency: int) -> Dispatcher:
        return LocalDispatcher(wakes, self._clock, worker, concurrency)

    def now(self) -> Instant:
        return self._clock.now()
