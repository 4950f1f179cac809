"""What Treadle reports about a run, as sentences for people: one definition for all surfaces.

A sentence may contain text of a model or a tool. Surfaces make it inert and cut it."""

from typing import NamedTuple

from treadle.domain import events as e
from treadle.domain.durations import format_duration
from treadle.domain.graphemes import truncate
from treadle.domain.memories import describe_recall
from treadle.domain.modes import describe_mode
from treadle.domain.time_format import format_second
from treadle.domain.transcript import NoteLevel

MAX_QUOTE_CHARACTERS = 200
LONG_WAIT_MS = 60_000
"""For longer waits, the note gives the time at which they end."""
QUOTAS = {
    "tokens": "tokens of this hour",
    "calls": "tool calls of this minute",
    "credits": "credits",
    "cost": "dollars",
    "steps": "steps",
    "runs": "runs",
}


class Note(NamedTuple):
    """A sentence about an event."""

    text: str
    level: NoteLevel = "info"
    details: str = ""
    call_id: str = ""
    number: int = 1


def describe_event(data: e.EventData) -> Note | None:
    """Return the note about an event, or None. Most events have none: what matters is an item of its own."""
    return (
        _describe_run(data)
        or _describe_model(data)
        or _describe_guard(data)
        or _describe_permission(data)
        or _describe_context(data)
        or _describe_evaluation(data)
        or _describe_connection(data)
    )


def describe_retry(failure: str, retry: e.LlmRetry) -> str:
    """Return why and when a request is sent again."""
    when = f"{retry.delay_ms / 1000:.1f} s"
    if retry.delay_ms >= LONG_WAIT_MS:
        when = f"{format_duration(retry.delay_ms / 1000)}, at {format_second(retry.wake_at)}"
    return f"{failure} Retrying in {when}."


def describe_ended_wait(wait: e.RunWaiting) -> str:
    """Return the note about a wait that is over."""
    return "Interrupted." if wait.reason == "interrupted" else f"waited: {wait.detail}"


def _describe_run(data: e.EventData) -> Note | None:
    match data:
        case e.RunStart():
            return _describe_small_model(data)
        case e.RunForked(step=step, run_id=source):
            return Note(f"Continues from step {step} of {source}.")
        case e.RunRecovered(reason=reason):
            return Note(f"recovered: {reason}")
        case e.RunQuarantined(recoveries=recoveries):
            return Note(f"quarantined: its worker died {recoveries} times without progress", "error")
        case e.RunInterrupted(reason=reason):
            return Note(f"interrupt requested: {_quote(reason)}", "detail")
        case e.CancelRequested(reason=reason):
            return Note(f"cancel requested: {_quote(reason)}", "detail")
        case e.ResumeRequested():
            return Note("resume requested", "detail")
        case e.RunWaiting(reason="quota" | "budget" | "unavailable" as reason, detail=detail):
            return Note(f"waiting: {detail}", "warning" if reason == "unavailable" else "info")
        case e.RunWaiting(reason="interrupted"):
            return Note("Interrupted. The next message resumes the run.", "warning")
        case e.TrialStarted(members=members) if members > 1:
            return Note(f"executes in a trial of {members} runs, because workers died", "detail")
        case _:
            return None


def _describe_small_model(start: e.RunStart) -> Note | None:
    """Return what a run does without because its model is small, and how to get it."""
    missing = [f"{len(start.withheld)} tools withheld"] if start.withheld else []
    missing += ["nothing recalled"] if start.recall == 0 else []
    how = "; `--tools @small` gives it some" if start.withheld else ""
    if not missing:
        return None
    return Note(f"small model (under one billion parameters): {', '.join(missing)}{how}")


def _describe_model(data: e.EventData) -> Note | None:
    match data:
        case e.LlmFallback(to=to, reason=reason):
            return Note(f"{reason} Falling back to {to}.", "warning")
        case e.BreakerOpened(provider=provider, model=model):
            return Note(f"{provider}/{model} fails too often; its circuit breaker is open", "warning")
        case e.BreakerClosed(provider=provider, model=model):
            return Note(f"{provider}/{model} answers again")
        case e.EmptyTurn():
            return Note("the model said nothing; it is asked again")
        case e.Continuation(count=count):
            return Note(f"the reply is not complete; continuing ({count})")
        case e.CallWritten(received=received):
            return Note(f"it wrote a tool call as text: {_quote(received)}; it is asked again")
        case e.CallsDropped(dropped=dropped, limit=limit):
            total = limit + dropped
            return Note(
                f"it made {total:,} tool calls at once; {dropped:,} were dropped; the model gets a note", "warning"
            )
        case e.OutputRejected(error=error):
            return Note(f"the answer does not fit the schema: {_quote(error)}; it is asked again")
        case _:
            return None


def _describe_guard(data: e.EventData) -> Note | None:
    match data:
        case e.LoopWarning(tool=tool, count=count):
            return Note(f"{tool} was called {count} times in the same way; the model gets a note", "warning")
        case e.StuckDetected(kind=kind, count=count):
            return Note(f"stuck: {kind.replace('_', ' ')} ({count})", "warning")
        case e.RecoveryAction(stage=stage):
            return Note(f"recovery: {stage.replace('_', ' ')}", "warning")
        case e.PhantomAction(claim=claim):
            return Note(f"it claims what it has not done: {_quote(claim)}; it is asked again", "warning")
        case e.BudgetHint(percent=percent):
            return Note(f"the model is told that {percent} % of a limit is used", "detail")
        case e.QuotaWarning(account=account, kind=kind, ceiling=ceiling, used=used):
            return Note(f"{account} has used {used:,.6g} of {ceiling:,.6g} {QUOTAS[kind]}", "warning")
        case _:
            return None


def _describe_permission(data: e.EventData) -> Note | None:
    match data:
        case e.ResultTruncated(length=length, shown=shown, call_id=call_id):
            text = f"{shown} of {length} characters go to the model; it can recall the rest"
            return Note(text, "detail", call_id=call_id)
        case e.ProcessKilled(why=why, processes=processes, call_id=call_id):
            return Note(f"stopped ({why}), with {processes} of its processes", "detail", call_id=call_id)
        case e.SandboxDenied(reason=reason, call_id=call_id):
            return Note(f"not run: {_quote(reason)}", "warning", call_id=call_id)
        case e.ModeChanged(mode=mode, by=by):
            return Note(f"mode: {describe_mode(mode)}{f', by {_quote(by)}' if by else ''}")
        case e.SecretUsed(name=name, tool=tool, call_id=call_id):
            return Note(f"{tool} uses the secret {name}", call_id=call_id)
        case e.SecretDenied(name=name, tool=tool, call_id=call_id):
            return Note(f"{tool} may not use the secret {name}", "warning", call_id=call_id)
        case e.Redacted(names=names, where=where):
            return Note(f"taken out of the {where.replace('_', ' ')}: {', '.join(names)}")
        case _:
            return None


def _describe_context(data: e.EventData) -> Note | None:
    match data:
        case e.ContextTrimmed(stage="history", dropped=(first, last)):
            return Note(f"the oldest {last - first} messages are left out")
        case e.ContextTrimmed(results=results, freed=freed):
            text = f"{len(results)} long results are cut, which frees about {freed} tokens; they can be recalled"
            return Note(text)
        case e.CompactionStarted(trigger="command", first=first, last=last):
            return Note(f"{last - first} messages are being summed up")
        case e.CompactionStarted(first=first, last=last):
            return Note(f"the conversation has grown long: {last - first} messages are being summed up")
        case e.CompactionFailed(reason=reason):
            return Note(f"no summary could be made, and nothing is lost: {_quote(reason)}", "warning")
        case e.ContextCompacted(tokens_before=before, tokens_after=after, summary=summary):
            return Note(f"summed up: about {before} tokens before, {after} now", details=summary)
        case e.MemoryRecalled() if data.count:
            return Note(describe_recall(data.count), details=data.texts, number=data.count)
        case e.MemoryDegraded(reason=reason):
            return Note(f"memory is searched by words alone: {_quote(reason)}")
        case _:
            return None


def _describe_evaluation(data: e.EventData) -> Note | None:
    match data:
        case e.QualityScored(score=None, reasons=reasons):
            return Note(f"not judged: {_quote(reasons)}")
        case e.QualityScored(score=score, reasons=reasons, note=note):
            return Note(f"judged {score:.2f}{', and sent back' if note else ''}: {_quote(reasons)}")
        case e.ErrorAnalyzed(diagnosis="", reason=reason):
            return Note(f"no diagnosis: {_quote(reason)}")
        case e.ErrorAnalyzed(diagnosis=diagnosis):
            return Note(f"diagnosis: {diagnosis}")
        case _:
            return None


def _describe_connection(data: e.EventData) -> Note | None:
    match data:
        case e.McpConnected(server=server, title=title):
            return Note(f"connected to the MCP server {server} ({_quote(title)})", "detail")
        case e.McpDisconnected(server=server, reason=reason):
            return Note(f"lost the MCP server {server}: {_quote(reason)}", "warning")
        case _:
            return None


def _quote(text: str) -> str:
    """Return the beginning of a text on one line."""
    return truncate(" ".join(text[: MAX_QUOTE_CHARACTERS * 2].split()), MAX_QUOTE_CHARACTERS)
