"""Evaluation of how a run ends, if its agent wants that: an answer is scored, a failure is diagnosed. The
evaluator is a child run that can neither fail the run nor hold it up for long."""

import re

import msgspec
from msgspec import Struct

from treadle.core.state import RunState
from treadle.core.steps import Evaluate, Finish
from treadle.core.subagents.child import Child
from treadle.domain.events import ErrorAnalyzed, EventData, QualityScored
from treadle.domain.ids import Instant
from treadle.domain.runs import Outcome

_TAGS = re.compile(r"<(?=\s*/?\s*(?:task|output|outcome|last_calls)\b)", re.IGNORECASE)
MAX_VERDICT_CHARACTERS = 4000
"""Maximum length of a verdict, which becomes part of the run's end and of the next prompt."""
SCORED_OUTCOMES = ("completed", "truncated")
"""Outcomes that are scored."""
UNPAYABLE_OUTCOMES = ("budget_exhausted", "quota_exceeded", "insufficient_credits")
"""Outcomes after which a diagnosis cannot be paid for."""
UNANALYZED_OUTCOMES = ("cancelled", "quarantined", "refused")
"""Outcomes whose cause is known, or that must not be retried."""
TRY_AGAIN = (
    "Your answer was scored {score:.2f} before delivery; at least {minimum:.2f} is required. Problems: {reasons} "
    "Fix them, and give your whole answer again."
)


def evaluate_end(state: RunState, finish: Finish) -> Evaluate | Finish:
    """Return the evaluation that must come before this end, or the end if there is none."""
    lineage, outcome = state.lineage, finish.outcome
    if state.command is not None or (lineage is not None and lineage.judges):
        return finish
    if outcome.status == "failed" and state.evaluation.fallback_end is not None:
        # an evaluation cannot fail a run that had an answer
        return Finish(state.evaluation.fallback_end, finish.events)
    if outcome.kind in SCORED_OUTCOMES:
        checker = state.agent.quality.checker
        is_judged = state.evaluation.evaluated_request == state.attempts.request
        return finish if checker is None or is_judged else Evaluate("quality", checker, outcome, finish.events)
    analyzer = state.agent.errors.analyzer
    if (
        analyzer is None
        or outcome.status != "failed"
        or outcome.kind in UNANALYZED_OUTCOMES
        or state.evaluation.analyzed is not None
    ):
        return finish
    if outcome.kind in UNPAYABLE_OUTCOMES:
        return Finish(
            outcome, (*finish.events, ErrorAnalyzed(analyzer, reason=f"It was not asked: {outcome.reason}"))
        )
    return Evaluate("errors", analyzer, outcome, finish.events)


def read_verdict(state: RunState, child: Child, now: Instant) -> QualityScored | ErrorAnalyzed | None:
    """Return the evaluator's verdict, or why there will be none. Return None if it has not answered yet."""
    spawn, end = child.spawn, child.end
    if end is None and (child.due_at is None or now < child.due_at):
        return None
    if end is None:
        return make_missing_verdict(spawn.role == "quality", spawn.agent, "It did not answer in time.", child)
    if end.outcome != "completed":
        return make_missing_verdict(spawn.role == "quality", spawn.agent, f"It did not answer: {end.reason}", child)
    if spawn.role == "errors":
        return ErrorAnalyzed(spawn.agent, spawn.run_id, _shorten(end.text.strip()))
    return _read_score(state, child, end.text)


def make_missing_verdict(
    is_quality: bool, agent: str, reason: str, child: Child | None = None
) -> QualityScored | ErrorAnalyzed:
    """Return the event that records that no verdict was given."""
    run_id = None if child is None else child.spawn.run_id
    return QualityScored(agent, run_id, None, reason) if is_quality else ErrorAnalyzed(agent, run_id, "", reason)


class _Score(Struct, frozen=True):
    score: float
    reasons: str | list[str] = ""


def _read_score(state: RunState, child: Child, text: str) -> QualityScored:
    agent, run_id = child.spawn.agent, child.spawn.run_id
    try:
        score = msgspec.json.decode(_find_json_object(text), type=_Score)
    except msgspec.MsgspecError:
        return QualityScored(agent, run_id, None, "It did not answer with a score and reasons.")
    if not 0 <= score.score <= 1:
        return QualityScored(agent, run_id, None, f"Its score is {score.score:g}, which is not from 0 to 1.")
    reasons = _shorten(score.reasons if isinstance(score.reasons, str) else "; ".join(score.reasons))
    return QualityScored(agent, run_id, score.score, reasons, _make_retry_note(state, score.score, reasons))


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_VERDICT_CHARACTERS else f"{text[:MAX_VERDICT_CHARACTERS]}…"


def _find_json_object(text: str) -> str:
    """Return the JSON object in an answer, which may be fenced or surrounded by text."""
    first, last = text.find("{"), text.rfind("}")
    return text[first : last + 1] if 0 <= first < last else text


def _make_retry_note(state: RunState, score: float, reasons: str) -> str:
    """Return the note that asks the agent to try again, or ""."""
    quality, attempts = state.agent.quality, sum(bool(each.note) for each in state.evaluation.verdicts)
    if quality.minimum is None or score >= quality.minimum or attempts >= quality.retries:
        return ""
    return TRY_AGAIN.format(score=score, minimum=quality.minimum, reasons=reasons or "no reasons were given.")


def summarise_verdicts(state: RunState) -> tuple[float | None, str, str]:
    """Return the latest score and its reasons, and the diagnosis."""
    scored = [each for each in state.evaluation.verdicts if each.score is not None]
    diagnosis = "" if state.evaluation.analyzed is None else state.evaluation.analyzed.diagnosis
    return (scored[-1].score, scored[-1].reasons, diagnosis) if scored else (None, "", diagnosis)


def make_evaluation_prompt(role: str, state: RunState, end: Outcome) -> str:
    """Return what the evaluator is told of the run. Its parts are escaped, so that none can pass for another."""
    calls = [f"- {call.name} {call.use.arguments[:300]}" for call in state.turn.calls]
    parts = [
        _wrap_in_tag("task", state.submitted_text),
        _wrap_in_tag("output", end.text) if end.text or role == "quality" else "",
        _wrap_in_tag("outcome", f"{end.kind}: {end.reason}") if role == "errors" else "",
        _wrap_in_tag("last_calls", "\n".join(calls)) if calls and role == "errors" else "",
    ]
    return "\n\n".join(part for part in parts if part)


def _wrap_in_tag(tag: str, text: str) -> str:
    return f"<{tag}>\n{_TAGS.sub('&lt;', text)}\n</{tag}>"


def remove_note(event: QualityScored | ErrorAnalyzed) -> EventData:
    return msgspec.structs.replace(event, note="") if isinstance(event, QualityScored) else event
