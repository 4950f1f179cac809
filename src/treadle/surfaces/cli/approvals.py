"""`treadle approvals`: what waits for a decision, and deciding it."""

import os
import sys

import msgspec

from treadle.bootstrap.callers import open_readonly_caller
from treadle.config.home import Home
from treadle.domain.errors import UsageError
from treadle.domain.ids import ApprovalId
from treadle.operations import approvals
from treadle.operations.approval_service import Answer
from treadle.operations.approvals import ApprovalView
from treadle.operations.run_tree import root_of
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


async def list_approvals(json: bool) -> int:
    async with open_readonly_caller() as caller:
        views = (await caller.call(approvals.LIST, approvals.ListApprovals())).items
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
    async with open_readonly_caller() as caller:
        view = await caller.call(approvals.SHOW, approvals.ShowApproval(ApprovalId(approval_id)))
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
            client = home_of.client
            view = await client.call(approvals.SHOW, approvals.ShowApproval(ApprovalId(approval_id)))
            if answer.remember == "session" and view.pattern is None and view.decision is None:
                raise UsageError(
                    f"Nothing can be remembered for {view.approval_id}: there is no rule that would match such "
                    f"calls of `{view.tool}` and no others. Approve it without --session."
                )
            root = await root_of(client, view.run_id)
            since = (await client.call(approvals.DECIDE, approvals.decision_of(view.approval_id, answer))).sequence
            if answer.remember == "session" and view.pattern is not None:
                note(f"without asking in this session: {remembered(view.tool, view.pattern)}")
            following = going.follow(home_of, home, stop, "your decision")
            return await following.whole(root, view.run_id, since)


def _row(view: ApprovalView) -> tuple[str, ...]:
    requested = view.requested_at.astimezone().strftime("%Y-%m-%d %H:%M")
    arguments = in_words(view.arguments, MOST_ARGUMENTS)
    return view.approval_id, view.tool, arguments, revealed_line(view.reason), requested, view.run_id


def _print_json(view: ApprovalView) -> None:
    print_json(view)
