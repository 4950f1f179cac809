"""Completion of tool calls: hooks see the result, secrets are redacted, and a result that is too long is
truncated.

The full text of a truncated result is stored and can be recalled."""

from treadle.core.context.projection import MIN_RESULT_CHARACTERS, max_result_characters
from treadle.core.context.truncation import truncate_text
from treadle.domain.events import (
    CallErrorKind,
    EventData,
    HookBlocked,
    Redacted,
    ResultTruncated,
    ToolCallEnd,
    ToolCallError,
)
from treadle.domain.messages import make_sendable
from treadle.engine.deps import EngineDeps
from treadle.engine.owned_run import OwnedRun
from treadle.engine.tool_hooks import BlockedByHook, run_after_hooks, select_hooks
from treadle.engine.tool_preparation import ReadyCall, make_hooked_call
from treadle.ports.tool import Observation

AFTER_AN_ERROR = "Do not make up a result: say that it failed, or try another way."


async def finish_call(
    item: ReadyCall,
    result: Observation,
    elapsed_ms: int,
    run: OwnedRun,
    deps: EngineDeps,
    kind: CallErrorKind = "failed",
) -> tuple[EventData, ...]:
    """Return the events that end a call, from its result."""
    call = item.call
    if deps.hooks:
        try:
            result = await _apply_hooks(item, result, run, deps)
        except BlockedByHook as blocked:
            text = f"`{call.name}` has run, but its result is withheld: {blocked.reason}"
            return (HookBlocked(call.call_id, call.name, blocked.hook, text),)
    events: list[EventData] = []
    content = make_sendable(result.content)
    if run.state.review.approvals:
        content = f"{_note_edit(item, run)}{content}"
    redactor = deps.vault.redactor
    if not redactor.is_idle:
        redaction = redactor.redact(content)
        content = redaction.text
        if redaction.names:
            events.append(Redacted(redaction.names, "tool_result", call.call_id))
    max_characters = (
        MIN_RESULT_CHARACTERS if len(content) <= MIN_RESULT_CHARACTERS else max_result_characters(run.state)
    )
    truncated = len(content) > max_characters
    if truncated:
        await deps.results.keep(run.origin, call.call_id, content)
        truncated_text = truncate_text(content, max_characters, call.call_id)
        events.append(ResultTruncated(call.call_id, len(content), len(truncated_text)))
        content = truncated_text
    if result.is_error:
        text = f"{content} {AFTER_AN_ERROR}"
        ended = ToolCallError(call.call_id, call.name, kind, text, elapsed_ms, result.exit_code, truncated)
    else:
        ended = ToolCallEnd(call.call_id, call.name, content, elapsed_ms, result.exit_code, truncated)
    return (*events, ended)


def _note_edit(item: ReadyCall, run: OwnedRun) -> str:
    """Return the note that tells the model that a reviewer edited the arguments of its call, or nothing."""
    approval = run.state.review.approvals.get(item.call.call_id)
    if approval is None or item.start.arguments == approval.arguments:
        return ""
    return f"[a person had it run with other arguments: {item.start.arguments}]\n"


async def _apply_hooks(item: ReadyCall, result: Observation, run: OwnedRun, deps: EngineDeps) -> Observation:
    hooks = select_hooks(deps.hooks, item.tool.spec)
    if not hooks:
        return result
    return await run_after_hooks(hooks, make_hooked_call(item.call, item.tool, item.start.arguments, run), result)
