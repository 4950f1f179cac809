"""Preparation of tool calls: decode the arguments, then ask hooks, rules and, where a rule requires it, a
reviewer.

The result is a call that is ready to run, or the events that say why it is not."""

import asyncio
from typing import Any

import msgspec
from msgspec import Struct

from treadle.core.state import RunState
from treadle.core.tools.conflicts import Batch, PlannedCall
from treadle.core.tools.ledger import Call
from treadle.core.tools.modes import PLAN_REASON, presents_plan
from treadle.core.tools.permissions import Ruling, has_reviewer, permits_everything, rule_on_call
from treadle.core.tools.plan import make_denied
from treadle.domain.events import (
    ApprovalRequested,
    ClarifyRequested,
    EventData,
    HookBlocked,
    HookStage,
    ToolCallError,
    ToolCallStart,
)
from treadle.domain.excerpts import place_excerpt
from treadle.domain.file_fingerprints import FileFingerprint
from treadle.domain.ids import ApprovalId, Instant
from treadle.domain.json_text import is_too_deep
from treadle.domain.limits import MAX_JSON_DEPTH
from treadle.domain.secret_refs import make_secret_ref
from treadle.engine.call_failures import CallRefused, make_failure
from treadle.engine.call_inspection import assess, assess_subjects, check_fault, find_subjects, take_fingerprints
from treadle.engine.client_calls import find_client_tool, make_client_request
from treadle.engine.deps import ToolDeps
from treadle.engine.owned_run import OwnedRun
from treadle.engine.stand_ins import find_stand_in
from treadle.engine.tool_hooks import BlockedByHook, run_before_hooks, select_hooks
from treadle.ports.hooks import HookedCall
from treadle.ports.tool import Concern, InvalidArguments, Subjects, Tool

NO_REVIEWER = (
    "It needs an approval, and no reviewer can be asked: the message came without a terminal or a channel."
)
NO_ONE_TO_ASK = "No user can be asked. Continue as you think best, and state your assumptions."
NO_RAW_SECRETS = (
    "Its arguments hold the value of the secret {names}, which was taken out. "
    "Use the handle instead, which is replaced when the tool runs: {handles}"
)


CALLS_PER_TURN = 16
"""How many calls are prepared before other tasks of the event loop run."""


class ReadyCall(Struct, frozen=True):
    """A call that may run, with its arguments decoded."""

    call: Call
    tool: Tool
    arguments: Any
    start: ToolCallStart
    approved: tuple[str, ...] = ()
    """The private places that a reviewer has approved for it."""


async def prepare_calls(
    calls: tuple[Call, ...], run: OwnedRun, deps: ToolDeps
) -> tuple[list[ReadyCall], list[EventData]]:
    """Return the calls that may run now, and the events that record the others."""
    ready: list[ReadyCall] = []
    refused: list[EventData] = []
    preparation = _prepare_each(calls, ready, refused, run, deps)
    if deps.hooks or run.state.agent.hooks:  # hooks may be slow: commit first, and let a delivery stop them
        await run.flush()
        if not await run.run_unless(must_stop_calls, preparation, until=run.state.deadline):
            return [], []
    else:
        await preparation
    return (ready if len(ready) < 2 else _select_concurrent(ready, run)), refused


async def _prepare_each(
    calls: tuple[Call, ...], ready: list[ReadyCall], refused: list[EventData], run: OwnedRun, deps: ToolDeps
) -> None:
    for number, call in enumerate(calls):
        if number % CALLS_PER_TURN == CALLS_PER_TURN - 1:
            await asyncio.sleep(0)  # a reply may have many calls, and other runs go on meanwhile
        try:
            item = await _prepare(call, run, deps)
            if item.tool.spec.client is None:
                ready.append(item)
            else:
                refused.append(make_client_request(item.start, item.tool, run))
        except CallRefused as refusal:
            refused += refusal.events


def must_stop_calls(state: RunState) -> bool:
    """Return whether a client wants the calls of a run to stop."""
    return state.cancelled is not None or state.interrupted is not None


def _select_concurrent(ready: list[ReadyCall], run: OwnedRun) -> list[ReadyCall]:
    """Return the calls that may run concurrently with the arguments they have now. The others run after them."""
    if all(item.start.arguments == item.call.use.arguments for item in ready):
        return ready
    batch, concurrent = Batch(run.state.tools), list[ReadyCall]()
    for item in ready:
        call = PlannedCall(item.call.name, item.start.arguments)
        if batch.fits(call):
            batch.add(call)
            concurrent.append(item)
    return concurrent


async def _prepare(call: Call, run: OwnedRun, deps: ToolDeps) -> ReadyCall:
    tool = find_client_tool(call, run) or deps.tools.find(call.name, run.state.agent)
    if tool is None:
        text = f"The tool `{call.name}` is no longer available. Continue without it."
        raise CallRefused(ToolCallError(call.call_id, call.name, "failed", text, cause="tool_missing"))
    if (stand_in := find_stand_in(call, tool, run)) is not None:
        return _make_ready(call, stand_in, call.use.arguments, call.use.arguments, (), run)
    if call.arguments is not None:  # it was started before, and runs again with the same arguments
        arguments = _parse(call, tool, call.arguments)
        return await _make_approved(call, tool, call.arguments, arguments, call.files, run, deps)
    if call.secrets:
        raise _refuse_raw_secret(call)
    approval = run.state.review.approvals.get(call.call_id)
    if approval is None:
        text, arguments = await _apply_hooks(call, tool, call.use.arguments, run, deps)
        if tool.spec.asks_a_person:
            raise _make_question(call, arguments, run)
        if _must_approve_plan(tool, arguments, run):
            raise _make_plan_request(call, text, run)
        subjects = await assess_subjects(call, tool, arguments, run, deps)
        is_cautious = subjects.caution is not None or subjects.concern is not None
        if is_cautious or not permits_everything(run.state, tool.spec):
            await _check_permission(call, tool, subjects, text, run, deps)
        files = await take_fingerprints(call, tool, arguments, run, deps)
        return _make_ready(call, tool, text, arguments, files, run)
    edited = run.state.review.decisions[approval.approval_id].arguments
    if edited is None:
        arguments = _parse(call, tool, approval.arguments)
        return await _make_approved(call, tool, approval.arguments, arguments, approval.files, run, deps)
    text, arguments = await _apply_hooks(call, tool, edited, run, deps)
    ruling = rule_on_call(run.state, tool.spec, find_subjects(call, tool, arguments))
    if ruling.verdict == "deny":
        raise CallRefused(make_denied(call, f"It is not allowed as it was edited: {ruling.reason}.", "rule"))
    shown = {each.path: each for each in approval.files}
    files = await take_fingerprints(call, tool, arguments, run, deps)
    files = tuple([shown.get(each.path, each) for each in files])
    return await _make_approved(call, tool, text, arguments, files, run, deps)


async def _make_approved(
    call: Call,
    tool: Tool,
    text: str,
    arguments: Any,
    files: tuple[FileFingerprint, ...],
    run: OwnedRun,
    deps: ToolDeps,
) -> ReadyCall:
    """Return the approved call, ready to run, with the private places that its approval covers.

    An approval names the place that the reviewer saw. If the path leads to another place now, that is not
    approved, and the tool refuses it. A reviewer who edited the arguments has chosen the path."""
    ready = _make_ready(call, tool, text, arguments, files, run)
    approval = run.state.review.approvals.get(call.call_id)
    if approval is None or (concern := await assess(call, tool, arguments, run, deps)) is None:
        return ready
    decision = run.state.review.decisions.get(approval.approval_id)
    was_edited = decision is not None and decision.arguments is not None
    if decision is None or not (was_edited or concern.places == approval.places):
        return ready
    return msgspec.structs.replace(ready, approved=concern.places)


async def _apply_hooks(call: Call, tool: Tool, text: str, run: OwnedRun, deps: ToolDeps) -> tuple[str, Any]:
    """Return the arguments as the hooks leave them, as text and decoded."""
    arguments = _parse(call, tool, text)
    if not (deps.hooks or run.state.agent.hooks):
        return text, arguments
    hooks = select_hooks(deps.hooks, tool.spec, deps.agent_hooks(run.state.agent))
    if not hooks:
        return text, arguments
    hooked_call = make_hooked_call(call, tool, text, run, deps)
    try:
        changed = await run_before_hooks(hooks, hooked_call)
    except BlockedByHook as blocked:
        raise CallRefused(make_blocked(call, blocked, "before")) from blocked
    if changed is hooked_call:
        return text, arguments
    text = msgspec.json.encode(changed.arguments).decode()
    if run.worker.vault.redactor.redact(text).names:
        reason = (
            "a hook has put the value of a secret into its arguments. Go on without this call, and tell the user."
        )
        raise CallRefused(make_blocked(call, BlockedByHook("the last that rewrote it", reason, "secret"), "before"))
    return text, _parse(call, tool, text)


def make_blocked(call: Call, blocked: BlockedByHook, stage: HookStage) -> HookBlocked:
    """Return the event for a call that a hook blocked, or whose result it withheld."""
    did = "was not run" if stage == "before" else "has run, but its result is withheld"
    before = f"`{call.name}` {did}: "
    excerpt = place_excerpt(before, blocked.reason)
    return HookBlocked(
        call_id=call.call_id,
        name=call.name,
        hook=blocked.hook,
        content=before + blocked.reason,
        stage=stage,
        cause=blocked.cause,
        excerpt=excerpt,
    )


def _make_ready(
    call: Call, tool: Tool, text: str, arguments: Any, files: tuple[FileFingerprint, ...], run: OwnedRun
) -> ReadyCall:
    key = f"{run.origin.run_id}/{call.call_id}"
    start = ToolCallStart(
        call_id=call.call_id,
        name=call.name,
        arguments=text,
        idempotency_key=key,
        attempt=call.attempts + 1,
        files=files,
    )
    return ReadyCall(call, tool, arguments, start)


def _parse(call: Call, tool: Tool, text: str) -> Any:
    try:
        if is_too_deep(text):
            raise InvalidArguments(f"the arguments are nested more than {MAX_JSON_DEPTH} levels deep.")
        return tool.parse(text)
    except InvalidArguments as error:
        before, reason = f"`{call.name}` was not run: ", str(error)
        excerpt = place_excerpt(before, reason)
        raise CallRefused(
            ToolCallError(call.call_id, call.name, "invalid_arguments", before + reason, excerpt=excerpt)
        ) from None
    except Exception as raised:  # tools may be third-party code
        raise make_failure(call, raised) from raised


def _refuse_raw_secret(call: Call) -> CallRefused:
    references = ", ".join(map(make_secret_ref, call.secrets))
    return CallRefused(
        make_denied(call, NO_RAW_SECRETS.format(names=", ".join(call.secrets), handles=references), "raw_secret")
    )


def make_hooked_call(call: Call, tool: Tool, text: str, run: OwnedRun, deps: ToolDeps) -> HookedCall:
    """Return the call as its hooks see it, with these arguments."""
    origin = run.origin
    arguments = msgspec.json.decode(text or "{}", type=dict[str, Any])
    return HookedCall(
        run_id=origin.run_id,
        session_id=origin.session_id,
        agent=run.state.agent.name,
        call_id=call.call_id,
        tool=tool.spec,
        arguments=arguments,
        deps=deps.program.find(origin.run_id),
    )


def _make_question(call: Call, arguments: Any, run: OwnedRun) -> CallRefused:
    if not has_reviewer(run.state):
        return CallRefused(ToolCallError(call.call_id, call.name, "denied", NO_ONE_TO_ASK, cause="no_user"))
    options = tuple(getattr(arguments, "options", ()) or ())
    return CallRefused(ClarifyRequested(call.call_id, str(arguments.question), options, _compute_expiry(run)))


def _must_approve_plan(tool: Tool, arguments: Any, run: OwnedRun) -> bool:
    """Return whether a call shows a plan that a reviewer must approve. Without a reviewer, it is only shown."""
    state = run.state
    is_child = state.lineage is not None
    return presents_plan(state.review.mode, tool.spec, arguments, is_child=is_child) and has_reviewer(state)


def _make_plan_request(call: Call, text: str, run: OwnedRun) -> CallRefused:
    return CallRefused(
        ApprovalRequested(
            approval_id=ApprovalId(run.worker.ids("apr")),
            call_id=call.call_id,
            name=call.name,
            arguments=text,
            reason=PLAN_REASON,
            expires_at=_compute_expiry(run),
            is_plan=True,
        )
    )


async def _check_permission(
    call: Call, tool: Tool, subjects: Subjects, text: str, run: OwnedRun, deps: ToolDeps
) -> None:
    """Return if the call may run now. Raise CallRefused with a denial or with the request for an approval."""
    ruling = rule_on_call(run.state, tool.spec, subjects)
    if ruling.verdict == "ask":
        ruling = rule_on_call(run.state, tool.spec, subjects, await deps.approvals.grants(run.origin.run_id))
    match ruling.verdict:
        case "auto":
            return
        case "deny":
            raise CallRefused(make_denied(call, f"It is not allowed: {ruling.reason}.", "rule"))
        case "ask":
            if not has_reviewer(run.state):
                raise CallRefused(_deny_unreviewed(call, ruling.reason, subjects.concern))
            arguments = _parse(call, tool, text)
            files = await take_fingerprints(call, tool, arguments, run, deps)
            await check_fault(call, tool, subjects, arguments, run, deps)
            raise CallRefused(
                ApprovalRequested(
                    approval_id=ApprovalId(run.worker.ids("apr")),
                    call_id=call.call_id,
                    name=call.name,
                    arguments=text,
                    reason=_explain_approval(ruling, subjects.concern),
                    pattern=subjects.pattern,
                    expires_at=_compute_expiry(run),
                    concern=None if subjects.concern is None else subjects.concern.kind,
                    places=() if subjects.concern is None else subjects.concern.places,
                    destructive=subjects.destructive,
                    files=files,
                )
            )


def _explain_approval(ruling: Ruling, concern: Concern | None) -> str:
    """Return why a call needs an approval. That no sandbox confines it is always said, whatever rule asks."""
    if concern is None or concern.kind != "unconfined":
        return ruling.reason
    says_it_all = ruling.is_by_concern or concern.is_recorded
    return concern.reason if says_it_all else f"{concern.reason}; {ruling.reason}"


def _deny_unreviewed(call: Call, reason: str, concern: Concern | None) -> ToolCallError:
    """Return the denial of a call that needs an approval when there is no reviewer. Its excerpt is the reason."""
    denied = make_denied(call, f"{NO_REVIEWER} ({reason})", "no_reviewer")
    assert denied.excerpt is not None, "a denial says where its reason is"
    end, kind = denied.excerpt[1] - len(")"), None if concern is None else concern.kind
    return msgspec.structs.replace(denied, excerpt=(end - len(reason), end), concern=kind)


def _compute_expiry(run: OwnedRun) -> Instant | None:
    lifetime = run.state.agent.approvals.expires_seconds
    return None if lifetime is None else run.worker.clock.now() + lifetime
