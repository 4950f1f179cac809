"""`treadle sessions`: sessions with their runs and segments."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated

from treadle.bootstrap.callers import open_owning_caller, open_readonly_caller
from treadle.config.home import Home
from treadle.domain.modes import MODE_TEXTS, ApprovalMode, describe_mode
from treadle.operations import sessions
from treadle.operations.operation import LocalCaller, list_items
from treadle.operations.runs import RunView
from treadle.operations.sessions import SessionDetail, SessionView
from treadle.surfaces.cli.command_line import Argument, Group, Option
from treadle.surfaces.cli.confirmation import is_confirmed
from treadle.surfaces.cli.run_view import read_messages, state_of
from treadle.surfaces.cli.shared_options import Json, Limit, SessionArgument, Yes
from treadle.surfaces.home_access.connection import current_home, open_admin_caller
from treadle.surfaces.home_access.references import find_session
from treadle.surfaces.terminal.output import (
    Column,
    format_count,
    note,
    print_fields,
    print_json,
    print_list,
    print_result,
    print_table,
    short_id,
    when,
)
from treadle.surfaces.terminal.text import one_line
from treadle.system.workspace_identity import find_workspace

group = Group("sessions")
ELSEWHERE = "No session has used the folder {folder} yet. Those of other folders: treadle sessions list --all"
Everywhere = Annotated[bool, Option("--all", help="List the sessions of all folders, with their folder.")]
Children = Annotated[bool, Option("--children", help="Also list the sessions of sub-agents.")]


@group.command("list")
async def list_sessions(
    limit: Limit = 20, everywhere: Everywhere = False, children: Children = False, json: Json = False
) -> int:
    """List the sessions of the current workspace, latest first."""
    here = None if everywhere else find_workspace(Path.cwd())
    wanted = sessions.make_list_request(here, children=children)
    async with open_readonly_caller() as caller:
        views = await list_items(caller, sessions.LIST, wanted, limit)
        others = [] if views or everywhere else await list_items(caller, sessions.LIST, sessions.ListSessions(), 1)
    head = (
        "SESSION",
        "LATEST",
        Column("RUNS", is_number=True),
        Column("AGENT", shrinks_to=8),
        Column("TITLE", shrinks_to=20),
        *((Column("FOLDER", shrinks_to=16),) if everywhere else ()),
    )
    empty = ELSEWHERE.format(folder=Path.cwd()) if others else 'No sessions yet. Start one: treadle run "Hello."'
    row = _make_row_with_folder if everywhere else _row
    print_list(views, head, row, json=json, empty=empty)
    return 0


@group.command("show")
async def show_session(session: SessionArgument, json: Json = False) -> int:
    """Show the runs and the segments of a session."""
    async with open_readonly_caller() as caller:
        session_id = await find_session(caller, session)
        view = await caller.call(sessions.SHOW, sessions.ShowSession(session_id))
        if json:
            print_json(view)
            return 0
        found = (await caller.call(sessions.RUNS, sessions.RunsOfSession(view.session_id))).items
        messages = await read_messages(caller, found)
    _print_session(view, found, messages)
    return 0


@group.command("rename")
async def rename_session(
    session: SessionArgument,
    title: Annotated[str, Argument(metavar="TITLE", help="The title, at most 80 characters.")],
    json: Json = False,
) -> int:
    """Give a session a title. By default its title is the beginning of its first message."""
    async with open_admin_caller(current_home()) as caller:
        session_id = await find_session(caller, session)
        view = await caller.call(sessions.RENAME, sessions.RenameSession(session_id, title))
    print_result(view, f"{view.session_id} is now titled: {one_line(view.title)}", json=json)
    return 0


@group.command("model")
async def set_model(
    session: SessionArgument,
    model: Annotated[
        str | None, Argument(metavar="MODEL", help="An alias or provider/model-id. Without it, the agent's model.")
    ] = None,
    json: Json = False,
) -> int:
    """Choose the model for the next runs of a session."""
    async with open_admin_caller(current_home()) as caller:
        session_id = await find_session(caller, session)
        view = await caller.call(sessions.SET_MODEL, sessions.SetModel(session_id, model))
    chosen = f"the model of `{view.agent}`" if view.model is None else one_line(view.model)
    print_result(view, f"The next runs of {view.session_id} use {chosen}.", json=json)
    return 0


@group.command("mode")
async def set_mode(
    session: SessionArgument,
    mode: Annotated[
        ApprovalMode | None,
        Argument(metavar="MODE", help="plan, ask, accept_edits or auto. Without it, the rules of the agent alone."),
    ] = None,
    json: Json = False,
) -> int:
    """Choose how much the agent of a session may do without asking.

    It applies from the next tool call on, to runs in progress and to their child runs too."""
    async with open_admin_caller(current_home()) as caller:
        session_id = await find_session(caller, session)
        view = await caller.call(sessions.SET_MODE, sessions.SetMode(session_id, mode))
    print_result(view, f"Mode of {view.session_id}: {describe_mode(view.mode)}. {MODE_TEXTS[view.mode]}", json=json)
    return 0


@group.command("delete")
async def delete_session(session: SessionArgument, yes: Yes = False, json: Json = False) -> int:
    """Delete a session permanently, with its runs, events, results and memories."""
    home = current_home()
    async with open_readonly_caller(home) as caller:
        session_id = await find_session(caller, session)
        view = await caller.call(sessions.SHOW, sessions.ShowSession(session_id))
    question = f"Delete {session_id} with {format_count(view.runs, 'run')} of `{view.agent}` permanently?"
    if not yes and not await is_confirmed(question, f"Deleting {session_id}"):
        note("Nothing was deleted.")
        return 1
    async with open_admin_caller(home, open_deleting_caller) as caller:
        done = await caller.call(sessions.DELETE, sessions.DeleteSession(session_id))
    if json:
        print_json(done)
        return 0
    for each in done.tombstones:
        counts = (format_count(each.runs, "run"), format_count(each.events, "event"))
        note(
            f"Deleted {each.session_id}: {', '.join(counts)}, {format_count(each.memories, 'memory', 'memories')}."
        )
    for other in done.recalled_in:
        note(f"{other} has recalled memories of it; its journal still holds their text.")
    return 0


def open_deleting_caller(home: Home) -> AbstractAsyncContextManager[LocalCaller]:
    """Return a caller that owns the home and can delete from it."""
    return open_owning_caller(home, "Nothing was deleted.")


def _row(view: SessionView) -> tuple[str, ...]:
    return short_id(view.session_id), when(view.latest_at), str(view.runs), view.agent, view.title


def _make_row_with_folder(view: SessionView) -> tuple[str, ...]:
    return (*_row(view), "" if view.workspace is None else view.workspace.folder)


def _print_session(view: SessionDetail, shown: Sequence[RunView], messages: Sequence[str]) -> None:
    fields = (("session", view.session_id), ("title", view.title), ("agent", view.agent))
    folder = None if view.workspace is None else view.workspace.folder
    print_fields(
        (*fields, ("model", view.model), ("mode", view.mode), ("folder", folder), ("runs", view.runs)), width=10
    )
    if view.lineage:
        print("\nsegments: what the model was shown, each made from the one before")
        print_table(
            ("SEGMENT", "OPENED", "BY", Column("MESSAGES", is_number=True), "RUN"),
            [
                (
                    short_id(segment.segment_id),
                    when(segment.opened_at),
                    segment.reason,
                    str(segment.messages),
                    short_id(segment.run_id),
                )
                for segment in view.lineage
            ],
        )
    print("\nruns")
    print_table(
        ("RUN", "CREATED", "STATE", Column("MESSAGE", shrinks_to=20)),
        [
            (short_id(run.run_id), when(run.created_at), state_of(run), message)
            for run, message in zip(shown, messages, strict=True)
        ],
    )
