"""Completion of tool calls: hooks see the result, secrets are redacted, and a result that is too long is
truncated.

The full text of a truncated result is stored and can be recalled."""

from collections.abc import Sequence

import msgspec

from treadle.core.context.projection import MIN_RESULT_CHARACTERS, max_result_characters
from treadle.core.context.truncation import compute_shown_lengths, truncate_text
from treadle.core.tools.ledger import Call
from treadle.domain.events import (
    EventData,
    Redacted,
    ResultTruncated,
    ToolCallEnd,
    ToolCallError,
    ToolCallStart,
    Truncation,
)
from treadle.domain.excerpts import Excerpt
from treadle.domain.limits import MAX_RESULT_CHARACTERS, MAX_RESULT_IMAGES
from treadle.domain.messages import make_sendable
from treadle.domain.observations import says_all
from treadle.engine.call_failures import CallFailure
from treadle.engine.client_calls import find_client_tool
from treadle.engine.deps import ToolDeps
from treadle.engine.owned_run import OwnedRun
from treadle.engine.tool_hooks import BlockedByHook, run_after_hooks, select_hooks
from treadle.engine.tool_preparation import ReadyCall, make_blocked, make_hooked_call
from treadle.ports.tool import Observation

PLAIN_FAILURE = CallFailure()
AFTER_AN_ERROR = "Do not make up a result: say that it failed, or try another way."


async def finish_call(
    item: ReadyCall,
    result: Observation,
    elapsed_ms: int,
    run: OwnedRun,
    deps: ToolDeps,
    failure: CallFailure = PLAIN_FAILURE,
) -> tuple[EventData, ...]:
    """Return the events that end a call, from its result. `failure` holds the facts if the result is an error."""
    call = item.call
    result = returned = limit_result(result)
    if deps.hooks or run.state.agent.hooks:
        try:
            result = await _apply_hooks(item, result, run, deps)
        except BlockedByHook as blocked:
            return (make_blocked(call, blocked, "after"),)
    content, note = make_sendable(result.content), ""
    if run.state.review.approvals:
        note = _note_edit(item, run)
        content = f"{note}{content}"
    events: list[EventData] = []
    if not run.worker.vault.redactor.is_idle:
        content = _redact(content, call.call_id, run, events)
    truncation = None
    if len(content) > MIN_RESULT_CHARACTERS and len(content) > (limit := max_result_characters(run.state)):
        truncation = Truncation(len(content), *compute_shown_lengths(limit))
        content = await _truncate(content, limit, call.call_id, run, deps, events)
    is_unchanged = result is returned and not events
    if result.is_error:
        facts = failure if is_unchanged else _forget_text(failure)
        return (*events, _make_error(item, result, content, len(note), elapsed_ms, truncation, facts))
    excerpt = (len(note), len(content)) if note else None
    if failure.excerpt is not None and is_unchanged:  # the engine wrote the text of an empty result
        excerpt = failure.excerpt
    ended = ToolCallEnd(
        call_id=call.call_id,
        name=call.name,
        content=content,
        duration_ms=elapsed_ms,
        exit_code=result.exit_code,
        truncated=truncation is not None,
        truncation=truncation,
        excerpt=excerpt,
        images=result.images,
        plain=says_all(content, elapsed_ms, result.exit_code, truncation is not None),
    )
    return (*events, ended)


async def finish_client_calls(calls: Sequence[Call], run: OwnedRun, deps: ToolDeps) -> list[EventData]:
    """Return the events that end the calls that the client ran, with the results that it delivered."""
    if deps.hooks or run.state.agent.hooks:  # hooks may be slow, and the client waits for the commit
        await run.flush()
    events: list[EventData] = []
    for call in calls:
        tool, asked = find_client_tool(call, run), run.state.review.client_calls[call.call_id]
        assert tool is not None, "the client was asked to run it"
        assert asked.result is not None, "the client has delivered its result"
        arguments = call.use.arguments if call.arguments is None else call.arguments
        start = ToolCallStart(call_id=call.call_id, name=call.name, arguments=arguments, idempotency_key="")
        item = ReadyCall(call, tool, tool.parse(arguments), start)
        result = Observation(asked.result.content, is_error=asked.result.is_error, images=asked.result.images)
        events += await finish_call(item, result, asked.duration_ms, run, deps)
    return events


def limit_result(result: Observation) -> Observation:
    """Return a result within the limits of every tool. Hooks and the redactor never read more."""
    content, images = result.content, result.images
    if len(content) <= MAX_RESULT_CHARACTERS and len(images) <= MAX_RESULT_IMAGES:  # nearly always
        return result
    if len(content) > MAX_RESULT_CHARACTERS:
        dropped = len(content) - MAX_RESULT_CHARACTERS
        content = f"{content[:MAX_RESULT_CHARACTERS]}\n[… {dropped} more characters were dropped …]"
    if len(images) > MAX_RESULT_IMAGES:
        content += f"\n[… {len(images) - MAX_RESULT_IMAGES} more images were dropped …]"
        images = images[:MAX_RESULT_IMAGES]
    return msgspec.structs.replace(result, content=content, images=images)


def _redact(content: str, call_id: str, run: OwnedRun, events: list[EventData]) -> str:
    """Return the result without secrets. Add an event if it contained some."""
    redaction = run.worker.vault.redactor.redact(content)
    if redaction.names:
        events.append(Redacted(redaction.names, "tool_result", call_id))
    return redaction.text


async def _truncate(
    content: str, limit: int, call_id: str, run: OwnedRun, deps: ToolDeps, events: list[EventData]
) -> str:
    """Store the full result, add an event, and return the part that the model sees."""
    await deps.results.keep(run.origin, call_id, content)
    shown = truncate_text(content, limit, call_id)
    events.append(ResultTruncated(call_id, len(content), len(shown)))
    return shown


def _forget_text(failure: CallFailure) -> CallFailure:
    """Return the facts about a failure whose text a hook, the redactor or the truncation changed."""
    cause = failure.cause if failure.cause == "child" else None
    return CallFailure(failure.kind, cause, limit=failure.limit)


def _make_error(
    item: ReadyCall,
    result: Observation,
    content: str,
    shift: int,
    elapsed_ms: int,
    truncation: Truncation | None,
    failure: CallFailure,
) -> ToolCallError:
    """Return the event of a failed call. `shift` is the length of the note before the result."""
    excerpt: Excerpt | None = (shift, len(content))
    if failure.excerpt is not None:
        excerpt = (shift + failure.excerpt[0], shift + failure.excerpt[1])
    elif failure.cause is not None or failure.limit is not None:  # the engine made the text
        excerpt = None
    return ToolCallError(
        call_id=item.call.call_id,
        name=item.call.name,
        kind="timeout" if result.timed_out else failure.kind,
        content=f"{content} {AFTER_AN_ERROR}",
        duration_ms=elapsed_ms,
        exit_code=result.exit_code,
        truncated=truncation is not None,
        truncation=truncation,
        excerpt=excerpt,
        cause=failure.cause,
        exception=failure.exception,
        limit=failure.limit,
    )


def _note_edit(item: ReadyCall, run: OwnedRun) -> str:
    """Return the note that tells the model that a reviewer edited the arguments of its call, or nothing."""
    approval = run.state.review.approvals.get(item.call.call_id)
    if approval is None or item.start.arguments == approval.arguments:
        return ""
    return f"[A reviewer edited the arguments: {item.start.arguments}]\n"


async def _apply_hooks(item: ReadyCall, result: Observation, run: OwnedRun, deps: ToolDeps) -> Observation:
    """Return the result after all hooks of the call. Raise `BlockedByHook` if one withholds it."""
    hooks = select_hooks(deps.hooks, item.tool.spec, deps.agent_hooks(run.state.agent))
    if not hooks:
        return result
    call = make_hooked_call(item.call, item.tool, item.start.arguments, run, deps)
    return await run_after_hooks(hooks, call, result)
