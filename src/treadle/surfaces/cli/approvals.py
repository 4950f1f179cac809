"""`treadle approvals`: what waits for a decision, and deciding it."""

import os
import sys
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from treadle.bootstrap.engine import observe
from treadle.config.home import Home
from treadle.domain.errors import UsageError
from treadle.domain.ids import ApprovalId
from treadle.operations import Answer
from treadle.operations.run_tree import root_of
from treadle.ports.approvals import ApprovalRecord
from treadle.surfaces.cli.call_view import in_words, remembered, shown
from treadle.surfaces.cli.event_output import note
from treadle.surfaces.cli.process import Stop
from treadle.surfaces.cli.runs import Going
from treadle.surfaces.cli.tables import print_table
from treadle.surfaces.cli.terminal import columns, one_line, print_json, revealed_line

MOST_ARGUMENTS = 60
"""So many characters of the arguments stand in the list."""
UNBROKEN = 2**31
"""The width of a file, whose lines are never broken."""


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
        head = ("APPROVAL", "TOOL", "ARGUMENTS", "WHY", "REQUESTED", "RUN")
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
    print()
    for line in shown(view.arguments, columns() if sys.stdout.isatty() else UNBROKEN).lines:
        print(line)
    return 0


async def decide(approval_id: str, answer: Answer, going: Going) -> int:
    """Decide it and go on with its run, which is followed to its end or to the next thing it waits for."""
    home = Home.from_environment(os.environ)
    with Stop() as stop:
        async with going.reached(home) as home_of:
            service = home_of.service
            record = await service.approval(ApprovalId(approval_id))
            if answer.remember == "session" and record.pattern is None and record.decision is None:
                raise UsageError(
                    f"Nothing can be remembered for {record.approval_id}: there is no rule that would match such "
                    f"calls of `{record.tool}` and no others. Approve it without --session."
                )
            root = await root_of(service, record.origin.run_id)
            since = await service.decide(record.approval_id, answer)
            if answer.remember == "session" and record.pattern is not None:
                note(f"without asking in this session: {remembered(record.tool, record.pattern)}")
            following = going.follow(home_of, home, stop, "your decision")
            return await following.whole(root, record.origin.run_id, since)


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
    arguments = in_words(view.arguments, MOST_ARGUMENTS)
    return view.approval_id, view.tool, arguments, revealed_line(view.reason), requested, view.run_id


def _print_json(view: ApprovalView) -> None:
    print_json(view)
