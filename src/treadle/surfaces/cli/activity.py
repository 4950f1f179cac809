"""One short line per event for the terminal. Lines are rendered from the facts of events."""

from collections.abc import Iterator

from treadle.domain import events as e
from treadle.domain.excerpts import take_excerpt
from treadle.domain.memories import describe_recall
from treadle.surfaces.cli.call_view import summarize_call
from treadle.surfaces.cli.terminal import one_line

WIDTH = 100
NARROW, WIDE = WIDTH, 1000
"""Maximum characters of a call: in a file, and on a terminal."""
QUOTAS = {
    "tokens": "tokens of this hour",
    "calls": "tool calls of this minute",
    "credits": "credits",
    "cost": "dollars",
    "steps": "steps",
    "runs": "runs",
}
REMEDY = "to have such calls run: answer with `treadle run --yes`, or run it at a terminal"


def describe_denial(error: e.ToolCallError, arguments: str | None) -> Iterator[str]:
    """Yield the lines for a denied call: what was denied and why, and the remedy if there was no reviewer."""
    what = f" ({summarize_call(arguments, WIDE)})" if arguments else ""
    yield f"  {error.name} denied{what}: {one_line(_describe_error(error))}"
    if error.cause == "no_reviewer":
        yield f"  {REMEDY}"


def activity(data: e.EventData, width: int = NARROW) -> str | None:
    """Return the line for an event, or None. Most events have none: a quiet terminal shows what matters."""
    match data:
        case e.ToolCallStart(name=name, arguments=arguments):
            return f"· {name} {summarize_call(arguments, width)}".rstrip()
        case e.ToolCallEnd(name=name, content=content, duration_ms=duration_ms):
            return f"  {name}: {one_line(content, WIDTH) or '(nothing)'} · {duration_ms} ms"
        case e.ToolCallError(name=name, kind=kind):
            said = one_line(_describe_error(data), None if kind == "denied" else WIDTH)
            return f"  {name} {kind.replace('_', ' ')}: {said}"
        case e.ToolCallBlocked(name=name, guard=guard, content=content):
            return f"  {name} blocked by the {guard} guard: {one_line(content, WIDTH)}"
        case e.LlmFallback(to=to, reason=reason):
            return f"{one_line(reason)} Falling back to {to}."
        case e.BreakerOpened(provider=provider, model=model):
            return f"{provider}/{model} fails too often; its circuit breaker is open"
        case e.BreakerClosed(provider=provider, model=model):
            return f"{provider}/{model} answers again"
        case e.McpConnected(server=server, title=title):
            return f"  connected to the MCP server {server} ({one_line(title, WIDTH)})"
        case e.McpDisconnected(server=server, reason=reason):
            return f"  lost the MCP server {server}: {one_line(reason, WIDTH)}"
        case e.RunStart():
            return _describe_small_model(data)
        case e.RunRecovered(reason=reason):
            return f"recovered: {reason}"
        case e.MessageSteered(message=message):
            return f"message to the run: {one_line(message.text, WIDTH)}"
        case _:
            return (
                _describe_permission(data)
                or _describe_guard(data)
                or _describe_context(data)
                or _describe_family(data)
            )


def _describe_small_model(start: e.RunStart) -> str | None:
    """Return what a run does without because its model is small, and how to get it."""
    missing = [f"{len(start.withheld)} tools withheld"] if start.withheld else []
    missing += ["nothing recalled"] if start.recall == 0 else []
    how = "; `--tools @small` gives it some" if start.withheld else ""
    return f"small model (under one billion parameters): {', '.join(missing)}{how}" if missing else None


def _describe_error(error: e.ToolCallError) -> str:
    """Return why a call failed, without the words around it that are for the model."""
    reason = take_excerpt(error.content, error.excerpt)
    if error.cause == "no_reviewer":
        return f"it needs an approval, and there is no reviewer to ask ({reason})"
    return f"{error.exception}: {reason}" if error.exception else reason


def _describe_permission(data: e.EventData) -> str | None:
    """Return the line for an event of reviewers, hooks, the sandbox or the vault."""
    match data:
        case e.HookBlocked(name=name, hook=hook):
            reason = take_excerpt(data.content, data.excerpt)
            return f"  {name} blocked by the hook {hook}: {one_line(reason, WIDTH)}"
        case e.ApprovalDecided(decision=decision, note=note):
            decided = "approved" if decision == "approve" else "denied"
            return f"  {decided}: “{one_line(note)}”" if note else f"  {decided}"
        case e.ApprovalExpired(approval_id=approval_id):
            return f"  {approval_id} has expired"
        case e.ResultTruncated(length=length, shown=shown):
            return f"  {shown} of {length} characters go to the model; it can recall the rest"
        case e.ProcessKilled(why=why, processes=processes):
            return f"  stopped ({why}), with {processes} of its processes"
        case e.SandboxDenied(reason=reason):
            return f"  not run: {one_line(reason, WIDTH)}"
        case e.SecretUsed(name=name, tool=tool):
            return f"  {tool} uses the secret {name}"
        case e.SecretDenied(name=name, tool=tool):
            return f"  {tool} may not use the secret {name}"
        case e.Redacted(names=names, where=where):
            return f"  taken out of the {where.replace('_', ' ')}: {', '.join(names)}"
        case _:
            return None


def _describe_guard(data: e.EventData) -> str | None:
    """Return the line for an event of a guard."""
    match data:
        case e.LoopWarning(tool=tool, count=count):
            return f"{tool} was called {count} times in the same way; the model gets a note"
        case e.StuckDetected(kind=kind, count=count):
            return f"stuck: {kind.replace('_', ' ')} ({count})"
        case e.RecoveryAction(stage=stage):
            return f"recovery: {stage.replace('_', ' ')}"
        case e.EmptyTurn():
            return "the model said nothing; it is asked again"
        case e.Continuation(count=count):
            return f"the reply is not complete; continuing ({count})"
        case e.PhantomAction(claim=claim):
            return f"it claims what it has not done: {one_line(claim, WIDTH)}; it is asked again"
        case e.CallWritten(received=received):
            return f"it wrote a tool call as text: {one_line(received, WIDTH)}; it is asked again"
        case e.CallsDropped(dropped=dropped, limit=limit):
            return (
                f"it made {limit + dropped:,} tool calls at once; {dropped:,} were dropped; the model gets a note"
            )
        case e.OutputRejected(error=error):
            return f"the answer does not fit the schema: {one_line(error, WIDTH)}; it is asked again"
        case e.QuotaWarning(account=account, kind=kind, ceiling=ceiling, used=used):
            return f"{account} has used {used:,.6g} of {ceiling:,.6g} {QUOTAS[kind]}"
        case e.RunWaiting("quota" | "budget", detail=detail):
            return f"waiting: {one_line(detail)}"
        case _:
            return None


def _describe_family(data: e.EventData) -> str | None:
    """Return the line for an event of a child run or an evaluation."""
    match data:
        case e.AgentSpawn(role="quality" | "errors", agent=agent):
            return f"{agent} looks at how it ends"
        case e.AgentSpawn(agent=agent, run_id=run_id, withheld=withheld):
            without = f", without {', '.join(withheld)}" if withheld else ""
            return f"· {agent} begins as {run_id}{without}"
        case e.AgentEnd(agent=agent, run_id=run_id, outcome=outcome):
            return f"  {agent} has ended ({outcome}): {run_id}"
        case e.AgentWaiting(agent=agent, run_id=run_id, reason="interrupted"):
            return f"  {agent} was interrupted and waits to be resumed: {run_id}"
        case e.AgentWaiting(agent=agent, run_id=run_id, reason=reason):
            return f"  {agent} waits for an {reason}: {run_id}"
        case e.AgentAnswered(agent=agent, run_id=run_id, call_id=under) if under:
            return f"  {agent} goes on: {run_id}"
        case e.QualityScored(score=None, reasons=reasons):
            return f"not judged: {one_line(reasons, WIDTH)}"
        case e.QualityScored(score=score, reasons=reasons, note=note):
            return f"judged {score:.2f}{', and sent back' if note else ''}: {one_line(reasons, WIDTH)}"
        case e.ErrorAnalyzed(diagnosis="", reason=reason):
            return f"no diagnosis: {one_line(reason, WIDTH)}"
        case e.ErrorAnalyzed(diagnosis=diagnosis):
            return f"diagnosis: {one_line(diagnosis)}"
        case _:
            return None


def _describe_context(data: e.EventData) -> str | None:
    """Return the line for an event of the context or of memory."""
    match data:
        case e.ContextTrimmed(stage="history", dropped=(first, last)):
            return f"the oldest {last - first} messages are left out"
        case e.ContextTrimmed(results=results, freed=freed):
            return f"{len(results)} long results are cut, which frees about {freed} tokens; they can be recalled"
        case e.CompactionStarted(first=first, last=last):
            return f"the conversation has grown long: {last - first} messages are being summed up"
        case e.CompactionFailed(reason=reason):
            return f"no summary could be made, and nothing is lost: {one_line(reason, WIDTH)}"
        case e.ContextCompacted(tokens_before=before, tokens_after=after):
            return f"summed up: about {before} tokens before, {after} now"
        case e.MemoryRecalled() if data.count:
            return describe_recall(data.count)
        case e.MemoryDegraded(reason=reason):
            return f"memory is searched by words alone: {one_line(reason, WIDTH)}"
        case _:
            return None
