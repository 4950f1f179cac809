"""Names that people type: an id, its unique beginning or end, `last`, the title of a session, an agent."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from treadle.bootstrap.callers import open_readonly_caller, open_readonly_memory_caller
from treadle.config.database_url import is_postgres
from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import UnknownApproval, UnknownRun, UnknownSession, UsageError
from treadle.domain.ids import ApprovalId, RunId, SessionId
from treadle.domain.workspaces import Workspace, is_same_place
from treadle.operations import approvals, runs, sessions
from treadle.operations.operation import Caller, list_items
from treadle.operations.schemas import Page
from treadle.operations.sessions import SessionView
from treadle.system.workspace_identity import find_workspace

if TYPE_CHECKING:
    from treadle.operations.requested_run import ChosenAgent

LAST = "last"
ID_DIGITS = 32
MIN_DIGITS = 4
"""Fewer digits are not taken for the beginning of an id."""
MAX_SESSIONS = 1000
"""Sessions, latest first, that a title or a beginning is compared with."""
SHOWN_MATCHES = 5


async def find_run(caller: Caller, reference: str) -> RunId:
    """Return the id of the run that a reference names. Raises UnknownRun or UsageError."""
    _refuse_empty(reference, "run")
    if reference == LAST:
        session_id = await _find_latest_session(caller, find_workspace(Path.cwd()))
        if session_id is None:
            raise UnknownRun(await _explain_none_here(caller, "run"))
        return (await caller.call(runs.LIST, runs.ListRuns(session_id=session_id, limit=1))).items[0].run_id
    prefix, end = _prefix(reference, "run"), _end(reference, "run")
    if end is None:
        _refuse_short(reference)
        return RunId(reference)
    page: Page[runs.RunView] = Page(())
    if prefix is not None:
        page = await caller.call(runs.LIST, runs.ListRuns(id_prefix=prefix, limit=SHOWN_MATCHES))
    if not page.items:
        page = await caller.call(runs.LIST, runs.ListRuns(id_suffix=end, limit=SHOWN_MATCHES))
    found = [run.run_id for run in page.items]
    if not found:
        raise UnknownRun(f"No run has an id that begins or ends with {end}. `treadle runs list` shows the runs.")
    return RunId(find_only(reference, found, "runs"))


async def find_session(
    caller: Caller, reference: str, place: Workspace | None = None, *, whole_title: bool = False
) -> SessionId:
    """Return the id of the session that a reference names. Raises UnknownSession or UsageError. `last` and titles
    mean those of a folder, by default the current one; a title that no session there has may be one of another
    folder. With `whole_title`, the beginning of a title is not enough."""
    _refuse_empty(reference, "session")
    here = find_workspace(Path.cwd()) if place is None else place
    if reference == LAST:
        latest = await _find_latest_session(caller, here)
        if latest is None:
            raise UnknownSession(await _explain_none_here(caller, "session"))
        return latest
    try:
        return (await caller.call(sessions.SHOW, sessions.ShowSession(SessionId(reference)))).session_id
    except UnknownSession:
        prefix, end = _prefix(reference, "ses"), _end(reference, "ses")
        known = await list_items(caller, sessions.LIST, sessions.ListSessions(children=True), MAX_SESSIONS)
        wanted = reference.casefold()
        found = [each.session_id for each in known if prefix and each.session_id.startswith(prefix)]
        found = found or [each.session_id for each in known if end and each.session_id.endswith(end)]
        found = found or _prefer_place([each for each in known if each.title.casefold() == wanted], here)
        if not whole_title:
            found = found or [each.session_id for each in known if each.session_id.startswith(reference)]
            begun = [each for each in known if each.title.casefold().startswith(wanted)]
            found = found or _prefer_place(begun, here)
        if not found:
            raise
    return SessionId(find_only(reference, found, "sessions"))


async def _find_latest_session(caller: Caller, place: Workspace) -> SessionId | None:
    """Return the session of a folder with the latest run, or None if it has none."""
    latest = (await caller.call(sessions.LIST, sessions.make_list_request(place, limit=1))).items
    return latest[0].session_id if latest else None


async def _explain_none_here(caller: Caller, thing: str) -> str:
    """Return that the current folder has no such thing, with the latest of other folders."""
    latest = (await caller.call(sessions.LIST, sessions.ListSessions(limit=1))).items
    if not latest:
        return f"There are no {thing}s yet."
    there = latest[0].workspace
    place = "" if there is None else f", in {there.folder}"
    listed = "treadle sessions list --all" if thing == "session" else "treadle runs list"
    return (
        f"No {thing} has used the folder {Path.cwd()} yet, and `{LAST}` means the current folder. "
        f"The latest session is {latest[0].session_id}{place}. `{listed}` shows those of all folders."
    )


def _prefer_place(found: Sequence[SessionView], place: Workspace) -> list[SessionId]:
    """Return the sessions of a folder if there are any, otherwise all that were found."""
    own = [each for each in found if each.workspace is not None and is_same_place(each.workspace, place)]
    return [each.session_id for each in own or found]


async def find_approval(caller: Caller, reference: str) -> ApprovalId:
    """Return the id of the approval that a reference names. Raises UnknownApproval or UsageError."""
    _refuse_empty(reference, "approval")
    prefix, end = _prefix(reference, "apr"), _end(reference, "apr")
    if end is None and reference != LAST:
        return ApprovalId(reference)
    pending = (await caller.call(approvals.LIST, approvals.ListApprovals())).items
    if reference == LAST:
        here = find_workspace(Path.cwd())
        for each in reversed(pending):
            if each.workspace is None or is_same_place(each.workspace, here):
                return each.approval_id
        elsewhere = f" {len(pending)} are pending in other folders: `treadle approvals list`." if pending else ""
        raise UnknownApproval(f"No approvals are pending in the folder {Path.cwd()}.{elsewhere}")
    found = [each.approval_id for each in pending if prefix and each.approval_id.startswith(prefix)]
    found = found or [each.approval_id for each in pending if end and each.approval_id.endswith(end)]
    if not found:
        raise UnknownApproval(
            f"No pending approval has an id that begins or ends with {end}. `treadle approvals list` shows them."
        )
    return ApprovalId(find_only(reference, found, "approvals"))


async def find_memories(home: Home, references: Sequence[str]) -> list[str]:
    """Return the ids of the memories that references name."""
    if all(_prefix(each, "mem") is None and each != LAST for each in references):
        return list(references)
    async with open_readonly_memory_caller(home) as caller:
        known = [each.memory_id or "" for each in await caller.context.memory.list(None)]
    return [find_listed(each, "mem", known, "memory", "memories") for each in references]


async def find_question(caller: Caller, run_id: RunId, reference: str) -> str:
    """Return the id of the question of a run that a reference names: whole, a unique beginning, or `last`."""
    asked = [each.call_id for each in (await caller.call(runs.QUESTIONS, runs.OneRun(run_id))).items]
    if reference == LAST and asked:
        return asked[-1]
    found = [each for each in asked if each.startswith(reference)]
    return reference if reference in asked or not found else find_only(reference, found, "questions")


def find_listed(reference: str, kind: str, known: Sequence[str], thing: str, things: str) -> str:
    """Return the id of those known that a reference names; `last` is the one that was made last. A reference that
    names none of them is returned as it is, and the operation that gets it says so."""
    _refuse_empty(reference, thing)
    if reference == LAST:
        made = [each for each in known if each.startswith(f"{kind}_")]
        if not made:
            raise UsageError(f"There are no {things} yet.")
        return max(made)  # ids are ordered by time
    prefix = _prefix(reference, kind)
    found = [each for each in known if prefix and each.startswith(prefix)]
    return find_only(reference, found, things) if found else reference


def _prefix(reference: str, kind: str) -> str | None:
    """Return the beginning of an id that a reference is; None if it is whole, or not hexadecimal."""
    digits = reference.removeprefix(f"{kind}_").lower()
    is_part = MIN_DIGITS <= len(digits) < ID_DIGITS and not digits.strip("0123456789abcdef")
    return f"{kind}_{digits}" if is_part else None


def _end(reference: str, kind: str) -> str | None:
    """Return the end of an id that a reference may be, which the dashboard shows as `run_…9f3b21c0`; None if it is
    whole, or not hexadecimal."""
    digits = reference.removeprefix(f"{kind}_").removeprefix("…").lower()
    is_part = MIN_DIGITS <= len(digits) < ID_DIGITS and not digits.strip("0123456789abcdef")
    return digits if is_part else None


def _refuse_short(reference: str) -> None:
    if len(reference) < MIN_DIGITS and not reference.lower().strip("0123456789abcdef"):
        raise UsageError(f"`{reference}` is too short for an id. Type at least {MIN_DIGITS} digits.")


def _refuse_empty(reference: str, thing: str) -> None:
    if not reference.strip():
        raise UsageError(f"The name of the {thing} is empty. Write its id, a beginning of it, or `{LAST}`.")


def find_only(reference: str, found: Sequence[str], things: str) -> str:
    """Return the only id of those found. Raises UsageError if there are several."""
    if len(found) > 1:
        shown = ", ".join(found[:SHOWN_MATCHES])
        raise UsageError(f"`{reference}` matches several {things}: {shown}. Type more of the id.")
    return found[0]


async def choose_agent(home: Home, reference: str, model: str | None) -> "ChosenAgent":
    """Return the agent of the home that `NAME`, `NAME@7` or `NAME@candidate` names, with another model if one is
    named."""
    from treadle.domain.agent_versions import MARK  # not needed to look at runs
    from treadle.operations.requested_run import ChosenAgent

    is_shared = is_postgres(home.database_url) and home.config().storage.agents == "database"
    if MARK not in reference and not is_shared:
        return ChosenAgent(find_agent(home, reference, model))
    async with open_readonly_caller(home) as caller:
        if is_shared:
            from treadle.operations.shared_agents import SharedAgents

            await SharedAgents(caller.context.versions()).synchronize()
        chosen = await caller.context.versions().choose(reference)
    return structs.replace(chosen, spec=_use_model(chosen.spec, model))


def find_agent(home: Home, name: str, model: str | None) -> AgentSpec:
    """Return an agent of the home, with another model if one is named."""
    return _use_model(home.agent(name, model), model)


def _use_model(agent: AgentSpec, model: str | None) -> AgentSpec:
    if model is None:
        return agent
    if not model.strip():
        raise UsageError("-m names no model. Write -m provider/model-id.")
    return structs.replace(agent, model=model, provider=None)
