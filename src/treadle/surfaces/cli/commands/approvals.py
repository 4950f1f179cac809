"""`treadle approvals`: list and decide approvals."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from treadle.bootstrap.callers import open_readonly_caller
from treadle.domain.errors import UsageError
from treadle.domain.permissions import describe_destruction
from treadle.domain.users import LOCAL_USER
from treadle.operations import approvals
from treadle.operations.approvals import ApprovalView
from treadle.surfaces.cli.command_line import Group, Option
from treadle.surfaces.cli.shared_options import (
    ApprovalArgument,
    BaseUrl,
    FurtherDecisions,
    Json,
    Note,
    decision_of,
)
from treadle.surfaces.home_access.references import find_approval
from treadle.surfaces.terminal.call_view import describe_rule, show_call, summarize_call
from treadle.surfaces.terminal.output import (
    Column,
    local_time,
    note,
    print_fields,
    print_json,
    print_list,
    short_id,
    when,
)
from treadle.surfaces.terminal.text import columns, reveal_line

if TYPE_CHECKING:
    from treadle.operations.approval_service import Answer
    from treadle.surfaces.cli.follow import FollowOptions

MAX_ARGUMENT_CHARACTERS = 200
UNBROKEN = 2**31
"""The width of a file, whose lines are never broken."""
BY = "command line"
group = Group("approvals")


@group.command("list")
async def list_approvals(json: Json = False) -> int:
    """List pending approvals, oldest first."""
    async with open_readonly_caller() as caller:
        views = (await caller.call(approvals.LIST, approvals.ListApprovals())).items
    head = (
        *("APPROVAL", Column("TOOL", shrinks_to=8), Column("ARGUMENTS", shrinks_to=16)),
        *(
            Column("WHY", shrinks_to=16, is_optional=True),
            Column("REQUESTED", is_optional=True),
            Column("RUN", is_optional=True),
        ),
    )
    print_list(views, head, _row, json=json, empty="No approvals are pending.")
    return 0


@group.command("show")
async def show_approval(approval: ApprovalArgument, json: Json = False) -> int:
    """Show an approval with the exact arguments of the call."""
    async with open_readonly_caller() as caller:
        approval_id = await find_approval(caller, approval)
        view = await caller.call(approvals.SHOW, approvals.ShowApproval(approval_id))
    if json:
        print_json(view)
        return 0
    print_fields(_fields(view))
    print()
    for line in show_call(view.arguments, columns() if sys.stdout.isatty() else UNBROKEN).lines:
        print(line)
    return 0


@group.command("approve")
async def approve(
    approval: ApprovalArgument,
    arguments: Annotated[
        str | None, Option(metavar="JSON", help="Run the call with these arguments instead.")
    ] = None,
    session: Annotated[bool, Option("--session", help="Approve such calls for the rest of the session.")] = False,
    note: Note = "",
    base_url: BaseUrl = None,
    yes: FurtherDecisions = None,
    json: Json = False,
) -> int:
    """Approve a call and follow its run. Ctrl-C leaves the run, which continues."""
    from treadle.operations.approval_service import Answer
    from treadle.surfaces.cli.follow import FollowOptions

    answer = Answer("approve", arguments, note, BY, "session" if session else "once")
    return await _decide(approval, answer, FollowOptions(json, base_url, decision_of(yes), on_stop="leave"))


@group.command("deny")
async def deny(
    approval: ApprovalArgument,
    note: Note = "",
    base_url: BaseUrl = None,
    yes: FurtherDecisions = None,
    json: Json = False,
) -> int:
    """Deny a call and follow its run. Ctrl-C leaves the run, which continues."""
    from treadle.operations.approval_service import Answer
    from treadle.surfaces.cli.follow import FollowOptions

    options = FollowOptions(json, base_url, decision_of(yes), on_stop="leave")
    return await _decide(approval, Answer("deny", None, note, BY), options)


async def _decide(approval: str, answer: "Answer", options: "FollowOptions") -> int:
    """Decide an approval and follow its run until it ends or waits again."""
    from treadle.operations.run_tree import find_root
    from treadle.surfaces.cli.reviewer import follow_as_reviewer
    from treadle.surfaces.terminal.process import Stop

    with Stop() as stop:
        async with options.open() as home:
            client = home.client
            approval_id = await find_approval(client, approval)
            view = await client.call(approvals.SHOW, approvals.ShowApproval(approval_id))
            if answer.remember == "session" and view.pattern is None and view.decision is None:
                raise UsageError(
                    f"{view.approval_id} cannot be remembered for the session: no rule matches such calls of "
                    f"`{view.tool}` and no others. Approve it without --session."
                )
            root = await find_root(client, view.run_id)
            since = (await client.call(approvals.DECIDE, approvals.decision_of(view.approval_id, answer))).sequence
            if answer.remember == "session" and view.pattern is not None:
                note(f"Approved for this session: {describe_rule(view.tool, view.pattern)}.")
            follower = options.follow(home, stop, "your decision")
            await follower.announce(root.run_id)
            return await follow_as_reviewer(follower, root, view.run_id, since)


def _fields(view: ApprovalView) -> Iterator[tuple[str, str | None]]:
    yield from (("approval", view.approval_id), ("run", view.run_id), ("session", view.session_id))
    yield from (("call", view.call_id), ("tool", view.tool), ("why", view.reason))
    yield "warning", None if view.destructive is None else describe_destruction(view.destructive)
    yield "rule", None if view.pattern is None else describe_rule(view.tool, view.pattern)
    yield "requested", f"{local_time(view.requested_at)}, {when(view.requested_at)}"
    yield "expires", None if view.expires_at is None else local_time(view.expires_at)
    yield "user", None if view.owner == LOCAL_USER else view.owner
    yield "decision", view.decision


def _row(view: ApprovalView) -> tuple[str, ...]:
    return (
        short_id(view.approval_id),
        view.tool,
        summarize_call(view.arguments, MAX_ARGUMENT_CHARACTERS),
        reveal_line(view.reason),
        when(view.requested_at),
        short_id(view.run_id),
    )
