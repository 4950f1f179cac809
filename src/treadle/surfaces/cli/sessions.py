"""`treadle sessions`: the sessions, their runs, and the lineage of what the model is shown."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from treadle.bootstrap.engine import observe
from treadle.config.home import Home
from treadle.domain.ids import SessionId, first_segment_id
from treadle.operations import Service
from treadle.ports.sessions import SegmentRecord, SessionRecord
from treadle.surfaces.cli.confirmation import is_wanted
from treadle.surfaces.cli.event_output import note
from treadle.surfaces.cli.prune import BY, kept_house
from treadle.surfaces.cli.runs import RunView, view_of
from treadle.surfaces.cli.tables import print_table
from treadle.surfaces.cli.terminal import one_line, print_json


class SegmentView(Struct, frozen=True):
    segment_id: str
    parent: str | None
    """None: the session began with it."""
    reason: str
    run_id: str
    opened_at: datetime
    messages: int


class SessionView(Struct, frozen=True):
    """A session as it is listed."""

    session_id: str
    agent: str
    runs: int
    unfinished: int
    created_at: datetime
    latest_at: datetime
    segments: tuple[SegmentView, ...]
    """The last is what the model is shown now."""


async def list_sessions(limit: int, json: bool) -> int:
    async with observe() as service:
        views = [await _view(service, record) for record in await service.sessions(limit)]
    if json:
        for view in views:
            _print_json(view)
    elif views:
        head = ("SESSION", "LATEST", "RUNS", "SEGMENTS", "AGENT", "SEGMENT")
        print_table(head, [_row(view) for view in views])
    else:
        note("no sessions yet")
    return 0


async def show_session(session_id: str, json: bool) -> int:
    async with observe() as service:
        record = await service.session(SessionId(session_id))
        view = await _view(service, record)
        runs = [await view_of(service, run) for run in await service.runs_of(record.session_id)]
    if json:
        _print_json(msgspec.to_builtins(view) | {"run_list": msgspec.to_builtins(runs)})
    else:
        _print_session(view, runs)
    return 0


async def delete_session(session_id: str, yes: bool, json: bool) -> int:
    home = Home.from_environment(os.environ)
    if not yes:
        async with observe(home=home) as service:
            record = await service.session(SessionId(session_id))
        question = f"Delete {session_id} with {record.runs} runs of `{record.agent}` for good?"
        if not await is_wanted(question, f"Deleting {session_id}"):
            note("nothing was deleted")
            return 1
    async with kept_house(home) as house:
        done = await house.delete_session(SessionId(session_id), BY)
    if json:
        _print_json(done)
        return 0
    for buried in done.tombstones:
        what = f"{buried.runs} runs, {buried.events} events, {buried.memories} memories"
        note(f"{buried.session_id} is deleted: {what}")
    for other in done.recalled_in:
        note(f"{other} has recalled memories of it, and its journal still holds their text")
    return 0


async def _view(service: Service, record: SessionRecord) -> SessionView:
    opened = _moment(record.first_at)
    root = SegmentView(first_segment_id(record.session_id), None, "begun", record.first_run, opened, 0)
    later = [_segment(segment) for segment in await service.segments(record.session_id)]
    return SessionView(
        record.session_id,
        record.agent,
        record.runs,
        record.unfinished,
        opened,
        _moment(record.latest_at),
        (root, *later),
    )


def _segment(record: SegmentRecord) -> SegmentView:
    return SegmentView(
        record.segment_id,
        record.parent,
        record.reason,
        record.run_id,
        _moment(record.opened_at),
        record.messages,
    )


def _moment(instant: float) -> datetime:
    return datetime.fromtimestamp(instant, UTC)


def _print_json(value: Any) -> None:
    print_json(value)


def _row(view: SessionView) -> tuple[str, ...]:
    latest = view.latest_at.astimezone().strftime("%Y-%m-%d %H:%M")
    now = view.segments[-1]
    return (
        view.session_id,
        latest,
        str(view.runs),
        str(len(view.segments)),
        view.agent,
        f"{now.segment_id} ({now.reason})",
    )


def _print_session(view: SessionView, runs: Sequence[RunView]) -> None:
    for name, value in (("session", view.session_id), ("agent", view.agent), ("runs", view.runs)):
        print(f"{name:<10} {one_line(str(value))}")
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
            for segment in view.segments
        ],
    )
    print("\nruns")
    print_table(
        ("RUN", "STATUS", "OUTCOME", "MESSAGE"),
        [(run.run_id, run.status, run.outcome or run.waiting_for or "", run.message) for run in runs],
    )
