"""Before a call runs: its arguments are decoded; hooks and rules are asked, and a person where a rule says so. What
comes of it is a call that is ready, or the events that say why not."""

from typing import Any

import msgspec
from msgspec import Struct

from treadle.core.ledger import Call
from treadle.core.permissions import can_be_asked, needs_no_ruling, rule_on
from treadle.core.planning import denied
from treadle.domain.events import (
    ApprovalRequested,
    CallErrorKind,
    ClarifyRequested,
    EventData,
    HookBlocked,
    ToolCallError,
    ToolCallStart,
)
from treadle.domain.handles import handle
from treadle.domain.identity import ApprovalId
from treadle.engine.deps import Deps
from treadle.engine.hooking import Blocked, ask_before, concerning
from treadle.engine.ownership import Log
from treadle.ports.hooks import HookedCall
from treadle.ports.tool import InvalidArguments, Subjects, Tool

NOBODY_ANSWERS = "It needs an approval, and nobody can answer: the message came without a terminal or a channel."
ASK_NOBODY = "Nobody can answer. Go on with what you think best, and say what you assumed."
NO_RAW_SECRETS = (
    "Its arguments hold the value of the secret {names}, which was taken out. "
    "Use the handle instead, which is replaced when the tool runs: {handles}"
)
REDACTED = "[redacted:"


class Ready(Struct, frozen=True):
    """A call that may run, with its arguments decoded."""

    call: Call
    tool: Tool
    arguments: Any
    start: ToolCallStart


class Refused(Exception):
    """The call does not run, or not now; these events say so."""

    def __init__(self, *events: EventData) -> None:
        super().__init__()
        self.events = events


async def clear(calls: tuple[Call, ...], log: Log, deps: Deps) -> tuple[list[Ready], list[EventData]]:
    """Those of the calls that may run now; and what is on record of the others."""
    ready: list[Ready] = []
    refused: list[EventData] = []
    for call in calls:
        try:
            ready.append(await _clear(call, log, deps))
        except Refused as refusal:
            refused += refusal.events
    return ready, refused


async def _clear(call: Call, log: Log, deps: Deps) -> Ready:
    tool = deps.tools.find(call.name)
    if tool is None:
        raise _error(call, "failed", f"The tool `{call.name}` is not to be had any more.")
    if (settled := _settled(call, log)) is not None:
        return _ready(call, tool, settled, _parsed(call, tool, settled), log)
    text = call.use.arguments
    if REDACTED in text:
        raise _raw_secret(call)
    arguments = _parsed(call, tool, text)
    if deps.hooks and (hooks := concerning(deps.hooks, call.name)):
        hooked = _hooked(call, tool, text, log)
        changed = await _asked(call, hooks, hooked)
        if changed is not hooked:
            text = msgspec.json.encode(changed.arguments).decode()
            arguments = _parsed(call, tool, text)
    if tool.spec.asks_a_person:
        raise _question(call, arguments, log)
    if not needs_no_ruling(log.state.agent.approvals) or tool.spec.effect == "external":
        await _permitted(call, tool.subjects(arguments), text, log, deps)
    return _ready(call, tool, text, arguments, log)


def _settled(call: Call, log: Log) -> str | None:
    """The arguments, where nobody need be asked any more: it was started before, or a person has approved it."""
    if call.arguments is not None:
        return call.arguments
    asked = log.state.approvals.get(call.call_id)
    if asked is None:
        return None
    decision = log.state.decisions[asked.approval_id]
    return asked.arguments if decision.arguments is None else decision.arguments


def _ready(call: Call, tool: Tool, text: str, arguments: Any, log: Log) -> Ready:
    key = f"{log.origin.run_id}/{call.call_id}"
    return Ready(call, tool, arguments, ToolCallStart(call.call_id, call.name, text, key, call.attempts + 1))


def _parsed(call: Call, tool: Tool, text: str) -> Any:
    try:
        return tool.parse(text)
    except InvalidArguments as error:
        raise _error(call, "invalid_arguments", f"`{call.name}` was not run: {error}") from None
    except Exception as raised:  # a tool may be anybody's
        described = f"`{call.name}` failed: {type(raised).__name__}: {raised}."
        raise _error(call, "failed", described) from raised


def _error(call: Call, kind: CallErrorKind, text: str) -> Refused:
    return Refused(ToolCallError(call.call_id, call.name, kind, text))


def _raw_secret(call: Call) -> Refused:
    names = [part.partition("]")[0] for part in call.use.arguments.split(REDACTED)[1:]]
    handles = ", ".join(map(handle, names))
    return Refused(denied(call, NO_RAW_SECRETS.format(names=", ".join(names), handles=handles)))


def _hooked(call: Call, tool: Tool, text: str, log: Log) -> HookedCall:
    origin = log.origin
    arguments = msgspec.json.decode(text or "{}", type=dict[str, Any])
    return HookedCall(origin.run_id, origin.session_id, log.state.agent.name, call.call_id, tool.spec, arguments)


async def _asked(call: Call, hooks: Any, hooked: HookedCall) -> HookedCall:
    try:
        return await ask_before(hooks, hooked)
    except Blocked as blocked:
        told = f"`{call.name}` was not run: {blocked.reason}"
        raise Refused(HookBlocked(call.call_id, call.name, blocked.hook, told)) from blocked


def _question(call: Call, arguments: Any, log: Log) -> Refused:
    if not can_be_asked(log.state):
        return _error(call, "denied", ASK_NOBODY)
    options = tuple(getattr(arguments, "options", ()) or ())
    return Refused(ClarifyRequested(call.call_id, str(arguments.question), options))


async def _permitted(call: Call, subjects: Subjects, text: str, log: Log, deps: Deps) -> None:
    """Return if the call may run now. Raises Refused with a denial, or with the question to a person."""
    approvals = log.state.agent.approvals
    if needs_no_ruling(approvals) and subjects.caution is None:
        return
    ruling = rule_on(approvals, call.name, subjects)
    if ruling.verdict == "ask":
        ruling = rule_on(approvals, call.name, subjects, await deps.approvals.grants(log.origin.session_id))
    match ruling.verdict:
        case "auto":
            return
        case "deny":
            raise Refused(denied(call, f"It is not allowed: {ruling.reason}."))
        case "ask":
            if not can_be_asked(log.state):
                raise Refused(denied(call, f"{NOBODY_ANSWERS} ({ruling.reason})"))
            lifetime = approvals.expires_seconds
            raise Refused(
                ApprovalRequested(
                    ApprovalId(deps.ids("apr")),
                    call.call_id,
                    call.name,
                    text,
                    ruling.reason,
                    subjects.pattern,
                    None if lifetime is None else deps.clock.now() + lifetime,
                )
            )
