"""`treadle prune`: delete old sessions permanently."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec

from treadle.bootstrap.callers import open_persistent_readonly_caller
from treadle.domain.access import OWNER
from treadle.domain.durations import parse_duration
from treadle.domain.errors import UsageError
from treadle.operations.sessions import PRUNE, Pruned, PruneSessions
from treadle.ports.deletion import IdleSession
from treadle.surfaces.cli import completion
from treadle.surfaces.cli.command_line import Group, Option
from treadle.surfaces.cli.commands.sessions import open_deleting_caller
from treadle.surfaces.cli.confirmation import is_confirmed
from treadle.surfaces.cli.shared_options import Json, Yes
from treadle.surfaces.home_access.connection import current_home, open_admin_caller
from treadle.surfaces.terminal.output import Column, format_count, note, print_json, print_table, short_id, when
from treadle.surfaces.terminal.text import is_terminal

group = Group()


@group.command("prune")
async def prune(
    older_than: Annotated[str, Option(metavar="TIME", help="Minimum age, for example 90d or 12h.")],
    agent: Annotated[
        str | None,
        Option(
            "-a",
            "--agent",
            metavar="NAME",
            help="Only this agent. Default: all agents.",
            suggest=completion.agent_names,
        ),
    ] = None,
    archive: Annotated[
        Path | None,
        Option(metavar="FILE", help="Write the events to a new file first: X.jsonl or X.jsonl.gz."),
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Only print what would be deleted.")] = False,
    yes: Yes = False,
    json: Json = False,
) -> int:
    """Delete old sessions permanently. Sessions with a run in progress are kept."""
    from treadle.backup.event_export import EventExportFile
    from treadle.backup.home_backup import open_archiving_retention

    age, home = _age(older_than), current_home()
    export = None if archive is None else EventExportFile(archive)
    if dry_run or not yes:
        async with open_persistent_readonly_caller(home) as caller:
            idle = await caller.context.retention.idle(age, agent)
        if dry_run:
            return _print_preview(idle, json)
        if idle and not await is_confirmed(_question(idle), f"Deleting {format_count(len(idle), 'session')}"):
            note("Nothing was deleted.")
            return 1
    if export is None:
        async with open_admin_caller(home, open_deleting_caller) as caller:
            done = await caller.call(PRUNE, PruneSessions(age, agent))
    else:
        async with open_archiving_retention(home, export) as retention:
            done = await retention.prune(age, agent, OWNER.name, _print_progress)
    written = str(export.path) if export is not None and export.is_created else None
    if json:
        print_json(msgspec.structs.asdict(done) | {"archive": written})
        return 0
    _print_summary(done, written)
    return 0


def _print_summary(done: Pruned, written: str | None) -> None:
    """Print what was deleted, and the file to which the events were written before."""
    if written is not None:
        note(f"Wrote their events to {written} first.")
    if not done.sessions and not done.requests:
        note("No session is that old. Nothing was deleted.")
        return
    counts = (
        *(format_count(done.runs, "run"), format_count(done.events, "event")),
        format_count(done.memories, "memory", "memories"),
    )
    stored = f" and {format_count(done.requests, 'stored response')} of old requests" if done.requests else ""
    note(f"Deleted {format_count(done.sessions, 'session')} ({', '.join(counts)}){stored}.")


def _age(older_than: str) -> float:
    try:
        age = parse_duration(older_than)
    except ValueError as error:
        raise UsageError(f"--older-than: {error}.") from None
    if age <= 0:
        raise UsageError("--older-than must be above 0, for example 90d.")
    return age


def _print_preview(idle: Sequence[IdleSession], json: bool) -> int:
    if json:
        for session in idle:
            times = {"first_at": _moment(session.first_at), "latest_at": _moment(session.latest_at)}
            print_json(msgspec.structs.asdict(session) | times)
    elif idle:
        print_table(
            (
                *("SESSION", "LATEST", Column("RUNS", is_number=True), Column("EVENTS", is_number=True)),
                Column("AGENT", shrinks_to=8),
            ),
            [
                (
                    short_id(session.session_id),
                    when(_moment(session.latest_at)),
                    str(session.runs),
                    str(session.events),
                    session.agent,
                )
                for session in idle
            ],
        )
        note(f"{format_count(len(idle), 'session')} would be deleted. Nothing was deleted.")
    else:
        note("No session is that old.")
    return 0


def _question(idle: Sequence[IdleSession]) -> str:
    runs, latest = sum(session.runs for session in idle), _moment(max(session.latest_at for session in idle))
    return (
        f"Delete {format_count(len(idle), 'session')} with {format_count(runs, 'run')} permanently? The latest was "
        f"used on {latest.astimezone():%Y-%m-%d %H:%M}."
    )


def _print_progress(done: int, total: int) -> None:
    if is_terminal():
        note(f"Deleting: {done} of {total} sessions")


def _moment(instant: float) -> datetime:
    return datetime.fromtimestamp(instant, UTC)
