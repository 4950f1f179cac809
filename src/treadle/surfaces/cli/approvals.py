"""`treadle approvals`: what waits for a decision, and deciding it."""

import os
import sys
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from treadle.app import Engine
from treadle.assembly import observe
from treadle.domain.identity import ApprovalId
from treadle.home import Home
from treadle.ports.approvals import ApprovalRecord
from treadle.service import Answer
from treadle.surfaces.cli.asking import arguments_in_words
from treadle.surfaces.cli.printing import note
from treadle.surfaces.cli.process import Stop
from treadle.surfaces.cli.runs import follow
from treadle.surfaces.cli.tables import print_table
from treadle.surfaces.cli.terminal import inert, one_line


class ApprovalView(Struct, frozen=True):
    """An approval as it is listed."""

    approval_id: str
    run_id: str
    session_id: str
    tool: str
    arguments: str
    reason: str
    requested_at: datetime
    expires_at: datetime | None
    decision: str | None


async def list_approvals(json: bool) -> int:
    async with observe() as service:
        views = [_view(record) for record in await service.approvals()]
    if json:
        for view in views:
            _print_json(view)
    elif views:
        head = ("APPROVAL", "REQUESTED", "TOOL", "ARGUMENTS", "WHY", "RUN")
        print_table(head, [_row(view) for view in views])
    else:
        note("nothing waits for an approval")
    return 0


async def show_approval(approval_id: str, json: bool) -> int:
    async with observe() as service:
        view = _view(await service.approval(ApprovalId(approval_id)))
    if json:
        _print_json(view)
        return 0
    for name, value in msgspec.structs.asdict(view).items():
        if value is not None and name != "arguments":
            print(f"{name.replace('_', ' '):<13} {one_line(str(value))}")
    print(f"\n{inert(view.arguments)}")
    return 0


async def decide(approval_id: str, answer: Answer, json: bool) -> int:
    """Decide it and go on with its run, which is followed to its end or to the next thing it waits for."""
    home = Home.from_environment(os.environ)
    engine = Engine(home=home)
    with Stop() as stop:
        async with engine:
            record = await engine.service.approval(ApprovalId(approval_id))
            since = await engine.service.decide(record.approval_id, answer)
            following = follow(engine, home, stop, json)
            return await following.run(record.origin.run_id, after=since, since=since)


def _view(record: ApprovalRecord) -> ApprovalView:
    return ApprovalView(
        record.approval_id,
        record.origin.run_id,
        record.origin.session_id,
        record.tool,
        record.arguments,
        record.reason,
        datetime.fromtimestamp(record.requested_at, UTC),
        None if record.expires_at is None else datetime.fromtimestamp(record.expires_at, UTC),
        record.decision,
    )


def _row(view: ApprovalView) -> tuple[str, ...]:
    requested = view.requested_at.astimezone().strftime("%Y-%m-%d %H:%M")
    return view.approval_id, requested, view.tool, arguments_in_words(view.arguments), view.reason, view.run_id


def _print_json(view: ApprovalView) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(view) + b"\n")
