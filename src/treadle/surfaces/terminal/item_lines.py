"""Lines for the terminal about the items of a transcript: calls, their results, and what Treadle did."""

from collections.abc import Iterator, Sequence

from treadle.domain.lineage import DELEGATION_TOOLS, EVALUATOR_ROLES
from treadle.domain.plans import PLAN_MARKS, summarize_plan
from treadle.domain.tools import PLAN_TOOL
from treadle.domain.transcript import (
    ApprovalItem,
    CallItem,
    ChildItem,
    Item,
    MessageItem,
    NoteItem,
    PlanItem,
    PlanStep,
)
from treadle.surfaces.terminal.call_view import summarize_call
from treadle.surfaces.terminal.output import short_id
from treadle.surfaces.terminal.text import one_line

WIDTH = 100
NARROW, WIDE = WIDTH, 1000
"""Maximum characters of a call: in a file, and on a terminal."""
REMEDY = "to have such calls run: answer with `treadle run --yes`, or run it at a terminal"
DELEGATIONS = frozenset(DELEGATION_TOOLS.values())
INDENTED = ("mcp_connected", "mcp_disconnected", "redacted")
"""Topics of notes that belong to what is above, apart from those about a call."""


def list_lines(item: Item, before: Item | None, width: int = NARROW) -> Iterator[str]:
    """Yield the lines about an item that is new or has changed."""
    match item:
        case CallItem():
            yield from _list_call_lines(item, before if isinstance(before, CallItem) else None, width)
        case ApprovalItem(state="approved" | "denied" as state, note=note):
            yield f"  {state}: “{one_line(note)}”" if note else f"  {state}"
        case ApprovalItem(state="expired", approval_id=approval_id):
            yield f"  {approval_id} has expired"
        case PlanItem(steps=steps):
            yield from _list_plan_lines(steps)
        case ChildItem():
            yield from _list_child_lines(item, before if isinstance(before, ChildItem) else None)
        case NoteItem():
            yield from _list_note_lines(item, before if isinstance(before, NoteItem) else None)
        case MessageItem(delivery="steer" | "interrupt", text=text):
            yield f"message to the run: {one_line(text, WIDTH)}"
        case _:
            pass


def _list_call_lines(call: CallItem, before: CallItem | None, width: int) -> Iterator[str]:
    if before is not None and (before.state, before.error) == (call.state, call.error):
        return
    if call.name == PLAN_TOOL and call.state in ("running", "done"):
        return  # the plan is printed
    match call.state:
        case "running" if call.name not in DELEGATIONS:
            yield f"· {call.name} {summarize_call(call.arguments, width)}".rstrip()
        case "denied" if call.error is not None:
            what = f" ({summarize_call(call.arguments, WIDE)})" if call.arguments else ""
            yield f"  {call.name} denied{what}: {one_line(explain_failure(call))}"
            if call.cause == "no_reviewer":
                yield f"  {REMEDY}"
        case "blocked":
            yield f"  {call.name} blocked by the {call.blocked_by}: {one_line(call.result, WIDTH)}"
        case "done" | "failed" if call.error is None:
            yield f"  {call.name}: {one_line(call.result, WIDTH) or '(nothing)'} · {call.duration_ms or 0} ms"
        case "failed" if call.error is not None:
            yield f"  {call.name} {call.error.replace('_', ' ')}: {one_line(explain_failure(call), WIDTH)}"
        case _:
            pass


def _list_plan_lines(steps: Sequence[PlanStep]) -> Iterator[str]:
    """Yield a new plan whole, and one line for each of its changes."""
    yield f"  plan: {one_line(summarize_plan(steps), WIDTH)}"
    if all(step.status != "completed" for step in steps):
        yield from (f"    {PLAN_MARKS[step.status]} {one_line(step.text, WIDTH)}" for step in steps)


def explain_failure(call: CallItem) -> str:
    """Return why a call failed."""
    if call.cause == "no_reviewer":
        return f"it needs an approval, and there is no reviewer to ask ({call.result})"
    return f"{call.exception}: {call.result}" if call.exception else call.result


def _list_child_lines(child: ChildItem, before: ChildItem | None) -> Iterator[str]:
    agent, run_id = child.agent, child.child_run_id
    if before is None:
        if child.role in EVALUATOR_ROLES:
            yield f"{agent} looks at how it ends"
        else:
            without = f", without {', '.join(child.withheld)}" if child.withheld else ""
            yield f"· {agent} begins as {run_id}{without}"
    elif child.state == "ended" and child.outcome is not None:
        yield f"  {agent} has ended ({child.outcome}): {run_id}"
    elif child.waiting_for == "interrupted":
        yield f"  {agent} was interrupted and waits to be resumed: {run_id}"
    elif child.waiting_for:
        yield f"  {agent} waits for an {child.waiting_for}: {run_id}"
    elif before.waiting_for and child.state == "running":
        yield f"  {agent} goes on: {run_id}"


def _list_note_lines(note: NoteItem, before: NoteItem | None) -> Iterator[str]:
    is_parked = note.topic == "run_waiting" and note.level == "warning"
    if note.level == "detail" or note.topic in ("llm_error", "run_forked") or is_parked:
        return  # the end of the run, or the command that started or follows it, says it
    if before is not None and (note.wake_at is None or note.text == before.text):
        return  # the countdown of a retry has ended
    margin = "  " if note.call_id or note.topic in INDENTED else ""
    how = f"; to read them: treadle runs prompt {short_id(note.run_id)}" if note.topic == "memory_recalled" else ""
    yield f"{margin}{one_line(note.text)}{how}"
