"""PostgreSQL counts usage exactly as SQLite does, with many processes and with faults."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from random import Random
from typing import Any, cast

import pytest

from tests.stores.postgres.harness import opened
from tests.stores.test_accounts import BOUND, DAY, FREE, REQUEST, Desk, Told, metrics_of, reply
from treadle.domain.envelope import Draft
from treadle.domain.events import CompactionFailed, LlmError, ModelResolved, ToolCallStart
from treadle.domain.ids import AgentId, EventId, TokenId
from treadle.domain.runs import Usage
from treadle.operations.usage import sum_usage
from treadle.ports.accounts import Ceilings, Reserve, UsageFilter, Used
from treadle.ports.journal import LEASE_SECONDS, Advance
from treadle.stores.postgres.accounts import PostgresAccounts
from treadle.stores.usage_counts import MAX_UNWRITTEN_SECONDS
from treadle.testing.conformance.store import Recorder
from treadle.testing.time import CountingIds, FakeClock


@asynccontextmanager
async def desk(url: str) -> AsyncGenerator[Desk, None]:
    clock, told = FakeClock(), Recorder()
    async with opened(url, told, clock) as (journal, database, _):
        process = Desk(journal, told, clock, CountingIds(), "worker")
        process.accounts = PostgresAccounts(database, clock.now)
        yield process


async def test_usage_is_by_agent_token_model_and_day(url: str) -> None:
    async with desk(url) as process:
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


async def test_usage_of_a_long_run_is_visible_while_it_is_in_progress(url: str) -> None:
    async with desk(url) as process:
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


async def test_usage_of_refused_appends_is_not_counted(url: str) -> None:
    """Intents that wait for a delivery, and an append that cannot be stored, together with one that can."""

    async with desk(url) as process:
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
async def test_usage_equals_the_sum_of_the_journals(url: str, seed: int) -> None:
    random = Random(seed)
    async with desk(url) as process:
        runs: list[Told] = []
        for agent in (FREE, BOUND, FREE, BOUND):
            runs.append(run := Told(process, await process.begun(agent)))
            for kind, end in random.choices(TURNS, k=8):
                await run.turn(kind, cast("Any", end))
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


async def test_an_account_reports_its_usage_and_shortage(url: str) -> None:
    async with desk(url) as process:
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


async def test_steps_and_runs_of_a_tree_are_counted_permanently(url: str) -> None:
    async with desk(url) as process:
        bound = (Ceilings("tree/one", steps=2, runs=1),)
        claim = await process.begun(BOUND)
        for wanted, refused in ((Reserve(bound, steps=2), None), (Reserve(bound, steps=1), "steps"),
                                (Reserve(bound, runs=1), None), (Reserve(bound, runs=1), "runs")):  # fmt: skip
            advanced = await process.advance(claim, 3, reserve=wanted)
            assert (advanced.refused.kind if advanced.refused else None) == refused
            assert advanced.near == ()
            process.clock.pass_time(7200)


async def test_the_state_of_an_agent_is_shared_by_all_processes(url: str) -> None:
    async with desk(url) as one, desk(url) as two:
        assert await one.accounts.state("hero") == "running"
        assert not await one.accounts.set_state("hero", "paused"), "the agent does not exist yet"
        await one.store.agent("hero", AgentId("agt_1"))
        assert await one.accounts.set_state("hero", "stopped")
        assert await two.accounts.state("hero") == "stopped"
