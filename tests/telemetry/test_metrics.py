"""The metrics of whole runs."""

from collections.abc import Sequence
from pathlib import Path

import treadle
from tests.engine.running import Gate, agent, until
from tests.telemetry.reading import Samples, read, value
from tests.telemetry.watched import look, numbers, watched
from treadle.api.engine import create_engine
from treadle.domain import events as e
from treadle.domain.agents import AgentSpec, Limits
from treadle.domain.envelope import Origin, make_drafts
from treadle.domain.events import EventData
from treadle.domain.ids import AgentId, RunId, SessionId
from treadle.domain.lineage import Lineage, TreeCeiling
from treadle.domain.quotas import Quotas
from treadle.domain.runs import Metrics as Used
from treadle.domain.runs import Usage
from treadle.system.clock import TimeOrderedIds
from treadle.telemetry.guards import FIRES, GUARDS
from treadle.telemetry.metrics import MetricsWatcher
from treadle.testing.models import ScriptedFailure, ScriptedModel, Silence, ask, call, say
from treadle.testing.time import FakeClock

MODEL = {"provider": "scripted", "model": "x"}


async def test_a_run_is_counted_with_all_that_it_used(tmp_path: Path) -> None:
    model = ScriptedModel(
        ask(call("look", "c1", place="x"), call("look", "c2", place="nowhere"), usage=Usage(100, 10, 40, 5)),
        ScriptedFailure("overloaded", "busy", True, retry_after=0.0, usage=Usage(7, 1)),
        say("done", usage=Usage(200, 20)),
    )

    async with watched(tmp_path, model) as engine:
        result = await engine.run(agent(tools=[look]), "go")
        seen = numbers(engine)
    used = result.metrics
    assert value(seen, "treadle_runs_total", agent="hero", outcome="completed") == 1
    assert value(seen, "treadle_run_duration_seconds_count", agent="hero") == 1
    assert value(seen, "treadle_run_duration_seconds_sum", agent="hero") == used.duration_ms / 1000
    assert value(seen, "treadle_step_duration_seconds_count") == used.steps == 2
    for kind, amount in (
        ("input", used.input_tokens),
        ("output", used.output_tokens),
        ("cache_read", used.cache_read_tokens),
        ("cache_write", used.cache_write_tokens),
    ):
        assert value(seen, "treadle_tokens_total", kind=kind, **MODEL) == amount > 0
    assert value(seen, "treadle_model_calls_unpriced_total", **MODEL) == used.unpriced_calls == 3
    for result_, times in (("tool_use", 1), ("overloaded", 1), ("end_turn", 1)):
        assert value(seen, "treadle_model_calls_total", result=result_, **MODEL) == times
    assert value(seen, "treadle_model_call_duration_seconds_count", **MODEL) == used.model_calls == 3
    assert value(seen, "treadle_model_retries_total", **MODEL) == 1
    assert value(seen, "treadle_tool_calls_started_total", tool="look") == used.actions == 2
    assert value(seen, "treadle_tool_calls_total", tool="look", result="ok") == 1
    assert value(seen, "treadle_tool_calls_total", tool="look", result="failed") == 1
    assert value(seen, "treadle_guard_armed_total", guard="loop") == 1
    assert value(seen, "treadle_guard_armed_total", guard="deadline") == 0
    assert value(seen, "treadle_events_total", type="run_end") == 1
    assert value(seen, "treadle_breaker_state", **MODEL) == 0
    assert value(seen, "process_resident_memory_bytes") > 1_000_000
    assert value(seen, "process_open_fds") > 2


async def test_the_events_that_are_counted_are_those_of_the_journal(tmp_path: Path) -> None:
    async with watched(tmp_path, ScriptedModel(ask(call("look", place="x")), say("done"))) as engine:
        result = await engine.run(agent(tools=[look]), "go")
        kept = [event.type async for event in engine.events(result.run_id) if event.durable]
        seen = numbers(engine)
    counted = {
        dict(labels)["type"]: count for (name, labels), count in seen.items() if name == "treadle_events_total"
    }
    assert counted == {kind: kept.count(kind) for kind in kept}


def statuses(samples: Samples) -> tuple[float, ...]:
    return tuple(value(samples, "treadle_runs", status=status) for status in ("pending", "running", "waiting"))


async def test_a_run_keeps_its_state_and_agent_in_the_metrics_after_a_restart(tmp_path: Path) -> None:
    gate = Gate()

    @treadle.tool(repeatable=True)
    async def wait() -> str:
        if not gate.open.is_set():
            await gate.pass_through()
        return "waited"

    async with watched(tmp_path, ScriptedModel(ask(call("wait", "c1")))) as engine:
        run_id = await engine.submit(agent(tools=[wait]), "go", session="s")
        await gate.reached.wait()
        later = await engine.submit(agent(), "and then", session="s")
        assert statuses(numbers(engine)) == (1, 1, 0)
        await engine.interrupt(run_id)
        await until(engine, run_id, "run_waiting")
        assert statuses(numbers(engine)) == (1, 0, 1)
    gate.open.set()
    async with watched(tmp_path, ScriptedModel(say("done"), say("then"))) as engine:
        engine.add_tools(wait)
        assert statuses(numbers(engine)) == (1, 0, 1)
        await engine.resume(run_id)
        await engine.wait(later)
        seen = numbers(engine)
        assert statuses(seen) == (0, 0, 0)
        assert value(seen, "treadle_runs_total", agent="hero", outcome="completed") == 2
        assert ("treadle_runs_queued_total", frozenset({("agent", "hero")})) not in seen, "that was before"


async def test_a_reply_to_a_request_of_a_dead_process_is_counted_with_its_model(tmp_path: Path) -> None:
    async with watched(tmp_path, ScriptedModel(Silence("half"))) as engine:
        run_id = await engine.submit(agent(), "go")
        await until(engine, run_id, "token")
    async with watched(tmp_path, ScriptedModel(say("whole"))) as engine:
        await engine.wait(run_id)
        seen = numbers(engine)
    assert value(seen, "treadle_model_calls_total", result="end_turn", **MODEL) == 1
    assert value(seen, "treadle_model_calls_repeated_total", **MODEL) == 1


def test_nothing_is_counted_without_metrics(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/t.db")
    assert engine.metrics is None


# ── Every event ──


class EventMetrics:
    """Numbers of events that are told one by one."""

    def __init__(self, most_names: int | None = None) -> None:
        self.metrics = MetricsWatcher(FakeClock(), most_names=most_names)
        self._ids = TimeOrderedIds()

    def __call__(self, run: str, *events: EventData) -> None:
        origin = Origin(RunId(run), SessionId("ses_1"), AgentId("agt_1"))
        self.metrics.observe(origin, 1, make_drafts(self._ids, 0.0, events))

    @property
    def numbers(self) -> Samples:
        return read(self.metrics.render())


def end_run(outcome: str) -> e.RunEnd:
    return e.RunEnd("failed", outcome, Used())  # pyright: ignore[reportArgumentType] -- one of the outcomes


WITH_ALL = AgentSpec(
    "a",
    "p/m",
    limits=Limits(deadline=1.0, cost=1.0),
    output={"type": "string"},
    budget_hints=True,
    quotas=Quotas(max_tool_calls_per_minute=1),
)


def fires() -> Sequence[tuple[str, str, tuple[EventData, ...]]]:
    return [
        ("loop", "warn", (e.LoopWarning("t", "k", 3, "n"),)),
        ("loop", "block", (e.ToolCallBlocked("c", "t", "loop", "no"),)),
        ("loop", "stop", (e.LoopWarning("t", "k", 3, "n"), end_run("stuck"))),
        ("loop", "stop", (end_run("stuck"),)),
        ("stuck", "warn", (e.StuckDetected("failing_tool", 3),)),
        ("stuck", "block", (e.ToolCallBlocked("c", "t", "stuck", "no"),)),
        ("stuck", "stop", (e.StuckDetected("failing_tool", 3), end_run("stuck"))),
        ("phantom", "warn", (e.PhantomAction(1, "I did", "n"),)),
        ("empty", "warn", (e.EmptyTurn(1, "n"),)),
        ("empty", "stop", (end_run("empty"),)),
        ("refused", "stop", (end_run("refused"),)),
        ("continuation", "warn", (e.Continuation(1, "n"),)),
        ("continuation", "stop", (end_run("truncated"),)),
        ("written_call", "warn", (e.CallWritten(1, "x", "n"),)),
        ("calls", "warn", (e.CallsDropped(1, 3, 128, "n"),)),
        ("output", "warn", (e.OutputRejected(1, "x", "n"),)),
        ("budget_hint", "warn", (e.BudgetHint(70, "n"),)),
        ("context", "warn", (e.ContextTrimmed("shrink", 10),)),
        ("context", "stop", (end_run("context_overflow"),)),
        ("quarantine", "stop", (e.RunQuarantined(4), end_run("quarantined"))),
        ("max_steps", "stop", (end_run("max_steps"),)),
        ("deadline", "stop", (end_run("deadline"),)),
        ("budget", "warn", (e.QuotaWarning("tree/run_1", "cost", 1.0, 0.9),)),
        ("budget", "block", (e.RunWaiting("budget", "others must settle first"),)),
        ("budget", "stop", (end_run("budget_exhausted"),)),
        ("quota", "warn", (e.QuotaWarning("agent/a", "calls", 10, 9),)),
        ("quota", "block", (e.RunWaiting("quota", "until the minute is over"),)),
        ("quota", "stop", (end_run("quota_exceeded"),)),
        ("credits", "warn", (e.QuotaWarning("agent/a", "credits", 10, 9),)),
        ("credits", "stop", (end_run("insufficient_credits"),)),
        ("approval", "block", (e.ApprovalExpired("apr_1", "c"),)),  # pyright: ignore[reportArgumentType] -- an id
        ("approval", "stop", (end_run("approval_expired"),)),
    ]


def test_every_guard_is_armed_and_fires_under_its_name() -> None:
    told = fires()
    assert {(guard, verdict) for guard, verdict, _ in told} == set(FIRES)
    assert {guard for guard, _, _ in told} == set(GUARDS)
    for guard, verdict, events in told:
        counts = EventMetrics()
        counts("run_1", e.RunQueued(WITH_ALL, token_quotas=Quotas(credits=5.0)), *events)
        seen = counts.numbers
        assert value(seen, "treadle_guard_armed_total", guard=guard) == 1
        assert value(seen, "treadle_guard_fired_total", guard=guard, verdict=verdict) == 1, (guard, verdict)


def test_a_child_run_is_limited_by_the_budget_of_its_ancestors() -> None:
    above = Lineage(
        RunId("run_1"),
        1,
        "c",
        "spawn",
        ("hero",),
        ceilings=(TreeCeiling(RunId("run_1"), 1.0),),
        quotas=(("hero", Quotas(max_tool_calls_per_minute=5, credits=1.0)),),
    )
    for lineage, times in ((None, 0), (above, 1)):
        counts = EventMetrics()
        counts("run_2", e.RunQueued(AgentSpec("plain", "x"), lineage=lineage))
        for guard in ("budget", "quota", "credits"):
            assert value(counts.numbers, "treadle_guard_armed_total", guard=guard) == times


def test_approvals_secrets_and_killed_processes_are_counted() -> None:
    counts = EventMetrics()
    counts(
        "run_1",
        e.RunQueued(WITH_ALL),
        e.ApprovalRequested("apr_1", "c", "bash", "{}", "r"),  # pyright: ignore[reportArgumentType] -- an id
        e.ApprovalDecided("apr_1", "deny"),  # pyright: ignore[reportArgumentType] -- an id
        e.Redacted(("KEY",), "tool_result"),
        e.SecretUsed("KEY", "bash", "c"),
        e.SecretDenied("KEY", "bash", "c", "not granted"),
        e.MemoryDegraded("local", "it is asleep"),
        e.ProcessKilled("c", "sleep 9", "timeout"),
        e.CompactionStarted(stage="compact", trigger="threshold", first=1, last=3, provider="p", model="small"),
        e.ContextCompacted(
            stage="compact",
            trigger="threshold",
            first=1,
            last=3,
            kept=(),
            summary="s",
            tokens_before=10,
            tokens_after=5,
            usage=Usage(30, 3),
            cost=0.5,
        ),
        e.LlmFallback(1, "p", "m", "q/n", "it fails"),
        e.BreakerOpened("p", "m"),
        e.RunWaiting("approval", "bash"),
        e.HookBlocked("c", "bash", "h", "no"),
        e.ToolCallError("c", "made_up_by_the_model", "unknown_tool", "no"),
    )
    seen = counts.numbers
    for name, labels in (
        ("treadle_approvals_requested_total", {}),
        ("treadle_approvals_decided_total", {"decision": "deny"}),
        ("treadle_redactions_total", {"where": "tool_result"}),
        ("treadle_secrets_total", {"result": "used"}),
        ("treadle_secrets_total", {"result": "denied"}),
        ("treadle_memory_degraded_total", {}),
        ("treadle_processes_killed_total", {"why": "timeout"}),
        ("treadle_compactions_total", {"result": "done"}),
        ("treadle_model_fallbacks_total", {"provider": "p", "model": "m"}),
        ("treadle_breaker_opened_total", {"provider": "p", "model": "m"}),
        ("treadle_run_waits_total", {"reason": "approval"}),
        ("treadle_tool_calls_total", {"tool": "bash", "result": "hook_blocked"}),
        ("treadle_tool_calls_total", {"tool": "other", "result": "unknown_tool"}),
    ):
        assert value(seen, name, **labels) == 1, name
    assert value(seen, "treadle_cost_dollars_total", provider="p", model="small") == 0.5
    assert value(seen, "treadle_tokens_total", provider="p", model="small", kind="input") == 30


def test_the_number_of_agent_names_in_the_metrics_is_bounded() -> None:
    counts = EventMetrics(most_names=3)
    for number in range(50):
        spec = AgentSpec(f"agent-{number}", "p/m")
        counts(
            f"run_{number}",
            e.RunQueued(spec),
            e.LlmRequest(1, 1, f"p{number}", "m", 1),
            e.LlmResponse(step=1, attempt=1, parts=(), stop="end_turn", usage=Usage(1, 1), duration_ms=5),
            e.ToolCallStart("c", f"tool_{number}", "{}", "k"),
            e.ToolCallEnd("c", f"tool_{number}", "x", 5),
            end_run("failed"),
        )
    before = len(counts.numbers)
    counts("run_new", e.RunQueued(AgentSpec("new", "p/m")), e.LlmRequest(1, 1, "new", "m", 1), end_run("failed"))
    seen = counts.numbers
    assert len(seen) == before
    assert value(seen, "treadle_runs_total", agent="other", outcome="failed") == 48
    assert value(seen, "treadle_tokens_total", provider="other", model="other", kind="input") == 47
    assert value(seen, "treadle_tool_calls_total", tool="other", result="ok") == 47


def test_a_run_that_has_ended_is_forgotten() -> None:
    counts = EventMetrics()
    counts("run_1", e.RunQueued(WITH_ALL))
    counts("run_1", end_run("failed"))
    assert statuses(counts.numbers) == (0, 0, 0)
    counts("run_1", e.RunQueued(WITH_ALL))
    assert statuses(counts.numbers) == (1, 0, 0)


def test_open_streams_are_counted() -> None:
    counts = EventMetrics()
    counts.metrics.stream_opened()
    counts.metrics.stream_opened()
    counts.metrics.stream_closed()
    assert value(counts.numbers, "treadle_sse_streams_open") == 1


def test_the_state_of_each_breaker_is_shown() -> None:
    states = [("p", "m", "closed"), ("p", "m", "open"), ("p", "n", "half_open")]
    metrics = MetricsWatcher(FakeClock(), lambda: states)
    seen = read(metrics.render())
    assert value(seen, "treadle_breaker_state", provider="p", model="m") == 2
    assert value(seen, "treadle_breaker_state", provider="p", model="n") == 1
