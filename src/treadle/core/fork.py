"""The position of a run just before a model request: everything that a fork needs to continue from there."""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from treadle.core.state import RunState
from treadle.core.tools.ledger import digest_result, digest_untimed_result, is_poll, make_call_key
from treadle.domain import events as e
from treadle.domain.envelope import Event
from treadle.domain.events import CallEnding, Counters, Measured, ReusedCall, RunForked
from treadle.domain.messages import ToolUse
from treadle.domain.tools import ToolSpec

Turns = tuple[tuple[ReusedCall, ...], ...]


def make_fork(state: RunState, events: Iterable[Event], request: e.LlmRequest) -> RunForked:
    """Return what the steps before a request have left behind.

    `state` is the state of the run just after the request was sent, and `events` are its events up to then."""
    messages = state.transcript.messages
    event_list = list(events)
    start = next((event.data for event in event_list if isinstance(event.data, e.RunStart)), None)
    return RunForked(
        run_id=state.origin.run_id,
        step=request.step,
        asked=state.submitted_text,
        tasks=tuple([index for index, message in enumerate(messages) if message in state.context.tasks]),
        calls=collect_calls(event_list, state.tools),
        counters=_read_counters(state, request),
        measured=_read_measured(state),
        route=_find_first_route(event_list) if state.agent.routing is not None else "",
        plain=state.attempts.plain and not state.attempts.fallbacks_used,
        unconstrained=state.attempts.unconstrained and not state.attempts.fallbacks_used,
        recalled=_find_system_memories(event_list),
        notes="" if start is None else start.notes,
        workspace="" if start is None else start.workspace,
    )


def _read_counters(state: RunState, request: e.LlmRequest) -> Counters:
    recovery = state.guards.recovery
    return Counters(
        answer=state.turn.answer_so_far,
        continuations=state.guards.continuations,
        empty_turns=state.guards.empty_turns,
        rejected_outputs=state.guards.rejected_outputs,
        claims=state.guards.phantom_claims,
        claim="" if state.guards.claimed_answer is None else state.guards.claimed_answer[1],
        quiet_steps=recovery.quiet_steps,
        stage=recovery.stage,
        refused_tool=recovery.refused_tool,
        report_due=not request.tools_offered,
        detected_at=recovery.detected_at,
    )


def _read_measured(state: RunState) -> Measured | None:
    if state.context.counted_by is None:
        return None
    provider, model = state.context.counted_by
    tokens = state.context.tokens
    return Measured(
        provider=provider,
        model=model,
        unseen=tokens.unseen,
        counted=tokens.counted,
        guessed=tokens.guessed,
        rate=tokens.rate,
        reports=tokens.reports,
        added_counted=tokens.added_counted,
        added_guessed=tokens.added_guessed,
    )


def _find_first_route(events: Iterable[Event]) -> str:
    """Return the model that the run was routed to before any fallback."""
    return next((event.data.route for event in events if isinstance(event.data, e.ModelResolved)), "")


def _find_system_memories(events: Iterable[Event]) -> str:
    """Return the memories in the system prompt."""
    section = ""
    for event in events:
        match event.data:
            case RunForked(recalled=recalled):
                section = recalled
            case e.MemoryRecalled(place="system", section=section):
                section = section
            case _:
                pass
    return section


def collect_calls(events: Iterable[Event], tools: dict[str, ToolSpec]) -> Turns:
    """Return the calls that were made and their results, turn by turn. The calls from before an earlier fork come
    first."""
    turns: list[RecordedTurn] = []
    earlier: Turns = ()
    for event in events:
        match event.data:
            case RunForked(calls=calls):
                earlier = calls
            case e.LlmResponse(parts=parts, stop=stop) if stop != "interrupted":
                uses = [part for part in parts if isinstance(part, ToolUse)]
                if uses:
                    turns.append(
                        RecordedTurn({use.call_id: _make_reused_call(use, tools.get(use.name)) for use in uses})
                    )
            case e.ToolCallEnd(call_id, _, content) if turns:
                turns[-1].end(call_id, "ok", content)
            case e.ToolCallError(call_id=call_id, kind="denied") if turns:
                turns[-1].end(call_id, "denied")
            case e.ToolCallError(call_id=call_id, content=content) if turns:
                turns[-1].end(call_id, "failed", content)
            case e.ToolCallBlocked(call_id=call_id) | e.HookBlocked(call_id=call_id) if turns:
                turns[-1].end(call_id, "refused")
            case _:
                pass
    return (*earlier, *(tuple(turn.calls.values()) for turn in turns))


def _make_reused_call(use: ToolUse, spec: ToolSpec | None) -> ReusedCall:
    name, writes = (use.name, False) if spec is None else (spec.name, spec.writes)
    return ReusedCall(use.call_id, name, make_call_key(use), writes=writes, polls=is_poll(use, spec))


@dataclass(slots=True)
class RecordedTurn:
    """The calls of a reply, in the order in which the model made them."""

    calls: dict[str, ReusedCall]
    ended: int = 0

    def end(self, call_id: str, ending: CallEnding, content: str = "") -> None:
        if (call := self.calls.get(call_id)) is not None:
            told = digest_result(content).hex() if ending in ("ok", "failed") else ""
            untimed = digest_untimed_result(content).hex() if ending == "ok" else ""
            self.calls[call_id] = msgspec.structs.replace(
                call, ended=ending, told=told, untimed=untimed, after=self.ended
            )
            self.ended += 1
