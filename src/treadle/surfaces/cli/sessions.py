"""`treadle sessions`: the sessions, their runs and their segments."""

import os
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from treadle.bootstrap.callers import open_owning_caller, open_readonly_caller
from treadle.config.home import Home
from treadle.domain.ids import SessionId
from treadle.operations import runs, sessions
from treadle.operations.operation import LocalCaller, list_items
from treadle.operations.runs import RunDetail
from treadle.operations.sessions import SessionDetail, SessionView
from treadle.surfaces.cli.confirmation import is_wanted
from treadle.surfaces.cli.connection import administering
from treadle.surfaces.cli.event_output import note
from treadle.surfaces.cli.tables import print_table
from treadle.surfaces.cli.terminal import one_line, print_json


async def list_sessions(limit: int, json: bool) -> int:
    async with open_readonly_caller() as caller:
        views = await list_items(caller, sessions.LIST, sessions.ListSessions(), limit)
    if json:
        for view in views:
            print_json(view)
    elif views:
        print_table(("SESSION", "LATEST", "RUNS", "AGENT", "TITLE"), [_row(view) for view in views])
    else:
        note("no sessions yet")
    return 0


async def show_session(session_id: str, json: bool) -> int:
    async with open_readonly_caller() as caller:
        view = await caller.call(sessions.SHOW, sessions.ShowSession(SessionId(session_id)))
        if json:
            print_json(view)
            return 0
        found = await caller.call(sessions.RUNS, sessions.RunsOfSession(view.session_id))
        shown = [await caller.call(runs.SHOW, runs.ShowRun(run.run_id)) for run in found.items]
    _print_session(view, shown)
    return 0


async def rename_session(session_id: str, title: str, json: bool) -> int:
    async with administering(_home()) as caller:
        view = await caller.call(sessions.RENAME, sessions.RenameSession(SessionId(session_id), title))
    if json:
        print_json(view)
    else:
        note(f"{view.session_id} is now called: {one_line(view.title)}")
    return 0


async def delete_session(session_id: str, yes: bool, json: bool) -> int:
    home, wanted = _home(), SessionId(session_id)
    if not yes:
        async with open_readonly_caller(home) as caller:
            view = await caller.call(sessions.SHOW, sessions.ShowSession(wanted))
        question = f"Delete {session_id} with {view.runs} runs of `{view.agent}` for good?"
        if not await is_wanted(question, f"Deleting {session_id}"):
            note("nothing was deleted")
            return 1
    async with administering(home, deleting) as caller:
        done = await caller.call(sessions.DELETE, sessions.DeleteSession(wanted))
    if json:
        print_json(done)
        return 0
    for buried in done.tombstones:
        what = f"{buried.runs} runs, {buried.events} events, {buried.memories} memories"
        note(f"{buried.session_id} is deleted: {what}")
    for other in done.recalled_in:
        note(f"{other} has recalled memories of it, and its journal still holds their text")
    return 0


def deleting(home: Home) -> AbstractAsyncContextManager[LocalCaller]:
    """Own a home to delete from it."""
    return open_owning_caller(home, "Nothing was deleted.")


def _home() -> Home:
    return Home.from_environment(os.environ)


def _row(view: SessionView) -> tuple[str, ...]:
    latest = view.latest_at.astimezone().strftime("%Y-%m-%d %H:%M")
    return view.session_id, latest, str(view.runs), view.agent, view.title


def _print_session(view: SessionDetail, shown: Sequence[RunDetail]) -> None:
    facts = (("session", view.session_id), ("title", view.title), ("agent", view.agent), ("runs", view.runs))
    for name, value in facts:
        print(f"{name:<10} {one_line(str(value))}")
    if view.lineage:
        print("\nsegments: what the model was shown, each made from the one before")
        print_table(
            ("SEGMENT", "OPENED", "BY", "MESSAGES", "RUN"),
            [
                (
                    segment.segment_id,
                    segment.opened_at.astimezone().strftime("%Y-%m-%d %H:%M"),
                    segment.reason,
                    str(segment.messages),
                    segment.run_id,
                )
                for segment in view.lineage
            ],
        )
    print("\nruns")
    print_table(
        ("RUN", "STATUS", "OUTCOME", "MESSAGE"),
        [(run.run_id, run.status, run.outcome or run.waiting_for or "", run.message) for run in shown],
    )
