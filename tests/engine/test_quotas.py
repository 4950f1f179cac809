"""Quotas: usage is reserved before a call and settled after it. A call that does not fit waits, or ends the run
with the reason and the work so far."""

import asyncio
from contextlib import aclosing
from math import inf
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

import treadle
from tests.engine.running import agent, in_a_world, in_virtual_time, journal, opened, types, until, virtually
from treadle.api.engine import HostedEngine
from treadle.core.fold import fold
from treadle.core.guards.quota import judge, reserve_model_call
from treadle.core.state import new_state
from treadle.core.steps import Finish
from treadle.domain.agents import AgentSpec, Limits, ModelSettings
from treadle.domain.envelope import Event, Origin
from treadle.domain.errors import ConfigError, InsufficientCredits, InvalidState, QuotaExceeded, UsageError
from treadle.domain.events import (
    BudgetExhausted,
    BudgetReserved,
    LlmResponse,
    QuotaWarning,
    RunEnd,
    RunQueued,
    RunWaiting,
)
from treadle.domain.events import QuotaExceeded as Exceeded
from treadle.domain.ids import AgentId, RunId, SessionId, TokenId
from treadle.domain.messages import user
from treadle.domain.quotas import Quotas, Shortage
from treadle.domain.runs import Usage
from treadle.operations.submissions import Submission
from treadle.ports.accounts import Balance
from treadle.ports.model import ModelRequest
from treadle.testing.faults import Fault, Operation
from treadle.testing.models import (
    FunctionModel,
    ScriptedFailure,
    ScriptedModel,
    ScriptedReply,
    ScriptStep,
    ask,
    call,
    say,
)
from treadle.testing.simulation.world import SimulatedProcess, World

PRICED = "models: {scripted/x: {prices: {input: 1, output: 10}, max_output: 1000}}\n"
"""A call costs at most 0.01 dollars, in addition to its input."""
SHORT = {"max_tokens": 1000}
A_CENT = Usage(0, 1000)


@treadle.tool(effect="read", repeatable=True)
async def look(n: int) -> str:
    """Look."""
    return f"seen {n}"


def write_prices(folder: Path, more: str = "") -> Path:
    (folder / "home").mkdir()
    (folder / "home" / "config.yaml").write_text(PRICED + more)
    return folder


def find_one(events: list[Event], kind: type[Any]) -> Any:
    [found] = [event.data for event in events if isinstance(event.data, kind)]
    return found


def make_looks(count: int) -> ScriptedReply:
    return ask(*(call("look", f"call_{n}", n=n) for n in range(count)))


async def balance(engine: HostedEngine, account: str) -> Balance:
    return await engine.service.balance(account)


# ── The ceiling of a run ───────────────────────────────────────────────────────────────────────────


async def test_a_run_ends_before_the_call_that_may_cost_too_much(tmp_path: Path) -> None:
    model = ScriptedModel(ask(call("look", n=1), text="So far.", usage=A_CENT), say("never", usage=A_CENT))

    async with opened(write_prices(tmp_path), model) as engine:
        result = await engine.run(agent(tools=[look], limits={"cost": 0.015}), "go")
        events = await journal(engine, result.run_id)
        left = await balance(engine, f"tree/{result.run_id}")
    assert (result.outcome, result.status, result.text) == ("budget_exhausted", "failed", "So far.")
    assert "0.015 dollars" in result.reason
    assert "has cost 0.01," in result.reason
    assert "limits.cost" in result.next
    exhausted = find_one(events, BudgetExhausted)
    assert (exhausted.account, exhausted.ceiling, exhausted.used) == (f"tree/{result.run_id}", 0.015, 0.01)
    assert 0.01 < exhausted.wanted < 0.011
    assert (left.cost, left.reserved_cost) == (pytest.approx(0.01), 0)
    assert types(events)[-2:] == ["budget_exhausted", "run_end"]
    assert len(model.requests) == 1


async def test_a_reservation_is_recorded_before_the_request_and_settled_with_the_reply(tmp_path: Path) -> None:
    seen: list[Balance] = []
    async with opened(write_prices(tmp_path), FunctionModel(lambda _: say("done", usage=Usage(100, 10)))) as engine:
        run_id = await engine.submit(agent(limits={"cost": 1.0}), "go")
        async with aclosing(engine.events(run_id)) as events:
            seen += [await balance(engine, f"tree/{run_id}") async for event in events if event.type == "token"]
        recorded = await journal(engine, run_id)
        after = await balance(engine, f"tree/{run_id}")
    reserved = find_one(recorded, BudgetReserved)
    order = types(recorded)
    assert order.index("budget_reserved") == order.index("llm_request") - 1
    assert reserved.accounts == (f"tree/{run_id}",)
    assert 0.01 < reserved.cost < 0.011
    assert seen[0].reserved_cost == reserved.cost
    assert (after.cost, after.reserved_cost) == (pytest.approx(0.0002), 0)


async def test_a_run_without_a_ceiling_reserves_nothing(tmp_path: Path) -> None:
    async with opened(write_prices(tmp_path), ScriptedModel(say("done", usage=A_CENT))) as engine:
        result = await engine.run(agent(), "go")
        assert "budget_reserved" not in types(await journal(engine, result.run_id))
        assert await balance(engine, "agent/hero") == Balance("agent/hero")


async def test_a_run_can_have_its_own_ceiling(tmp_path: Path) -> None:
    async with opened(write_prices(tmp_path), ScriptedModel()) as engine:
        result = await engine.run(agent(limits={"cost": 5}), "go", cost=0.005)
    assert result.outcome == "budget_exhausted"


async def test_failed_attempts_are_settled_at_their_usage(tmp_path: Path) -> None:
    broken = ScriptedFailure("server", "broke off", True, retry_after=0.0, usage=Usage(0, 300))
    unsent = ScriptedFailure("unreachable", "nobody there", True, retry_after=0.0)

    model = ScriptedModel(broken, unsent, say("done", usage=Usage(0, 100)))
    async with opened(write_prices(tmp_path), model) as engine:
        result = await engine.run(agent(limits={"cost": 0.02}), "go")
        spent = await balance(engine, f"tree/{result.run_id}")
    assert result.outcome == "completed"
    assert (spent.cost, spent.reserved_cost) == (pytest.approx(0.004), 0)
    assert result.metrics.cost == pytest.approx(0.004)


async def test_a_ceiling_on_a_model_without_a_price_is_refused_at_submission(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel()) as engine:
        with pytest.raises(UsageError, match=r"The price of scripted/x is unknown, so limits\.cost"):
            await engine.submit(agent(limits={"cost": 1}), "go")
        with pytest.raises(UsageError, match=r"quotas\.credits .*config\.yaml"):
            await engine.submit(agent(quotas={"credits": 1}), "go")
        assert not await engine.service.list_unfinished()


def test_a_model_whose_price_became_unknown_is_not_called() -> None:
    """The prices may have been removed since the submission, or the name may resolve to another model."""
    state = new_state(Origin(RunId("run_1"), SessionId("ses_1"), AgentId("agt_1")))
    fold(state, RunQueued(AgentSpec("hero", "p/m", limits=Limits(cost=1.0), quotas=Quotas(credits=5.0))), 1, 0.0)
    reserve = reserve_model_call(state, 1, 1, 100, None)
    assert reserve is not None
    assert reserve.cost == reserve.credits == inf
    for short, kind in (
        (
            Shortage(account="tree/run_1", kind="cost", ceiling=1.0, used=0.0, reserved=0.0, wanted=None),
            "budget_exhausted",
        ),
        (
            Shortage(account="agent/hero", kind="credits", ceiling=5.0, used=0.0, reserved=0.0, wanted=None),
            "insufficient_credits",
        ),
    ):
        end = judge(state, short, 0.0)
        assert isinstance(end, Finish)
        assert (end.outcome.kind, end.outcome.text) == (kind, "")
        assert "no price is known" in end.outcome.reason
        assert "config.yaml" in end.outcome.next
        assert msgspec.json.decode(msgspec.json.encode(end.events[0]))["wanted"] == 0.0


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"quotas": {"credits": -1}}, r"quotas\.credits must be 0 or more"),
        ({"quotas": {"max_llm_tokens_per_hour": 0}}, r"quotas\.max_llm_tokens_per_hour must be above 0"),
        ({"quotas": {"max_tool_calls_per_minute": 0}}, r"quotas\.max_tool_calls_per_minute must be above 0"),
        ({"quotas": {"tokens": 1}}, r"quotas\.tokens"),
        ({"limits": {"cost": 0}}, r"limits\.cost must be above 0"),
        ({"limits": {"cost": float("nan")}}, r"limits\.cost: found nan"),
    ],
)
def test_an_invalid_ceiling_is_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        agent(**wrong)


# ── The tokens of an hour ──────────────────────────────────────────────────────────────────────────


def test_an_exhausted_hourly_quota_ends_the_run_and_says_when_it_frees_up() -> None:
    model = ScriptedModel(ask(call("look", n=1), text="So far.", usage=Usage(4000, 500)))

    async def scenario() -> None:
        async with in_virtual_time(model) as engine:
            limited = agent(tools=[look], quotas={"max_llm_tokens_per_hour": 5000}, model_settings=SHORT)
            result = await engine.run(limited, "go")
            events = await journal(engine, result.run_id)
        exceeded = find_one(events, Exceeded)
        assert (result.outcome, result.text) == ("quota_exceeded", "So far.")
        assert (exceeded.kind, exceeded.ceiling, exceeded.used) == ("tokens", 5000, 4500)
        settled = next(event.timestamp for event in events if isinstance(event.data, LlmResponse))
        assert settled + 3600 <= exceeded.resets_at <= settled + 3660
        assert "4,500 are used" in result.reason
        assert "There is room again on" in result.reason

    virtually(scenario())


def test_usage_older_than_an_hour_does_not_count() -> None:
    model = ScriptedModel(*(say(f"{n}", usage=Usage(4500, 0)) for n in range(3)))

    async def scenario() -> None:
        async with in_virtual_time(model) as engine:
            limited = agent(quotas={"max_llm_tokens_per_hour": 5000}, model_settings=SHORT)
            assert (await engine.run(limited, "one")).outcome == "completed"
            assert (await engine.run(limited, "two")).outcome == "quota_exceeded"
            await asyncio.sleep(3540)
            assert (await engine.run(limited, "three")).outcome == "quota_exceeded"
            await asyncio.sleep(120)
            assert (await engine.run(limited, "four")).outcome == "completed"
            assert (await balance(engine, "agent/hero")).tokens == 4500

    virtually(scenario())


def test_a_call_larger_than_the_window_says_what_to_change() -> None:
    async def scenario() -> None:
        async with in_virtual_time(ScriptedModel()) as engine:
            result = await engine.run(agent(quotas={"max_llm_tokens_per_hour": 500}, model_settings=SHORT), "go")
        assert result.outcome == "quota_exceeded"
        assert "There is room again" not in result.reason
        assert "lower model_settings.max_tokens" in result.next

    virtually(scenario())


def test_a_run_near_its_quota_is_warned_once_per_window() -> None:
    model = FunctionModel(lambda _: say("done", usage=Usage(1000, 0)))

    async def scenario() -> None:
        async with in_virtual_time(model) as engine:
            limited = agent(quotas={"max_llm_tokens_per_hour": 20_000}, model_settings={"max_tokens": 100})

            async def warnings(runs: int) -> list[tuple[int, QuotaWarning]]:
                found: list[tuple[int, QuotaWarning]] = []
                for number in range(runs):
                    result = await engine.run(limited, "go")
                    assert result.outcome == "completed"
                    events = await journal(engine, result.run_id)
                    found += [(number, event.data) for event in events if isinstance(event.data, QuotaWarning)]
                return found

            [(number, warned)] = await warnings(19)
            assert number == 16, "the first call that finds 16,000 used"
            assert (warned.account, warned.kind) == ("agent/hero", "tokens")
            assert (warned.ceiling, warned.used) == (20_000, 16_000)
            await asyncio.sleep(3700)
            assert [number for number, _ in await warnings(18)] == [16]

    virtually(scenario())


# ── Calls of tools in a minute ─────────────────────────────────────────────────────────────────────


def test_an_exhausted_minute_quota_makes_the_run_wait_and_continue() -> None:
    model = ScriptedModel(make_looks(2), make_looks(2), say("done"))

    async def scenario() -> None:
        async with in_virtual_time(model) as engine:
            began = asyncio.get_running_loop().time()
            result = await engine.run(agent(tools=[look], quotas={"max_tool_calls_per_minute": 3}), "go")
            took = asyncio.get_running_loop().time() - began
            events = await journal(engine, result.run_id)
        assert (result.outcome, result.metrics.actions) == ("completed", 4)
        assert 60 <= took < 65
        waited = find_one(events, RunWaiting)
        assert (waited.reason, "3 times in a minute" in waited.detail) == ("quota", True)
        starts = [event.timestamp for event in events if event.type == "tool_call_start"]
        assert starts[2] - starts[0] >= 60
        assert waited.wake_at is not None
        assert waited.wake_at - starts[0] <= 62

    virtually(scenario())


def test_calls_beyond_the_minute_quota_run_in_parts() -> None:
    model = ScriptedModel(make_looks(5), say("done"))

    async def scenario() -> None:
        async with in_virtual_time(model) as engine:
            result = await engine.run(agent(tools=[look], quotas={"max_tool_calls_per_minute": 2}), "go")
            events = await journal(engine, result.run_id)
        assert (result.outcome, result.metrics.actions) == ("completed", 5)
        starts = sorted(event.timestamp for event in events if event.type == "tool_call_start")
        assert all(later - earlier >= 60 for earlier, later in zip(starts, starts[2:], strict=False))
        assert sum(isinstance(event.data, QuotaWarning) for event in events) == 2, "for each full minute"

    virtually(scenario())


def test_a_run_waiting_for_its_quota_can_be_cancelled() -> None:
    async def scenario() -> None:
        async with in_virtual_time(ScriptedModel(make_looks(1), make_looks(1))) as engine:
            run_id = await engine.submit(agent(tools=[look], quotas={"max_tool_calls_per_minute": 1}), "go")
            await until(engine, run_id, "run_waiting")
            await engine.cancel(run_id)
            result = await engine.wait(run_id)
        assert result.outcome == "cancelled"
        assert result.metrics.actions == 1

    virtually(scenario())


# ── Many at once ───────────────────────────────────────────────────────────────────────────────────


async def test_eight_runs_at_once_never_pass_a_ceiling_together(tmp_path: Path) -> None:
    """Each has two calls of a cent. Five cents are enough for some of them, and for no call beyond that."""
    at_once: list[float] = []

    def answer(request: ModelRequest) -> ScriptStep:
        last = request.conversation.messages[-1]
        return (
            say("done", usage=A_CENT, seconds=0.01) if last.role == "tool" else ask(call("look", n=1), usage=A_CENT)
        )

    async with opened(write_prices(tmp_path), FunctionModel(answer)) as engine:
        limited = agent(tools=[look], quotas={"credits": 0.055})
        runs = [await engine.submit(limited, f"go {n}") for n in range(8)]

        async def watch() -> None:
            while True:
                found = await balance(engine, "agent/hero")
                at_once.append(found.credits + found.reserved_credits)
                await asyncio.sleep(0.002)

        watching = asyncio.ensure_future(watch())
        ends = [await engine.wait(run_id) for run_id in runs]
        watching.cancel()
        after = await balance(engine, "agent/hero")
    assert {end.outcome for end in ends} <= {"completed", "insufficient_credits"}
    assert after.credits == pytest.approx(0.05), "and none of it is left unused"
    assert after.reserved_credits == 0
    assert max(at_once) <= 0.055
    calls = sum(end.metrics.model_calls for end in ends)
    assert calls == 5
    for end in ends:
        if end.outcome != "completed":
            assert "0.055 credits" in end.reason
            assert "quotas.credits" in end.next


def test_a_run_short_because_of_others_waits_until_they_settle() -> None:
    """Both together may use more than there is, and do not."""
    model = FunctionModel(lambda _: say("a few words", usage=Usage(100, 10), seconds=3.0))

    async def scenario() -> None:
        async with in_virtual_time(model) as engine:
            limited = agent(quotas={"max_llm_tokens_per_hour": 1600}, model_settings=SHORT)
            first = await engine.submit(limited, "one")
            await until(engine, first, "llm_request")
            second = await engine.submit(limited, "two")
            ends = [await engine.wait(first), await engine.wait(second)]
            events = await journal(engine, second)
        assert [end.outcome for end in ends] == ["completed", "completed"]
        waited = find_one(events, RunWaiting)
        assert waited.reason == "budget", "and it is said once, however often it looks"

    virtually(scenario())


def test_the_quotas_of_a_token_apply_to_all_of_its_runs() -> None:
    token, quotas = TokenId("tok_1"), Quotas(max_llm_tokens_per_hour=5000)

    async def scenario() -> None:
        async with in_virtual_time(FunctionModel(lambda _: say("done", usage=Usage(4500, 0)))) as engine:

            async def run(name: str) -> str | None:
                spec = AgentSpec(name, "scripted/x", model_settings=ModelSettings(max_tokens=1000))
                submission = Submission(spec, user("go"), token=token, token_quotas=quotas)
                ticket = await engine.service.submit(submission)
                return (await engine.wait(ticket.run_id)).outcome

            assert [await run("one"), await run("two")] == ["completed", "quota_exceeded"]
            assert (await balance(engine, "token/tok_1")).tokens == 4500
            assert await balance(engine, "agent/one") == Balance("agent/one")

    virtually(scenario())


# ── Before a run ───────────────────────────────────────────────────────────────────────────────────


def test_a_submission_without_remaining_quota_is_refused_and_nothing_is_written() -> None:
    async def scenario() -> None:
        async with in_virtual_time(FunctionModel(lambda _: say("done", usage=Usage(6000, 0)))) as engine:
            limited = agent(quotas={"max_llm_tokens_per_hour": 5000}, model_settings=SHORT)
            key = "the first"
            result = await engine.run(limited, "go", key=key)
            at = (await journal(engine, result.run_id))[-1].timestamp
            with pytest.raises(
                QuotaExceeded, match=r"`hero` has used 6,000 .* may use 5,000\. .* room again on"
            ) as raised:
                await engine.submit(limited, "again")
            assert raised.value.resets_at is not None
            assert at + 3600 <= raised.value.resets_at <= at + 3660
            assert len(await engine.service.runs()) == 1
            assert await engine.submit(limited, "go", key=key) == result.run_id, "what was taken stays taken"
            await asyncio.sleep(raised.value.resets_at - at)
            assert (await engine.run(limited, "again")).outcome == "completed"

    virtually(scenario())


async def test_credits_are_cost_times_rate_and_raising_them_adds_to_the_rest(tmp_path: Path) -> None:
    home = write_prices(tmp_path, "credits: {per_dollar: 100}\n")
    async with opened(home, FunctionModel(lambda _: say("done", usage=Usage(0, 2000)))) as engine:
        first = await engine.run(agent(quotas={"credits": 2}), "go")
        assert first.metrics.credits == pytest.approx(2.0)
        with pytest.raises(InsufficientCredits, match="has spent 2 of 2 credits") as raised:
            await engine.submit(agent(quotas={"credits": 2}), "again")
        assert raised.value.resets_at is None
        assert (await engine.run(agent(quotas={"credits": 4.5}), "again")).outcome == "completed"
        assert (await balance(engine, "agent/hero")).credits == pytest.approx(4.0)
        ended = await engine.run(agent(quotas={"credits": 4.5}), "and again")
        assert ended.outcome == "insufficient_credits"


def test_a_paused_agent_accepts_no_messages() -> None:
    async def scenario() -> None:
        async with in_virtual_time(FunctionModel(lambda _: say("done"))) as engine:
            await engine.service.set_agent_state("hero", "paused")
            assert await engine.service.agent_state("hero") == "paused"
            with pytest.raises(InvalidState, match=r"`hero` is paused .* treadle agents state hero running"):
                await engine.submit(agent(), "go")
            await engine.service.set_agent_state("hero", "running")
            assert (await engine.run(agent(), "go")).outcome == "completed"
            assert await engine.service.agent_state("nobody") == "running"

    virtually(scenario())


# ── Crashes ────────────────────────────────────────────────────────────────────────────────────────

BOUND = AgentSpec(
    "hero",
    "simulated",
    limits=Limits(cost=1.0),
    quotas=Quotas(max_llm_tokens_per_hour=100_000),
    model_settings=ModelSettings(max_tokens=1000),
)


@pytest.mark.parametrize("fault", ["before", "after"])
def test_a_reservation_whose_worker_died_is_settled_in_full(fault: Fault) -> None:
    """The process dies as it writes the reply down. Whether it came through or not, nothing stays reserved."""

    async def scenario() -> None:
        advances = 0

        def plan(operation: Operation) -> Fault | None:
            nonlocal advances
            advances += operation == "advance"
            return fault if operation == "advance" and advances == 2 else None

        world = World(Random(1), lambda _request, _world: say("done", usage=Usage(100, 10)))
        first = world.start(plan, sole=True)
        await first.spawn(first.start())
        ticket = await first.spawn(first.service.submit(Submission(BOUND, user("go"))))
        await asyncio.sleep(60)
        assert first.journal.dead
        second = world.start(lambda _: None, sole=True)
        await second.spawn(second.start())
        _, end = await second.spawn(second.service.wait(ticket.run_id))
        await check(second, ticket.run_id, end, lost=fault == "before")

    async def check(process: SimulatedProcess, run_id: Any, end: RunEnd, lost: bool) -> None:
        events = [event async for event in process.service.read_stored(run_id)]
        reserved = [event.data for event in events if isinstance(event.data, BudgetReserved)]
        tree = await process.service.balance(f"tree/{run_id}")
        hour = await process.service.balance("agent/hero")
        assert end.outcome == "completed"
        assert len(reserved) == 1 + lost
        assert (tree.reserved_cost, hour.reserved_tokens) == (0, 0)
        assert tree.cost == pytest.approx(0.0002 + lost * reserved[0].cost)
        assert hour.tokens == 110 + lost * reserved[0].tokens

    in_a_world(scenario())
