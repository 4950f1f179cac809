"""Threads of AG-UI as sessions, and what a request does to one: start a run, answer its interrupts, or join it.

A thread belongs to a user and an agent: the ID of its session is derived from both. A thread whose id is that of a
session is that session."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from treadle.domain.access import Principal
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import UnknownApproval
from treadle.domain.ids import RunId, SessionId
from treadle.domain.tools import ClientTool
from treadle.operations.context import Context
from treadle.operations.not_found import unknown_session
from treadle.operations.requested_run import RequestedRun
from treadle.operations.run_start import submit
from treadle.operations.schemas import Ticket
from treadle.ports.journal import RunRecord
from treadle.surfaces.http.ag_ui.client_calls import deliver_results
from treadle.surfaces.http.ag_ui.interrupts import (
    ProtocolError,
    answer_interrupts,
    check_coverage,
    find_interrupts,
)
from treadle.surfaces.http.ag_ui.messages import is_own_id
from treadle.surfaces.http.ag_ui.requests import (
    Part,
    PartImage,
    PartText,
    ResumeEntry,
    RunInput,
    SourceData,
    SourceUrl,
    ThreadMessage,
)
from treadle.surfaces.http.ag_ui.writer import PLAN
from treadle.surfaces.http.dependencies import ApiRequest
from treadle.surfaces.http.openai.conversation import (
    MadeCall,
    Turn,
    TurnPart,
    build_conversation,
    make_result,
    make_text_parts,
    read_image,
)
from treadle.surfaces.http.openai.images import fetch_images
from treadle.surfaces.http.openai.refusals import InvalidParameterValue

KEY_PREFIX = "ag-ui"


class Exchange(Struct, frozen=True):
    """A run of Treadle that answers a request, and where the answer begins."""

    run_id: RunId
    session_id: SessionId
    after: int
    """The last event that the client has seen."""
    needs_messages: bool
    """The client lacks messages of the thread, or may lack some."""
    asked: str = ""
    """The message of the client."""


def find_session_id(thread_id: str, agent: str, principal: Principal) -> SessionId:
    """Return the ID of the session of a thread."""
    if thread_id.startswith("ses_"):
        return SessionId(thread_id)
    named = "\0".join(("ag-ui", principal.user, agent, thread_id))
    return SessionId(f"ses_{hashlib.sha256(named.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}")


async def begin_exchange(context: Context, agent: AgentSpec, wanted: RunInput, request: ApiRequest) -> Exchange:
    """Do what a request asks for. Raise ProtocolError if it breaks a rule of AG-UI."""
    session_id = await _open_session(context, agent, wanted.thread_id)
    found = await context.visible_runs_of(session_id)
    runs = [run for run in found if run.origin.parent_run_id is None]
    latest = runs[-1] if runs else None
    asked = find_new_messages(wanted.messages)
    key = f"{KEY_PREFIX}/{session_id}/{asked[-1].id}" if asked else None
    is_answered = await _answer(context, latest, wanted)
    is_new = key is not None and not await context.service.was_submitted(key)
    if is_new and latest is not None and not is_answered:
        check_coverage(await find_interrupts(context, latest), ())
    if asked:
        ticket = await _submit(context.with_key(key), agent, wanted, request, session_id if runs else None)
        return await _join(context, ticket, wanted, runs, get_text(asked))
    if latest is None:
        raise ProtocolError("no_message", "The thread has no messages. Send one of the role `user`.")
    run_id = latest.origin.run_id
    after = latest.sequence if is_answered else 0
    return Exchange(run_id, session_id, after, needs_messages=not is_answered)


async def _open_session(context: Context, agent: AgentSpec, thread_id: str) -> SessionId:
    """Return the ID of the session of a thread. Raise UnknownSession for one that the caller may not continue."""
    session_id = find_session_id(thread_id, agent.name, context.principal)
    if session_id == thread_id:
        return await context.open_session(thread_id)
    known = await context.sessions.basics(session_id)
    if known is not None and known.owner != context.principal.user:
        raise unknown_session(thread_id)
    return session_id


async def _answer(context: Context, run: RunRecord | None, wanted: RunInput) -> bool:
    """Deliver the results of the client's tools and the answers to interrupts. Return whether the run continues
    with them."""
    if run is None:
        check_coverage((), wanted.resume or ())
        return False
    has_results = await deliver_results(context, run, wanted.messages)
    return bool(wanted.resume and await _resume(context, run, wanted.resume)) or has_results


async def _resume(context: Context, run: RunRecord, resume: Sequence[ResumeEntry]) -> bool:
    """Answer the interrupts of a run. Return False if all of them were answered before, by the same request."""
    open_ = await find_interrupts(context, run)
    if not open_ and [each for each in resume if await _is_answered(context, run, each.interrupt_id)] == [*resume]:
        return False
    check_coverage(open_, resume)
    await answer_interrupts(context, open_, resume)
    return True


async def _is_answered(context: Context, run: RunRecord, interrupt_id: str) -> bool:
    """Return whether an interrupt was one of the session, which is not open any more."""
    session_id = run.origin.session_id
    if not interrupt_id.startswith("apr_"):
        runs = await context.visible_runs_of(session_id)
        return interrupt_id.partition(":")[0] in {each.origin.run_id for each in runs}
    try:
        record = await context.visible_approval(interrupt_id)
    except UnknownApproval:
        return False
    return record.origin.session_id == session_id and record.decision in ("approve", "deny")


async def _join(
    context: Context, ticket: Ticket, wanted: RunInput, runs: Sequence[RunRecord], asked: str
) -> Exchange:
    """Return the exchange with the run that answers a message."""
    known = {run.origin.run_id for run in runs}
    if ticket.run_id in known:  # it was sent before, or went to the run that waits
        return Exchange(ticket.run_id, ticket.session_id, ticket.after, needs_messages=True, asked=asked)
    lacks = bool(runs) and (runs[-1].outcome is None or not _has_seen(runs[-1].origin.run_id, wanted.messages))
    return Exchange(ticket.run_id, ticket.session_id, 0, needs_messages=lacks, asked=asked)


def _has_seen(run_id: RunId, messages: Iterable[ThreadMessage]) -> bool:
    return any(message.id.startswith(f"{run_id}:") for message in messages)


# ── Messages of the client ──


def find_new_messages(messages: Sequence[ThreadMessage]) -> tuple[ThreadMessage, ...]:
    """Return what the user has said since the last answer, unless it came from here."""
    found: list[ThreadMessage] = []
    for message in reversed(messages):
        if message.role in ("assistant", "tool", "reasoning"):
            break
        if message.role == "user" and not is_own_id(message.id):
            found.insert(0, message)
    return tuple(found)


def get_text(messages: Iterable[ThreadMessage]) -> str:
    """Return the text of messages, as the run that answers them shows it."""
    parts = [part for message in messages for part in list_parts(message)]
    return "".join([part.text for part in parts if isinstance(part, PartText)])


def list_parts(message: ThreadMessage) -> tuple[Part, ...]:
    match message.content:
        case str(text):
            return (PartText(text),) if text else ()
        case tuple() as parts:
            return parts
        case _:
            return ()


async def _submit(
    context: Context, agent: AgentSpec, wanted: RunInput, request: ApiRequest, session_id: SessionId | None
) -> Ticket:
    continues = session_id is not None
    new = find_new_messages(wanted.messages)
    sent = [
        each for each in wanted.messages if not continues or each in new or each.role in ("system", "developer")
    ]
    turns = [turn for place, message in enumerate(sent) for turn in _make_turns(message, place)]
    turns = await fetch_images(turns, agent.limits.max_attachment_bytes, request, continues=continues)
    conversation = build_conversation(turns, "messages", [tool.name for tool in wanted.tools or ()])
    principal = context.principal
    new_id = find_session_id(wanted.thread_id, agent.name, principal)
    run = RequestedRun(
        agent=agent,
        message=conversation.latest() if continues else conversation.message,
        session_id=session_id or new_id,
        asker=context.asker,
        before=() if continues else conversation.before,
        instructions="\n\n".join(
            filter(None, (conversation.instructions, *describe_context(wanted.context or (), wanted.state)))
        ),
        user=principal.user,
        anonymous=principal.is_anonymous,
        only_own=principal.only_owner is not None,
        client_tools=tuple(
            [ClientTool(each.name, each.description, each.parameters or {}) for each in wanted.tools or ()]
        ),
    )
    return await submit(context, run)


def describe_context(context: Iterable[Any], state: Any) -> Iterator[str]:
    """Yield what the application tells the agent, as instructions."""
    for each in context:
        yield f"{each.description}:\n{each.value}"
    if isinstance(state, dict):
        known = cast("dict[str, Any]", state)
        state = {name: value for name, value in known.items() if name != PLAN}
    if state not in (None, {}, [], ""):
        yield f"The state of the application, as JSON:\n{msgspec.json.encode(state).decode()}"


def _make_turns(message: ThreadMessage, place: int) -> Iterator[Turn]:
    parts = tuple([_read_part(part, f"messages[{place}]") for part in list_parts(message)])
    match message.role:
        case "system" | "developer":
            yield Turn("instructions", parts)
        case "user":
            yield Turn("user", parts)
        case "assistant":
            calls = [MadeCall(each.id, each.function.name, each.function.arguments) for each in message.calls]
            yield Turn("assistant", (*parts, *calls))
        case "tool":
            yield Turn("user", (make_result(message.tool_call_id or "", parts),))
        case "activity" | "reasoning":
            pass


def _read_part(part: Part, where: str) -> TurnPart:
    match part:
        case PartText(text):
            return make_text_parts(text)[0] if text else make_text_parts(" ")[0]
        case PartImage(SourceData(value, kind)):
            return read_image(f"data:{kind};base64,{value}", where)
        case PartImage(SourceUrl(url)):
            return read_image(url, where)
        case _:
            raise InvalidParameterValue(
                where, "A message may contain text and images. Audio, video, documents and files are not supported."
            )
