"""How a run ends is looked at before it ends, where its agent wants that: what it has produced is scored, what has
failed is diagnosed. Whoever judges is a run under this one that can neither fail it nor keep it for long."""

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
"""Characters of what whoever judges has to say: it stands in the end of the run, and in the next prompt."""
SCORED_OUTCOMES = ("completed", "truncated")
"""The outcomes that are scored."""
UNPAYABLE_OUTCOMES = ("budget_exhausted", "quota_exceeded", "insufficient_credits")
"""Nothing is left to pay for a diagnosis."""
UNANALYZED_OUTCOMES = ("cancelled", "quarantined")
"""Nobody need find out why, or nobody must try."""
TRY_AGAIN = (
    "Your answer was judged before it was handed on, and scored {score:.2f}; at least {minimum:.2f} is wanted. "
    "What was found wanting: {reasons} Mend that, and give your whole answer again."
)


def evaluate_end(state: RunState, finish: Finish) -> Evaluate | Finish:
    """Whoever is to look at this end; or the end itself, where nobody is."""
    lineage, outcome = state.lineage, finish.outcome
    if state.command is not None or (lineage is not None and lineage.judges):
        return finish
    if outcome.status == "failed" and state.kept is not None:
        return Finish(state.kept, finish.events)  # nobody who judges can fail a run that had an answer
    if outcome.kind in SCORED_OUTCOMES:
        checker, is_judged = state.agent.quality.checker, state.judged_request == state.request
        return finish if checker is None or is_judged else Evaluate("quality", checker, outcome, finish.events)
    analyzer = state.agent.errors.analyzer
    if (
        analyzer is None
        or outcome.status != "failed"
        or outcome.kind in UNANALYZED_OUTCOMES
        or state.analyzed is not None
    ):
        return finish
    if outcome.kind in UNPAYABLE_OUTCOMES:
        return Finish(
            outcome, (*finish.events, ErrorAnalyzed(analyzer, reason=f"It was not asked: {outcome.reason}"))
        )
    return Evaluate("errors", analyzer, outcome, finish.events)


def read_verdict(state: RunState, child: Child, now: Instant) -> QualityScored | ErrorAnalyzed | None:
    """What whoever judges has said, or why nothing is to be expected; None: it has not said anything yet."""
    spawn, end = child.spawn, child.end
    if end is None and (child.due_at is None or now < child.due_at):
        return None
    if end is None:
        return make_unjudged(spawn.role == "quality", spawn.agent, "It did not answer in time.", child)
    if end.outcome != "completed":
        return make_unjudged(spawn.role == "quality", spawn.agent, f"It did not answer: {end.reason}", child)
    if spawn.role == "errors":
        return ErrorAnalyzed(spawn.agent, spawn.run_id, _shorten(end.text.strip()))
    return _read_score(state, child, end.text)


def make_unjudged(
    is_quality: bool, agent: str, why: str, child: Child | None = None
) -> QualityScored | ErrorAnalyzed:
    """What is on record where nobody could judge."""
    run_id = None if child is None else child.spawn.run_id
    return QualityScored(agent, run_id, None, why) if is_quality else ErrorAnalyzed(agent, run_id, "", why)


class _Score(Struct, frozen=True):
    score: float
    reasons: str | list[str] = ""


def _read_score(state: RunState, child: Child, text: str) -> QualityScored:
    agent, run_id = child.spawn.agent, child.spawn.run_id
    try:
        found = msgspec.json.decode(_find_json_object(text), type=_Score)
    except msgspec.MsgspecError:
        return QualityScored(agent, run_id, None, "It did not answer with a score and reasons.")
    if not 0 <= found.score <= 1:
        return QualityScored(agent, run_id, None, f"Its score is {found.score:g}, which is not from 0 to 1.")
    reasons = _shorten(found.reasons if isinstance(found.reasons, str) else "; ".join(found.reasons))
    return QualityScored(agent, run_id, found.score, reasons, _make_retry_note(state, found.score, reasons))


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_VERDICT_CHARACTERS else f"{text[:MAX_VERDICT_CHARACTERS]}…"


def _find_json_object(text: str) -> str:
    """The JSON object in an answer, which may stand in a fence or beside a few words."""
    first, last = text.find("{"), text.rfind("}")
    return text[first : last + 1] if 0 <= first < last else text


def _make_retry_note(state: RunState, score: float, reasons: str) -> str:
    """What the agent is told, if it is to try again."""
    quality, tries = state.agent.quality, sum(bool(each.note) for each in state.judged)
    if quality.minimum is None or score >= quality.minimum or tries >= quality.retries:
        return ""
    return TRY_AGAIN.format(score=score, minimum=quality.minimum, reasons=reasons or "no reasons were given.")


def summarise_verdicts(state: RunState) -> tuple[float | None, str, str]:
    """The latest score of what was produced, and its reasons; and the diagnosis of what has failed."""
    scored = [each for each in state.judged if each.score is not None]
    diagnosis = "" if state.analyzed is None else state.analyzed.diagnosis
    return (scored[-1].score, scored[-1].reasons, diagnosis) if scored else (None, "", diagnosis)


def make_evaluation_prompt(role: str, state: RunState, end: Outcome) -> str:
    """What whoever judges is told of the run. Nothing of it can pass for another part, or for us."""
    calls = [f"- {call.name} {call.use.arguments[:300]}" for call in state.calls]
    parts = [
        _wrap_in_tag("task", state.asked),
        _wrap_in_tag("output", end.text) if end.text or role == "quality" else "",
        _wrap_in_tag("outcome", f"{end.kind}: {end.reason}") if role == "errors" else "",
        _wrap_in_tag("last_calls", "\n".join(calls)) if calls and role == "errors" else "",
    ]
    return "\n\n".join(part for part in parts if part)


def _wrap_in_tag(tag: str, text: str) -> str:
    return f"<{tag}>\n{_TAGS.sub('&lt;', text)}\n</{tag}>"


def remove_note(event: QualityScored | ErrorAnalyzed) -> EventData:
    return msgspec.structs.replace(event, note="") if isinstance(event, QualityScored) else event
