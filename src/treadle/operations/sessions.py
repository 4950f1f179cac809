"""Sessions: their runs in order, and the segments of the conversation that the model saw."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from treadle.domain.errors import UsageError
from treadle.domain.ids import SessionId
from treadle.domain.modes import ApprovalMode
from treadle.domain.workspaces import Workspace, WorkspaceId, list_identities
from treadle.operations.context import Context
from treadle.operations.operation import Operation
from treadle.operations.refusal import check_workspace_name, refuse_other_model, refuse_wider_mode, show_workspace
from treadle.operations.retention import Deleted, Pruned
from treadle.operations.runs import RunView, run_view
from treadle.operations.schemas import Cursor, FolderName, Limit, Page, WorkspaceName, make_view
from treadle.ports.sessions import TITLE_LIMIT, SegmentFields, SessionFields, SessionRecord, make_title


class SessionView(SessionFields[datetime], frozen=True):
    """A session."""

    workspace: Workspace | None = None
    """The folder in which it works, and its workspace. Null: it is not known, or the caller is not an
    administrator."""


class SegmentView(SegmentFields[datetime], frozen=True):
    """A conversation that a session continued with."""


class SessionDetail(SessionView, frozen=True):
    """A session with its segments."""

    lineage: tuple[SegmentView, ...] = ()
    """In the order in which they were opened, without the one that the session began with."""


# ── Requests ───────────────────────────────────────────────────────────────────────────────────────


class ListSessions(Struct, frozen=True, forbid_unknown_fields=True):
    cursor: Cursor | None = None
    limit: Limit = 50
    children: Annotated[bool, Meta(description="Also list the sessions of sub-agents.")] = False
    workspace: WorkspaceName | None = None
    folder: FolderName | None = None

    @property
    def workspaces(self) -> tuple[WorkspaceId, ...] | None:
        """The workspaces whose sessions are listed; None for all."""
        if self.folder is not None:
            return list_identities(Workspace(self.workspace or self.folder, self.folder))
        return None if self.workspace is None else (self.workspace,)


def make_list_request(
    place: Workspace | None, cursor: str | None = None, limit: int = 50, *, children: bool = False
) -> ListSessions:
    """Return the request for the sessions of a folder; None for those of all folders."""
    if place is None:
        return ListSessions(cursor, limit, children)
    return ListSessions(cursor, limit, children, place.id, place.folder)


class ShowSession(Struct, frozen=True, forbid_unknown_fields=True):
    session_id: SessionId


class RunsOfSession(Struct, frozen=True, forbid_unknown_fields=True):
    session_id: SessionId


class RenameSession(Struct, frozen=True, forbid_unknown_fields=True):
    session_id: SessionId
    title: Annotated[str, Meta(min_length=1, max_length=TITLE_LIMIT)]


class SetModel(Struct, frozen=True, forbid_unknown_fields=True):
    session_id: SessionId
    model: Annotated[
        Annotated[str, Meta(min_length=1, max_length=200)] | None,
        Meta(description="An alias or provider/model-id; null: the agent's model."),
    ]


class SetMode(Struct, frozen=True, forbid_unknown_fields=True):
    session_id: SessionId
    mode: Annotated[ApprovalMode | None, Meta(description="Null: the approval rules of the agent decide alone.")]


class DeleteSession(Struct, frozen=True, forbid_unknown_fields=True):
    session_id: SessionId


class PruneSessions(Struct, frozen=True, forbid_unknown_fields=True):
    older_than: Annotated[float, Meta(gt=0, description="Seconds since the last event of a session.")]
    agent: Annotated[str | None, Meta(description="Only sessions of this agent; null: of all agents.")] = None


# ── Operations ─────────────────────────────────────────────────────────────────────────────────────

LIST = Operation(
    "sessions.list", "GET", "/v1/sessions", scope="read", request=ListSessions, response=Page[SessionView]
)
SHOW = Operation(
    "sessions.show",
    "GET",
    "/v1/sessions/{session_id}",
    scope="read",
    request=ShowSession,
    response=SessionDetail,
    errors=(404,),
)
RUNS = Operation(
    "sessions.runs",
    "GET",
    "/v1/sessions/{session_id}/runs",
    scope="read",
    request=RunsOfSession,
    response=Page[RunView],
    errors=(404,),
)
RENAME = Operation(
    "sessions.rename",
    "PATCH",
    "/v1/sessions/{session_id}",
    scope="run",
    request=RenameSession,
    response=SessionView,
    errors=(404,),
)
SET_MODEL = Operation(
    "sessions.set_model",
    "PUT",
    "/v1/sessions/{session_id}/model",
    scope="run",
    request=SetModel,
    response=SessionView,
    errors=(404, 422),
)
SET_MODE = Operation(
    "sessions.set_mode",
    "PUT",
    "/v1/sessions/{session_id}/mode",
    scope="run",
    request=SetMode,
    response=SessionView,
    errors=(404, 409, 422),
)
DELETE = Operation(
    "sessions.delete",
    "DELETE",
    "/v1/sessions/{session_id}",
    scope="admin",
    request=DeleteSession,
    response=Deleted,
    errors=(404, 409),
)
PRUNE = Operation(
    "sessions.prune", "POST", "/v1/prune", scope="admin", request=PruneSessions, response=Pruned, errors=(422,)
)


@LIST.handler
async def list_sessions(context: Context, request: ListSessions) -> Page[SessionView]:
    """List sessions, the latest first."""
    before, principal = None if request.cursor is None else SessionId(request.cursor), context.principal
    check_workspace_name(request.workspace or request.folder, principal)
    found = await context.sessions.newest(
        request.limit + 1,
        before,
        principal.agents,
        principal.only_owner,
        children=request.children,
        workspaces=request.workspaces,
    )
    views = tuple([_make_view(record, context) for record in found[: request.limit]])
    return Page(views, views[-1].session_id if len(found) > request.limit else None)


@SHOW.handler
async def show_session(context: Context, request: ShowSession) -> SessionDetail:
    """Get a session."""
    record = await context.visible_session(request.session_id)
    segments = await context.sessions.segments(record.session_id)
    if context.principal.agents is not None:
        visible = {run.origin.run_id for run in await context.visible_runs_of(record.session_id)}
        segments = [segment for segment in segments if segment.run_id in visible]
    return make_view(
        SessionDetail,
        record,
        workspace=show_workspace(record.workspace, context.principal),
        lineage=tuple([make_view(SegmentView, segment) for segment in segments]),
    )


@RUNS.handler
async def list_runs_of_session(context: Context, request: RunsOfSession) -> Page[RunView]:
    """List the runs of a session.

    In the order in which they were submitted."""
    record = await context.visible_session(request.session_id)
    return Page(tuple(map(run_view, await context.visible_runs_of(record.session_id))))


@RENAME.handler
async def rename_session(context: Context, request: RenameSession) -> SessionView:
    """Give a session a title.

    Values of secrets are redacted. Without a title of its own, a session shows the beginning of its first
    message."""
    record = await context.addressed_session(request.session_id)
    title = make_title(context.vault.redactor.redact(request.title).text)
    if not title:
        raise UsageError("The title is empty: it has no printable characters. Send a title of 1 to 80 characters.")
    await context.sessions.rename(record.session_id, title)
    return _make_view(await context.visible_session(record.session_id), context)


@SET_MODEL.handler
async def set_model_of_session(context: Context, request: SetModel) -> SessionView:
    """Choose the model of a session.

    It applies to the next runs of the session's agent. A run in progress keeps its model, and a run that is
    started with a model of its own uses that one. A model that is not one of the agent's own requires the scope
    `admin`."""
    record = await context.addressed_session(request.session_id)
    if request.model is not None:
        if not context.principal.may("admin"):
            refuse_other_model(request.model, context.visible_agent(record.agent))
        context.service.check_model(request.model)
    await context.sessions.set_model(record.session_id, request.model)
    return _make_view(await context.visible_session(record.session_id), context)


@SET_MODE.handler
async def set_mode_of_session(context: Context, request: SetMode) -> SessionView:
    """Choose the mode of a session: how much its agent may do without asking.

    `plan`: only read. `ask`: ask before each call that changes something and that no rule allows. `accept_edits`:
    also change files of the workspace, except protected ones. `auto`: ask only for protected files, destructive
    commands and tools that always need an approval; this requires a working sandbox. It applies from the next tool
    call on, to runs in progress and their child runs too. Rules that deny calls always apply. A wider mode requires
    the scope `approve`."""
    record = await context.addressed_session(request.session_id)
    refuse_wider_mode(request.mode, record.mode, context.principal)
    await context.service.modes.change(record.session_id, request.mode, context.resolve_signer())
    return _make_view(await context.visible_session(record.session_id), context)


@DELETE.handler
async def delete_session(context: Context, request: DeleteSession) -> Deleted:
    """Delete a session permanently.

    Its runs, their events and results, and the memories that came from it are deleted too."""
    return await context.retention.delete_session(request.session_id, context.resolve_signer())


@PRUNE.handler
async def prune_sessions(context: Context, request: PruneSessions) -> Pruned:
    """Delete old sessions permanently.

    Deletes sessions whose runs have all ended and that had no event for so long."""
    return await context.retention.prune(request.older_than, request.agent, context.resolve_signer())


# ── Views ──────────────────────────────────────────────────────────────────────────────────────────


def _make_view(record: SessionRecord, context: Context) -> SessionView:
    return make_view(SessionView, record, workspace=show_workspace(record.workspace, context.principal))
