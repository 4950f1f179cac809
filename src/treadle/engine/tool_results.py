"""After a call has run: hooks see the result, secrets are taken out, and what is too long for what is left of the
context is cut. Nothing of it is lost: the whole text is kept and can be recalled."""

from treadle.core.context.projection import LEAST_RESULT, room_for_a_result
from treadle.core.context.truncation import cut
from treadle.domain.events import (
    CallErrorKind,
    EventData,
    HookBlocked,
    Redacted,
    ResultTruncated,
    ToolCallEnd,
    ToolCallError,
)
from treadle.domain.messages import sendable
from treadle.engine.deps import EngineDeps
from treadle.engine.owned_run import OwnedRun
from treadle.engine.tool_hooks import BlockedByHook, run_after_hooks, select_hooks
from treadle.engine.tool_preparation import ReadyCall, make_hooked_call
from treadle.ports.tool import Observation

AFTER_AN_ERROR = "Do not make up a result: say that it failed, or try another way."


async def finish_call(
    item: ReadyCall,
    came: Observation,
    elapsed_ms: int,
    log: OwnedRun,
    deps: EngineDeps,
    kind: CallErrorKind = "failed",
) -> tuple[EventData, ...]:
    """The events that end a call, of what came of it."""
    call = item.call
    if deps.hooks:
        try:
            came = await _apply_hooks(item, came, log, deps)
        except BlockedByHook as blocked:
            told = f"`{call.name}` has run, but its result is withheld: {blocked.reason}"
            return (HookBlocked(call.call_id, call.name, blocked.hook, told),)
    beside: list[EventData] = []
    content = sendable(came.content)
    if log.state.approvals:
        content = f"{_note_edit(item, log)}{content}"
    redactor = deps.vault.redactor
    if not redactor.is_idle:
        redaction = redactor.redact(content)
        content = redaction.text
        if redaction.names:
            beside.append(Redacted(redaction.names, "tool_result", call.call_id))
    room = LEAST_RESULT if len(content) <= LEAST_RESULT else room_for_a_result(log.state)
    truncated = len(content) > room
    if truncated:
        await deps.results.keep(log.origin, call.call_id, content)
        shown = cut(content, room, call.call_id)
        beside.append(ResultTruncated(call.call_id, len(content), len(shown)))
        content = shown
    if came.is_error:
        told = f"{content} {AFTER_AN_ERROR}"
        ended = ToolCallError(call.call_id, call.name, kind, told, elapsed_ms, came.exit_code, truncated)
    else:
        ended = ToolCallEnd(call.call_id, call.name, content, elapsed_ms, came.exit_code, truncated)
    return (*beside, ended)


def _note_edit(item: ReadyCall, log: OwnedRun) -> str:
    """What the model must know before it reads the result of a call that it did not quite ask for."""
    asked = log.state.approvals.get(item.call.call_id)
    if asked is None or item.start.arguments == asked.arguments:
        return ""
    return f"[a person had it run with other arguments: {item.start.arguments}]\n"


async def _apply_hooks(item: ReadyCall, came: Observation, log: OwnedRun, deps: EngineDeps) -> Observation:
    hooks = select_hooks(deps.hooks, item.tool.spec)
    if not hooks:
        return came
    return await run_after_hooks(hooks, make_hooked_call(item.call, item.tool, item.start.arguments, log), came)
