"""Counts committed events. Per event this costs a few dictionary lookups."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from treadle.domain import events as e
from treadle.domain.envelope import Draft, Event, Origin
from treadle.domain.events import EventData
from treadle.domain.ids import RunId
from treadle.domain.lineage import DELEGATION_TOOLS
from treadle.domain.runs import Status
from treadle.ports.clock import Clock
from treadle.telemetry.counters import ModelCells, ModelsByName, ToolCells
from treadle.telemetry.exposition import OTHER, Cell, Family, Histogram, Names, render_page
from treadle.telemetry.guards import FIRES, GUARDS, WARNINGS, find_fired_guard, list_armed_guards
from treadle.telemetry.metric_families import EngineFamilies, ModelFamilies, RunFamilies, ToolFamilies
from treadle.telemetry.process import ProcessFamilies

Breakers = Callable[[], Iterable[tuple[str, str, str]]]
"""Returns provider, model and phase of every circuit breaker of this process."""
Connections = Callable[[], Iterable[tuple[str, str]]]
"""Returns the server and the state of every MCP connection of this process."""
PHASES: Final = {"closed": 0.0, "half_open": 1.0, "open": 2.0}
UNFINISHED: Final[tuple[Status, ...]] = ("pending", "running", "waiting")
MAX_TOOLS = 300
_UNKNOWN = "unknown"


class _Run:
    """What must be known about a run in progress to count its events."""

    __slots__ = ("agent", "guard", "model", "status", "summariser")

    def __init__(self) -> None:
        self.agent = _UNKNOWN
        self.model: ModelCells | None = None
        self.summariser: ModelCells | None = None
        self.status: Status | None = None
        self.guard = ""
        """The last guard to act of those that end a run as `stuck`."""


class MetricsWatcher:
    """Implements `Watcher`."""

    def __init__(self, clock: Clock, breakers: Breakers = lambda: (), most_names: int | None = None) -> None:
        self._now = clock.now
        self._breakers = breakers
        self.connections: Connections = lambda: ()
        self.channels: Callable[[], Sequence[tuple[str, str, Mapping[str, int]]]] = lambda: ()
        """The chat channels: name, state, and how often each thing happened to messages."""
        self._runs: dict[RunId, _Run] = {}
        self._agents = Names() if most_names is None else Names(most_names)
        self._tools = Names(MAX_TOOLS if most_names is None else most_names)
        self.run, self.model = RunFamilies(), ModelFamilies()
        self.tool, self.engine = ToolFamilies(), EngineFamilies()
        self._models = ModelsByName(self.model, 100 if most_names is None else most_names)
        self._called: dict[str, ToolCells] = {}
        self._types: dict[str, Cell] = {}
        self._lag, self._step = self.engine.lag.cell(), self.run.step.cell()
        self._process = ProcessFamilies(clock.now())
        self._families = [
            family
            for group in (self.run, self.model, self.tool, self.engine)
            for family in vars(group).values()
            if isinstance(family, Family | Histogram)
        ]
        for status in UNFINISHED:
            self.run.now.set(0.0, (status,))
        for guard in GUARDS:
            self.run.armed.set(0.0, (guard,))
        for found in FIRES:
            self.run.fired.set(0.0, found)
        self._counting = self._list_counters()

    # ── Interface ──

    def render(self, agents: Sequence[str] | None = None) -> bytes:
        """Return the metrics in the Prometheus format: all of them, or those counted by agent, for some agents."""
        if agents is not None:
            shown_as = {self._agents.find(name) for name in agents} - {None, OTHER}
            return render_page(
                [part for family in self._families if (part := family.select("agent", shown_as)) is not None]
            )
        self._process.update()
        breaker = self.model.breaker
        breaker.clear()
        for provider, model, phase in self._breakers():
            cell = breaker.cell(self._models.get(provider, model).labels)
            cell.value = max(PHASES[phase], cell.value)  # breakers of several addresses may share a name
        self.tool.mcp_now.clear()
        for server, state in self.connections():
            self.tool.mcp_now.add((server, state))
        self.tool.channels_now.clear()
        self.tool.channel_messages.clear()
        for channel, state, counts in self.channels():
            self.tool.channels_now.add((channel, state))
            for event, count in counts.items():
                self.tool.channel_messages.add((channel, event), float(count))
        return render_page((*self._families, *self._process.families))

    def stream_opened(self) -> None:
        self.engine.streams.add()

    def stream_closed(self) -> None:
        self.engine.streams.add(amount=-1.0)

    def adopt(self, run_id: RunId, status: Status) -> None:
        """Count an unfinished run that no process has watched yet."""
        self._set_status(self._find_run(run_id), status)

    # ── Commits ──

    def remember(self, event: Event) -> None:
        run = self._find_run(event.run_id)
        match event.data:
            case e.RunQueued(agent=agent):
                run.agent = self._agents.get_label(agent.name)
            case e.LlmRequest(provider=provider, model=model):
                run.model = self._models.get(provider, model)
            case e.CompactionStarted(provider=provider, model=model):
                run.summariser = self._models.get(provider, model)
            case e.LoopWarning() | e.ToolCallBlocked() | e.StuckDetected() as data:
                self._remember_guard(run, find_fired_guard(data))
            case _:
                pass
        if run.status is None:  # another process started it
            self._set_status(run, "running")

    def forget(self, run_id: RunId) -> None:
        if (run := self._runs.pop(run_id, None)) is not None:
            self._set_status(run, None)

    def observe(self, origin: Origin, first: int, drafts: Sequence[Draft]) -> None:
        run_id, types, counting = origin.run_id, self._types, self._counting
        run = self._runs.get(run_id) or self._find_run(run_id)
        for draft in drafts:
            cell = types.get(draft.type)
            if cell is None:
                cell = types[draft.type] = self.engine.events.cell((draft.type,))
            cell.value += 1.0
            data = draft.data
            count = counting.get(type(data))
            if count is not None:
                count(run, data)
        if drafts:
            self._lag.observe(self._now() - drafts[-1].timestamp)
            if run.status is None:  # the run has ended
                del self._runs[run_id]

    def _list_counters(self) -> dict[type[EventData], Callable[[_Run, Any], None]]:
        return {
            **dict.fromkeys(WARNINGS, self._count_guard),
            e.RunQueued: self._on_run_queued,
            e.RunStart: self._on_run_start,
            e.RunWaiting: self._on_run_waiting,
            e.RunRecovered: self._on_run_recovered,
            e.RunEnd: self._on_run_end,
            e.StepEnd: self._on_step_end,
            e.QuotaWarning: self._count_guard,
            e.LlmRequest: self._on_llm_request,
            e.LlmResponse: self._on_llm_response,
            e.LlmError: self._on_llm_error,
            e.LlmRetry: self._on_llm_retry,
            e.LlmFallback: self._on_llm_fallback,
            e.BreakerOpened: self._on_breaker_opened,
            e.McpConnected: self._on_mcp_change,
            e.McpDisconnected: self._on_mcp_change,
            e.McpFailed: self._on_mcp_change,
            e.ToolCallStart: self._on_tool_call_start,
            e.ClientCallRequested: self._on_client_call,
            e.AgentSpawn: self._on_agent_spawn,
            e.ToolCallEnd: self._on_tool_call_end,
            e.ToolCallError: self._on_tool_call_error,
            e.ToolCallBlocked: self._on_tool_call_blocked,
            e.HookBlocked: self._on_hook_blocked,
            e.ProcessKilled: self._on_process_killed,
            e.ApprovalRequested: self._on_approval_requested,
            e.ApprovalDecided: self._on_approval_decided,
            e.ApprovalExpired: self._on_approval_expired,
            e.SecretUsed: self._on_secret_used,
            e.SecretDenied: self._on_secret_denied,
            e.Redacted: self._on_redacted,
            e.ContextTrimmed: self._on_context_trimmed,
            e.CompactionStarted: self._on_compaction_started,
            e.ContextCompacted: self._on_context_compacted,
            e.CompactionFailed: self._on_compaction_failed,
            e.MemoryDegraded: self._on_memory_degraded,
        }

    def _find_run(self, run_id: RunId) -> _Run:
        run = self._runs.get(run_id)
        if run is None:
            run = self._runs[run_id] = _Run()
        return run

    def _set_status(self, run: _Run, status: Status | None) -> None:
        now = self.run.now
        if run.status is not None:
            now.add((run.status,), -1.0)
        if status is not None:
            now.add((status,))
        run.status = status

    def _remember_guard(self, run: _Run, found: tuple[str, str] | None) -> None:
        if found is not None and found[0] in ("loop", "stuck"):
            run.guard = found[0]

    # ── Runs ──

    def _on_run_queued(self, run: _Run, data: e.RunQueued) -> None:
        run.agent = self._agents.get_label(data.agent.name)
        self.run.queued.add((run.agent,))
        for guard in list_armed_guards(data):
            self.run.armed.add((guard,))
        self._set_status(run, "pending")

    def _on_run_start(self, run: _Run, data: e.RunStart) -> None:
        self._set_status(run, "running")

    def _on_run_waiting(self, run: _Run, data: e.RunWaiting) -> None:
        self.run.waits.add((data.reason,))
        self._count_guard(run, data)
        self._set_status(run, "waiting")

    def _on_run_recovered(self, run: _Run, data: e.RunRecovered) -> None:
        self.run.recovered.add()
        self._set_status(run, "running")

    def _on_run_end(self, run: _Run, data: e.RunEnd) -> None:
        self._count_guard(run, data)
        self.run.ended.add((run.agent, data.outcome))
        self.run.duration.cell((run.agent,)).observe(data.metrics.duration_ms / 1000)
        self._set_status(run, None)

    def _on_step_end(self, run: _Run, data: e.StepEnd) -> None:
        self._step.observe(data.duration_ms / 1000)

    def _count_guard(self, run: _Run, data: EventData) -> None:
        found = find_fired_guard(data, run.guard)
        if found is not None:
            self.run.fired.add(found)
            self._remember_guard(run, found)

    # ── Model calls ──

    def _on_llm_request(self, run: _Run, data: e.LlmRequest) -> None:
        if run.status != "running":
            self._set_status(run, "running")
        model = run.model = self._models.get(data.provider, data.model)
        if data.repeats_lost:
            self.model.lost.add(model.labels)

    def _on_llm_response(self, run: _Run, data: e.LlmResponse) -> None:
        model = run.model or self._unknown()
        model.add_call(data.stop, data.duration_ms)
        if data.first_token_ms is not None:
            model.first.observe(data.first_token_ms / 1000)
        model.add_usage(data.usage, data.cost)

    def _on_llm_error(self, run: _Run, data: e.LlmError) -> None:
        model = run.model or self._unknown()
        model.add_call(data.kind, data.duration_ms)
        model.add_usage(data.usage, data.cost)

    def _on_llm_retry(self, run: _Run, data: e.LlmRetry) -> None:
        self.model.retries.add((run.model or self._unknown()).labels)

    def _on_llm_fallback(self, run: _Run, data: e.LlmFallback) -> None:
        self.model.fallbacks.add(self._models.get(data.provider, data.model).labels)

    def _on_breaker_opened(self, run: _Run, data: e.BreakerOpened) -> None:
        self.model.opened.add(self._models.get(data.provider, data.model).labels)

    def _on_mcp_change(self, run: _Run, data: e.McpConnected | e.McpDisconnected | e.McpFailed) -> None:
        self.tool.mcp.add((data.server, e.NAMES[type(data)].removeprefix("mcp_")))

    def _unknown(self) -> ModelCells:
        """Return the counters for a call whose request was not seen, because the journal could not be read."""
        return self._models.get(_UNKNOWN, _UNKNOWN)

    # ── Tool calls and approvals ──

    def _on_tool_call_start(self, run: _Run, data: e.ToolCallStart) -> None:
        if run.status != "running":
            self._set_status(run, "running")
        (self._called.get(data.name) or self._find_tool(data.name)).started.value += 1.0

    def _on_client_call(self, run: _Run, data: e.ClientCallRequested) -> None:
        self._find_tool(data.name).started.value += 1.0

    def _on_agent_spawn(self, run: _Run, data: e.AgentSpawn) -> None:
        if run.status != "running":
            self._set_status(run, "running")
        if data.role in DELEGATION_TOOLS:  # otherwise it is an evaluator, not a tool call
            self._find_tool(DELEGATION_TOOLS[data.role]).started.value += 1.0

    def _on_tool_call_end(self, run: _Run, data: e.ToolCallEnd) -> None:
        tool = self._called.get(data.name) or self._find_tool(data.name)
        tool.ok.value += 1.0
        tool.duration.observe(data.duration_ms / 1000)

    def _on_tool_call_error(self, run: _Run, data: e.ToolCallError) -> None:
        name = OTHER if data.kind == "unknown_tool" else self._tools.get_label(data.name)  # models invent names
        self.tool.calls.add((name, data.kind))
        if data.duration_ms:
            self.tool.duration.cell((name,)).observe(data.duration_ms / 1000)

    def _find_tool(self, name: str) -> ToolCells:
        shown = self._tools.get_label(name)
        tool = self._called.get(shown)
        if tool is None:
            tool = self._called[shown] = ToolCells(self.tool, shown)
        return tool

    def _on_tool_call_blocked(self, run: _Run, data: e.ToolCallBlocked) -> None:
        self.tool.calls.add((self._tools.get_label(data.name), "blocked"))
        self._count_guard(run, data)

    def _on_hook_blocked(self, run: _Run, data: e.HookBlocked) -> None:
        self.tool.calls.add((self._tools.get_label(data.name), "hook_blocked"))

    def _on_process_killed(self, run: _Run, data: e.ProcessKilled) -> None:
        self.tool.killed.add((data.why,))

    def _on_approval_requested(self, run: _Run, data: e.ApprovalRequested) -> None:
        self.tool.asked.add()

    def _on_approval_decided(self, run: _Run, data: e.ApprovalDecided) -> None:
        self.tool.decided.add((data.decision,))

    def _on_approval_expired(self, run: _Run, data: e.ApprovalExpired) -> None:
        self.tool.decided.add(("expired",))
        self._count_guard(run, data)

    def _on_secret_used(self, run: _Run, data: e.SecretUsed) -> None:
        self.tool.secrets.add(("used",))

    def _on_secret_denied(self, run: _Run, data: e.SecretDenied) -> None:
        self.tool.secrets.add(("denied",))

    def _on_redacted(self, run: _Run, data: e.Redacted) -> None:
        self.tool.redactions.add((data.where,))

    # ── Context and memory ──

    def _on_context_trimmed(self, run: _Run, data: e.ContextTrimmed) -> None:
        self.engine.trimmed.add((data.stage,))
        self._count_guard(run, data)

    def _on_compaction_started(self, run: _Run, data: e.CompactionStarted) -> None:
        run.summariser = self._models.get(data.provider, data.model)
        if run.status != "running":
            self._set_status(run, "running")

    def _on_context_compacted(self, run: _Run, data: e.ContextCompacted) -> None:
        self.engine.compactions.add(("done",))
        (run.summariser or self._unknown()).add_usage(data.usage, data.cost)
        self._count_guard(run, data)

    def _on_compaction_failed(self, run: _Run, data: e.CompactionFailed) -> None:
        self.engine.compactions.add(("failed",))
        (run.summariser or self._unknown()).add_usage(data.usage, data.cost)

    def _on_memory_degraded(self, run: _Run, data: e.MemoryDegraded) -> None:
        self.engine.degraded.add()
