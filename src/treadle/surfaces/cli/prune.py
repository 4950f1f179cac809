"""`treadle prune`: sessions that nobody has touched for long are deleted for good."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from treadle.backup.event_export import EventExportFile
from treadle.backup.home_backup import open_archiving_retention
from treadle.bootstrap.callers import open_persistent_readonly_caller
from treadle.config.home import Home
from treadle.domain.access import OWNER
from treadle.domain.durations import parse_duration
from treadle.domain.errors import UsageError
from treadle.operations.sessions import PRUNE, PruneSessions
from treadle.ports.deletion import IdleSession
from treadle.surfaces.cli.confirmation import is_wanted
from treadle.surfaces.cli.connection import administering
from treadle.surfaces.cli.event_output import note
from treadle.surfaces.cli.sessions import deleting
from treadle.surfaces.cli.tables import print_table
from treadle.surfaces.cli.terminal import is_terminal, print_json


async def prune(
    older_than: str, agent: str | None, archive: Path | None, dry_run: bool, yes: bool, json: bool
) -> int:
    span, home = _span(older_than), Home.from_environment(os.environ)
    past = None if archive is None else EventExportFile(archive)
    if dry_run or not yes:
        async with open_persistent_readonly_caller(home) as caller:
            idle = await caller.context.house.idle(span, agent)
        if dry_run:
            return _show(idle, json)
        if idle and not await is_wanted(_question(idle), f"Deleting {_sessions(len(idle))}"):
            note("nothing was deleted")
            return 1
    if past is None:
        async with administering(home, deleting) as caller:
            done = await caller.call(PRUNE, PruneSessions(span, agent))
    else:
        async with open_archiving_retention(home, past) as house:
            done = await house.prune(span, agent, OWNER.name, _progress)
    kept = str(past.path) if past is not None and past.made else None
    if json:
        _print_json(msgspec.structs.asdict(done) | {"archive": kept})
    else:
        if kept is not None:
            note(f"their events were written to {kept} before")
        what = f"{done.runs} runs, {done.events} events, {done.memories} memories"
        note(f"{_sessions(done.sessions)} deleted ({what}); {done.requests} answers to old requests forgotten")
    return 0


def _span(older_than: str) -> float:
    try:
        span = parse_duration(older_than)
    except ValueError as error:
        raise UsageError(f"--older-than: {error}.") from None
    if span <= 0:
        raise UsageError("--older-than must be above 0, for example 90d.")
    return span


def _show(idle: Sequence[IdleSession], json: bool) -> int:
    if json:
        for session in idle:
            times = {"first_at": _moment(session.first_at), "latest_at": _moment(session.latest_at)}
            _print_json(msgspec.structs.asdict(session) | times)
    elif idle:
        rows = [
            (
                session.session_id,
                _moment(session.latest_at).astimezone().strftime("%Y-%m-%d %H:%M"),
                str(session.runs),
                str(session.events),
                session.agent,
            )
            for session in idle
        ]
        print_table(("SESSION", "LATEST", "RUNS", "EVENTS", "AGENT"), rows)
        note(f"{_sessions(len(idle))} would be deleted; nothing was")
    else:
        note("nothing is that old")
    return 0


def _question(idle: Sequence[IdleSession]) -> str:
    runs, latest = sum(session.runs for session in idle), _moment(max(session.latest_at for session in idle))
    return (
        f"Delete {_sessions(len(idle))} with {runs} runs for good, the youngest last used on "
        f"{latest.astimezone():%Y-%m-%d %H:%M}?"
    )


def _progress(done: int, total: int) -> None:
    if is_terminal():
        note(f"deleting: {done} of {total} sessions")


def _sessions(count: int) -> str:
    return f"{count} session{'' if count == 1 else 's'}"


def _moment(instant: float) -> datetime:
    return datetime.fromtimestamp(instant, UTC)


def _print_json(value: Any) -> None:
    print_json(value)
