"""The running totals of a run: its state, its time without waits, and what it has used."""

from msgspec.structs import replace

from treadle.domain import events as e
from treadle.domain.envelope import Event
from treadle.domain.lineage import DELEGATION_TOOLS, EVALUATOR_ROLES
from treadle.domain.runs import Usage
from treadle.domain.transcript import Activity, RunTotals

_STARTS_WORK = (
    e.RunStart, e.StepStart, e.LlmRequest, e.ToolCallStart, e.ClientCallRequested, e.AgentSpawn,
    e.CompactionStarted, e.RunRecovered, e.CommandObeyed,
)  # fmt: skip
"""Events that only a worker appends which executes the run."""


class TotalsFold:
    """Applies events to the totals."""

    def __init__(self) -> None:
        self.totals = RunTotals()
        self._credits_per_dollar = 1.0

    def apply(self, event: Event) -> None:
        """Apply a durable event."""
        data = event.data
        if isinstance(data, _STARTS_WORK):
            self._start_work(event.timestamp)
        match data:
            case (
                e.LlmRequest() | e.LlmResponse() | e.LlmError() | e.LlmRetry() | e.ModelResolved() | e.LlmFallback()
            ):
                self._apply_model(event.timestamp, data)
            case e.ToolCallStart(name=name) | e.ClientCallRequested(name=name):
                self._change(activity="calling", tool=name, tool_calls=self.totals.tool_calls + 1)
            case e.StepStart(step=step):
                self._change(steps=step, activity="thinking", detail="")
            case e.CompactionStarted():
                self._change(activity="compacting")
            case e.ContextCompacted(usage=usage, cost=cost, tokens_after=after):
                self._count(usage, cost, data.calls)
                self._change(context_tokens=after)
            case e.CompactionFailed(usage=usage, cost=cost):
                self._count(usage, cost, data.calls)
            case e.SegmentOpened(reason=reason) if reason != "compaction":
                self._change(context_tokens=0, has_new_conversation=True)
            case e.AgentSpawn() | e.AgentEnd():
                self._apply_child(data)
            case e.ModeChanged(mode=mode):
                self._change(mode=mode)
            case _:
                self._apply_run(event)

    def note_activity(self, activity: Activity, tool: str = "") -> None:
        """Note what the model is writing."""
        if self.totals.activity != activity or self.totals.tool != tool:
            self._change(activity=activity, tool=tool)

    def _change(self, **changes: object) -> None:
        self.totals = replace(self.totals, **changes)

    def _start_work(self, at: float) -> None:
        if self.totals.active_since is None and self.totals.outcome is None:
            self._change(status="running", waiting_for=None, detail="", wake_at=None, active_since=at)

    def _stop_work(self, at: float) -> None:
        self._change(active_ms=self.totals.elapsed_ms(at), active_since=None, asked_at=None, activity="", tool="")

    def _apply_run(self, event: Event) -> None:
        data = event.data
        match data:
            case e.RunQueued(agent=agent, command=command):
                self._credits_per_dollar = data.credits_per_dollar
                self._change(
                    agent=agent.name,
                    model=self.totals.model or agent.model,
                    is_command=command is not None,
                    mode=data.mode,
                )
            case e.RunStart():
                self._change(started_at=event.timestamp, activity="thinking")
            case e.RunWaiting(reason=reason, detail=detail, wake_at=wake_at):
                self._stop_work(event.timestamp)
                self._change(status="waiting", waiting_for=reason, detail=detail, wake_at=wake_at)
            case e.RunInterrupted():
                self._change(is_interrupted=True)
            case e.ResumeRequested() | e.MessageSteered():
                self._change(is_interrupted=False)
            case e.CommandObeyed(done=done, said=said):
                self._change(detail="" if done else said)
            case e.QualityScored(score=score):
                self._change(score=score)
            case e.RunEnd():
                self._end(data, event.timestamp)
            case _:
                pass

    def _apply_model(
        self,
        at: float,
        data: e.LlmRequest | e.LlmResponse | e.LlmError | e.LlmRetry | e.ModelResolved | e.LlmFallback,
    ) -> None:
        match data:
            case e.ModelResolved(provider=provider, model=model, context_window=window):
                self._change(provider=provider, model=model, context_window=window)
            case e.LlmFallback():
                self._change(failure="")
            case e.LlmRequest(provider=provider, model=model, input_estimate=estimate):
                self._change(
                    provider=provider,
                    model=model,
                    asked_at=at,
                    activity="thinking",
                    wake_at=None,
                    has_new_conversation=False,
                    context_tokens=estimate or self.totals.context_tokens,
                )
            case e.LlmResponse(usage=usage, cost=cost):
                self._count(usage, cost)
                self._change(
                    failure="", wake_at=None, asked_at=None, context_tokens=usage.input_tokens + usage.output_tokens
                )
            case e.LlmError(message=message, usage=usage, cost=cost):
                self._count(usage, cost)
                self._change(failure=message, activity="", asked_at=None)
            case e.LlmRetry(wake_at=wake_at):
                self._change(wake_at=wake_at)

    def _count(self, usage: Usage, cost: float | None, calls: int = 1) -> None:
        """Count model calls. A failed call that used nothing cost nothing."""
        now = self.totals
        unpriced = calls if cost is None else 0
        known = now.cost if cost is None else (now.cost or 0.0) + cost
        tree = now.tree_cost if cost is None else (now.tree_cost or 0.0) + cost
        self._change(
            model_calls=now.model_calls + calls,
            input_tokens=now.input_tokens + usage.input_tokens,
            output_tokens=now.output_tokens + usage.output_tokens,
            cache_read_tokens=now.cache_read_tokens + usage.cache_read_tokens,
            cost=known,
            unpriced_calls=now.unpriced_calls + unpriced,
            tree_cost=tree,
            tree_unpriced_calls=now.tree_unpriced_calls + unpriced,
            credits=None if known is None else known * self._credits_per_dollar,
        )

    def _apply_child(self, data: e.AgentSpawn | e.AgentEnd) -> None:
        now = self.totals
        match data:
            case e.AgentSpawn(role=role):
                if role not in EVALUATOR_ROLES:
                    self._change(activity="calling", tool=DELEGATION_TOOLS[role], tool_calls=now.tool_calls + 1)
            case e.AgentEnd():
                used = data.tree_metrics or data.metrics
                if used.model_calls > used.unpriced_calls or used.cost:
                    self._change(tree_cost=(now.tree_cost or 0.0) + used.cost)
                self._change(tree_unpriced_calls=now.tree_unpriced_calls + used.unpriced_calls)

    def _end(self, data: e.RunEnd, at: float) -> None:
        self._stop_work(at)
        metrics = data.metrics
        self._change(
            status=data.status,
            outcome=data.outcome,
            waiting_for=None,
            wake_at=None,
            detail="" if data.status == "completed" else self.totals.detail,
            steps=metrics.steps,
            score=data.score if data.score is not None else self.totals.score,
        )
