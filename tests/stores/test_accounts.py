"""Both stores count usage in the transaction of the events that report it: cheaply, exactly, and despite faults."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from random import Random
from typing import Any, Protocol, cast

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.stores.postgres.harness import opened
from treadle.core.fold import fold_all
from treadle.core.state import new_state
from treadle.domain.agents import AgentSpec, Limits
from treadle.domain.envelope import Draft
from treadle.domain.errors import UsageError
from treadle.domain.events import (
    CompactionFailed,
    CompactionStarted,
    ContextCompacted,
    EventData,
    LlmError,
    LlmRequest,
    LlmResponse,
    ModelResolved,
    RunEnd,
    RunQueued,
    ToolCallStart,
    UserMessage,
)
from treadle.domain.ids import AgentId, EventId, TokenId
from treadle.domain.messages import Text, user
from treadle.domain.quotas import Quotas
from treadle.domain.runs import Metrics, Usage
from treadle.operations.usage import UsageQuery, compute_usage, sum_usage
from treadle.ports.accounts import Accounts, AgentStates, Ceilings, Reserve, UsageFilter, Used
from treadle.ports.journal import LEASE_SECONDS, Advance, Claim, Release
from treadle.stores.postgres.accounts import PostgresAccounts
from treadle.stores.sqlite.accounts import SqliteAccounts
from treadle.stores.sqlite.connection import open_database
from treadle.stores.sqlite.journal import SqliteJournal
from treadle.stores.sqlite.writer import InlineWriter
from treadle.stores.usage_counts import MAX_UNWRITTEN_SECONDS
from treadle.testing.conformance.store import Recorder, StoreProcess, check_refused
from treadle.testing.time import CountingIds, FakeClock

FREE = AgentSpec("free", "p/m")
BOUND = AgentSpec("bound", "p/m", limits=Limits(cost=100.0), quotas=Quotas(credits=1000.0))
RESOLVED = ModelResolved("p", "m", "custom", "why")
REQUEST = LlmRequest(1, 1, "p", "m", 1)
ACCOUNTING = ("accounts", "windows", "reservations", "warnings")
DAY = 86_400


class Books(Accounts, AgentStates, Protocol):
    """What a store of accounts implements."""


class Desk(StoreProcess):
    """A process, with its accounts and with what its connection was told to do."""

    accounts: Books
    statements: list[str]

    async def begun(self, agent: AgentSpec = FREE, token: str | None = None, rate: float = 1.0) -> Claim:
        """Return a run whose model is resolved."""
        queued = RunQueued(agent, token=None if token is None else TokenId(token), credits_per_dollar=rate)
        opening = (self.draft(queued), self.draft(UserMessage(user("hello"))))
        claim = await self.claim(await self.store.submit(self.origin(), opening))
        await self.advance(claim, 2, [RESOLVED])
        return claim

    async def used(self) -> Sequence[Used]:
        return await self.accounts.usage()


@asynccontextmanager
async def open_sqlite_desk() -> AsyncGenerator[Desk, None]:
    database, clock, told = open_database(":memory:"), FakeClock(), Recorder()
    writer = InlineWriter(database)
    process = Desk(SqliteJournal(writer, told, clock), told, clock, CountingIds(), "worker")
    process.accounts, process.statements = SqliteAccounts(writer, clock), []

    def trace(_: object, statement: str, __: object) -> bool:
        process.statements.append(statement)
        return True

    cast("apsw.Connection", database).exec_trace = trace
    yield process
    await process.store.close()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] -- not of the port


@asynccontextmanager
async def open_postgres_desk(url: str) -> AsyncGenerator[Desk, None]:
    clock, told = FakeClock(), Recorder()
    async with opened(url, told, clock) as (journal, database, _):
        process = Desk(journal, told, clock, CountingIds(), "worker")
        process.accounts = PostgresAccounts(database, clock.now)
        yield process


OpenDesk = Callable[[], AbstractAsyncContextManager[Desk]]


@pytest.fixture(params=["sqlite", "postgres"])
def open_desk(request: pytest.FixtureRequest) -> OpenDesk:
    """Return what opens a desk on each store."""
    if request.param == "sqlite":
        return open_sqlite_desk
    return partial(open_postgres_desk, request.getfixturevalue("url"))


def reply(tokens: int = 10, cost: float | None = 0.5, output: int = 5) -> LlmResponse:
    return LlmResponse(
        step=1,
        attempt=1,
        parts=(Text("hello"),),
        stop="end_turn",
        usage=Usage(tokens, output, 3, 2),
        duration_ms=0,
        cost=cost,
    )


# ── How much it costs to count ─────────────────────────────────────────────────────────────────────


async def test_many_runs_that_commit_together_are_counted_with_one_statement() -> None:
    async with open_sqlite_desk() as process:
        claims = [await process.begun() for _ in range(100)]
        process.statements.clear()
        for turn in range(3):
            advances = [process.advance(claim, 3 + 2 * turn, [reply()], [REQUEST]) for claim in claims]
            await asyncio.gather(*advances)
        assert not any("usage" in statement for statement in process.statements), "nothing for a step"
        await asyncio.gather(*(process.end(claim, 9) for claim in claims))
        assert sum("usage" in statement for statement in process.statements) == 1
        [used] = await process.used()
        assert (used.runs, used.model_calls, used.input_tokens, used.cost) == (100, 400, 3000, 150.0)


async def test_a_run_without_ceilings_never_touches_an_account() -> None:
    async with open_sqlite_desk() as process:
        claim = await process.begun()
        process.statements.clear()
        await process.advance(claim, 3, [], [REQUEST])
        await process.advance(claim, 4, [reply()], [ToolCallStart("c", "look", "{}", "key")])
        await process.end(claim, 6)
        for statement in process.statements:
            assert not any(table in statement for table in ACCOUNTING), statement


async def test_usage_of_a_long_run_is_visible_while_it_is_in_progress(open_desk: OpenDesk) -> None:
    async with open_desk() as process:
        claim = await process.begun()
        await process.advance(claim, 3, [reply()])
        assert await process.used() == []
        process.clock.pass_time(MAX_UNWRITTEN_SECONDS)
        await process.advance(claim, 4, [reply()])
        assert [used.model_calls for used in await process.used()] == [2]
        await process.advance(claim, 5, [reply()])
        process.clock.pass_time(LEASE_SECONDS)
        again = await process.claim(claim.origin.run_id)
        await process.end(again, 6)
        assert [used.model_calls for used in await process.used()] == [3], "the last of them from the journal"


# ── What is counted, and for whom ──────────────────────────────────────────────────────────────────


async def test_usage_is_by_agent_token_model_and_day(open_desk: OpenDesk) -> None:
    async with open_desk() as process:
        today = int(process.clock.now() // DAY)
        claim = await process.begun(token="tok_1", rate=10.0)
        await process.advance(claim, 3, [reply(10, 0.5)])
        await process.advance(claim, 4, [ModelResolved("q", "n", "custom", "why"), reply(20, None)])
        process.clock.pass_time(DAY)
        await process.advance(claim, 6, [reply(30, 0.25), ToolCallStart("c", "look", "{}", "key")])
        await process.end(claim, 8)
        assert await process.used() == [
            Used(
                agent="free",
                token=TokenId("tok_1"),
                model="p/m",
                day=today,
                runs=1,
                model_calls=1,
                input_tokens=10,
                output_tokens=5,
                cache_read_tokens=3,
                cache_write_tokens=2,
                tool_calls=0,
                cost=0.5,
                credits=5.0,
            ),
            Used(
                agent="free",
                token=TokenId("tok_1"),
                model="q/n",
                day=today,
                runs=0,
                model_calls=1,
                input_tokens=20,
                output_tokens=5,
                cache_read_tokens=3,
                cache_write_tokens=2,
                tool_calls=0,
                cost=0.0,
                credits=0.0,
                unpriced_calls=1,
            ),
            Used(
                agent="free",
                token=TokenId("tok_1"),
                model="q/n",
                day=today + 1,
                runs=0,
                model_calls=1,
                input_tokens=30,
                output_tokens=5,
                cache_read_tokens=3,
                cache_write_tokens=2,
                tool_calls=1,
                cost=0.25,
                credits=2.5,
            ),
        ]
        found = await process.accounts.usage(UsageFilter(since=today + 1))
        assert [used.input_tokens for used in found] == [30]
        assert await process.accounts.usage(UsageFilter(until=today - 1)) == []
        assert await process.accounts.usage(UsageFilter(agents=("nobody",))) == []


def test_usage_is_summed_up_by_the_requested_key() -> None:
    used = [
        Used(
            agent="a",
            token=None,
            model="p/m",
            day=20_000,
            runs=1,
            model_calls=2,
            input_tokens=30,
            cost=0.5,
            credits=1.0,
        ),
        Used(agent="a", token=TokenId("tok_1"), model="p/n", day=20_001, runs=1, model_calls=1, input_tokens=10),
        Used(
            agent="b",
            token=None,
            model="p/m",
            day=20_001,
            runs=2,
            model_calls=4,
            input_tokens=5,
            cost=0.25,
            credits=0.5,
        ),
    ]

    def told(by: Any) -> list[tuple[str, int, int, float]]:
        return [(line.key, line.runs, line.input_tokens, line.cost) for line in sum_usage(used, by)]

    assert told("agent") == [("a", 2, 40, 0.5), ("b", 2, 5, 0.25)]
    assert told("model") == [("p/m", 3, 35, 0.75), ("p/n", 1, 10, 0.0)]
    assert told("token") == [("", 3, 35, 0.75), ("tok_1", 1, 10, 0.0)]
    assert told("day") == [("2024-10-04", 1, 30, 0.5), ("2024-10-05", 3, 15, 0.25)]


async def test_an_invalid_day_is_refused_with_what_is_accepted() -> None:
    async with open_sqlite_desk() as process:
        said = await check_refused(compute_usage(process.accounts, UsageQuery(since="yesterday")), UsageError)
        assert said == "since is `yesterday`; accepted: a day such as 2026-03-01."


async def test_usage_of_refused_appends_is_not_counted(open_desk: OpenDesk) -> None:
    """Intents that wait for a delivery, and an append that cannot be stored, together with one that can."""

    async with open_desk() as process:
        good, bad = await process.begun(), await process.begun()
        await process.steer(good.origin.run_id)
        refused = await process.advance(good, 3, [reply()], [ToolCallStart("c", "look", "{}", "key")])
        assert not refused.accepted
        broken = Draft(EventId("evt_x"), process.clock.now(), "llm_response", reply(), cast("bytes", "none"))
        attempt = process.store.advance(Advance(bad.origin.run_id, bad.epoch, 3, (broken,)))
        fine, failed = await asyncio.gather(process.advance(good, 5, [reply()]), attempt, return_exceptions=True)
        assert not isinstance(fine, BaseException)
        assert isinstance(failed, BaseException)
        await process.end(good, 6)
        await process.end(bad, 3)
        [used] = await process.used()
        assert (used.runs, used.model_calls, used.input_tokens, used.tool_calls) == (2, 2, 20, 0)


async def test_an_account_reports_its_usage_and_shortage(open_desk: OpenDesk) -> None:
    async with open_desk() as process:
        bound = (Ceilings("agent/bound", tokens=100, cost=5.0), Ceilings("token/poor", cost=0.5))
        claim = await process.begun(BOUND)
        assert await process.accounts.find_shortage(bound) is None
        await process.advance(
            claim,
            3,
            [],
            [REQUEST],
            reserve=Reserve(accounts=bound, step=1, attempt=1, tokens=60, cost=0.25, credits=2.5),
        )
        balance = await process.accounts.balance("agent/bound")
        assert (balance.reserved_tokens, balance.reserved_cost, balance.reserved_credits) == (60, 0.25, 2.5)
        await process.advance(claim, 4, [reply(80, 0.5, 30)])
        balance = await process.accounts.balance("agent/bound")
        assert (balance.tokens, balance.cost, balance.reserved_tokens) == (110, 0.5, 0)
        short = await process.accounts.find_shortage(bound)
        assert short is not None
        assert (short.account, short.kind, short.used) == ("agent/bound", "tokens", 110)
        assert short.resets_at is not None
        process.clock.pass_time(short.resets_at - process.clock.now())
        short = await process.accounts.find_shortage(bound)
        assert short is not None
        assert (short.account, short.kind, short.resets_at) == ("token/poor", "cost", None)


async def test_steps_and_runs_of_a_tree_are_counted_permanently(open_desk: OpenDesk) -> None:
    async with open_desk() as process:
        bound = (Ceilings("tree/one", steps=2, runs=1),)
        claim = await process.begun(BOUND)
        for wanted, refused in ((Reserve(bound, steps=2), None), (Reserve(bound, steps=1), "steps"),
                                (Reserve(bound, runs=1), None), (Reserve(bound, runs=1), "runs")):  # fmt: skip
            advanced = await process.advance(claim, 3, reserve=wanted)
            assert (advanced.refused.kind if advanced.refused else None) == refused
            assert advanced.near == ()
            process.clock.pass_time(7200)


# ── Whatever happens, it adds up ───────────────────────────────────────────────────────────────────

counts = st.integers(0, 1000)
costs = st.one_of(st.none(), st.floats(0, 10, allow_nan=False))
usages = st.builds(Usage, counts, counts, counts, counts)
ends = st.one_of(
    st.builds(LlmResponse, st.just(1), st.just(1), st.just((Text("hi"),)), st.just("end_turn"), usages, counts,
              cost=costs),
    st.builds(LlmError, st.just(1), st.just(1), st.just("server"), st.just("no"), st.just(True), usage=usages,
              cost=costs),
)  # fmt: skip
summaries = st.one_of(
    st.builds(CompactionFailed, st.just("compact"), st.just("threshold"), st.just("no"), usages, counts, costs,
              st.integers(1, 3)),
    st.builds(ContextCompacted, st.just("compact"), st.just("threshold"), st.just(0), st.just(0), st.just(()),
              st.just("so"), st.just(2), st.just(1), st.just("p/m"), usages, counts, costs, st.integers(1, 3)),
)  # fmt: skip
turns = st.one_of(
    st.tuples(st.just("call"), ends),
    st.tuples(st.just("summary"), summaries),
    st.tuples(st.sampled_from(("crash", "give back", "crash while asking", "tools")), st.none()),
)
scenarios = st.lists(st.tuples(st.sampled_from((FREE, BOUND)), st.lists(turns, max_size=8)), min_size=1, max_size=4)


class Told:
    """A run in progress: what its present worker does next."""

    def __init__(self, process: Desk, claim: Claim) -> None:
        self.process = process
        self.claim = claim
        self.seen = 3

    async def add(self, facts: Sequence[EventData], intents: Sequence[EventData] = (), **more: Any) -> None:
        advanced = await self.process.advance(self.claim, self.seen, facts, intents, **more)
        assert advanced.accepted
        self.seen = advanced.sequence

    async def ask(self, request: EventData) -> None:
        accounts = (Ceilings("agent/bound", credits=1e9), Ceilings(f"tree/{self.claim.origin.run_id}", cost=1e9))
        queued = (await self.process.store.read(self.claim.origin.run_id))[0].data
        assert isinstance(queued, RunQueued)
        reserve = (
            Reserve(accounts=accounts, step=1, attempt=1, tokens=100, cost=1.0, credits=1.0)
            if queued.agent.name == "bound"
            else None
        )
        await self.add([], [request], reserve=reserve)

    async def taken_over(self) -> None:
        self.process.clock.pass_time(LEASE_SECONDS)
        self.claim = await self.process.claim(self.claim.origin.run_id)

    async def turn(self, kind: str, end: EventData | None) -> None:
        match kind, end:
            case "call", EventData():
                await self.ask(REQUEST)
                await self.add([end])
            case "summary", EventData():
                await self.ask(
                    CompactionStarted(
                        stage="compact", trigger="threshold", first=0, last=0, provider="p", model="m"
                    )
                )
                await self.add([end])
            case "crash while asking", _:
                await self.ask(REQUEST)
                await self.taken_over()
            case "give back", _:
                await self.ask(REQUEST)
                await self.add([], release=Release(wake_at=self.process.clock.now()))
                await self.taken_over()
            case "tools", _:
                await self.add([], [ToolCallStart(f"c{self.seen}", "look", "{}", "key")])
            case _:
                await self.taken_over()

    async def end(self) -> None:
        await self.add([], [RunEnd("completed", "completed", Metrics())], release=Release())


async def metrics_of(process: Desk, run: Told) -> Metrics:
    """Return the metrics that the journal folds to."""
    events = await process.store.read(run.claim.origin.run_id)
    return fold_all(new_state(run.claim.origin), events).metrics(0.0)


async def check_sums(process: Desk, told: Sequence[tuple[AgentSpec, Sequence[tuple[str, Any]]]]) -> None:
    """Execute runs of so many turns, and compare the counted usage with what their journals fold to."""
    runs: list[Told] = []
    for agent, turns_of_run in told:
        runs.append(run := Told(process, await process.begun(agent)))
        for kind, end in turns_of_run:
            await run.turn(kind, end)
        await run.end()
    found = sum_usage(await process.used(), "agent")
    metrics = [await metrics_of(process, run) for run in runs]
    assert sum(line.runs for line in found) == len(runs)
    assert sum(line.tool_calls for line in found) == sum(each.actions for each in metrics)
    for name in ("model_calls", "input_tokens", "output_tokens", "cache_read_tokens", "unpriced_calls"):
        assert sum(getattr(line, name) for line in found) == sum(getattr(each, name) for each in metrics)
    assert sum(line.cost for line in found) == pytest.approx(sum(each.cost for each in metrics))
    for run in runs:
        balance = await process.accounts.balance(f"tree/{run.claim.origin.run_id}")
        assert balance.reserved_cost == 0


@settings(max_examples=60, deadline=None)
@given(scenarios)
async def test_usage_equals_the_sum_of_the_journals(told: list[tuple[AgentSpec, list[tuple[str, Any]]]]) -> None:
    async with open_sqlite_desk() as process:
        await check_sums(process, told)


TURNS = (
    ("call", reply(7, 0.25)),
    ("call", LlmError(1, 1, "server", "no", True, usage=Usage(5, 1), cost=None)),
    ("summary", CompactionFailed("compact", "threshold", "no", Usage(9), cost=0.5)),
    ("crash", None),
    ("give back", None),
    ("crash while asking", None),
    ("tools", None),
)


@pytest.mark.parametrize("seed", range(4))
async def test_usage_equals_the_sum_of_the_journals_on_postgres(url: str, seed: int) -> None:
    """A database for each generated example would cost too much."""
    random = Random(seed)
    async with open_postgres_desk(url) as process:
        await check_sums(process, [(agent, random.choices(TURNS, k=8)) for agent in (FREE, BOUND, FREE, BOUND)])


async def test_the_state_of_an_agent_is_kept(open_desk: OpenDesk) -> None:
    async with open_desk() as process:
        assert await process.accounts.state("hero") == "running"
        assert not await process.accounts.set_state("hero", "paused"), "the agent does not exist yet"
        await process.store.agent("hero", AgentId("agt_1"))
        assert await process.accounts.set_state("hero", "stopped")
        assert await process.accounts.state("hero") == "stopped"


async def test_the_state_of_an_agent_is_shared_by_all_processes(url: str) -> None:
    async with open_postgres_desk(url) as one, open_postgres_desk(url) as two:
        await one.store.agent("hero", AgentId("agt_1"))
        assert await one.accounts.set_state("hero", "stopped")
        assert await two.accounts.state("hero") == "stopped"
