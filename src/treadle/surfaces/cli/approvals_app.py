"""The commands `treadle approvals`."""

from functools import partial
from typing import Annotated

from treadle.surfaces.cli.command_line import Group, Option
from treadle.surfaces.cli.shared_options import ApprovalArgument, BaseUrl, FurtherYes, Json, Note, decision_of

approvals_app = Group("approvals")


@approvals_app.command("list")
def list_approvals(json: Json = False) -> None:
    """List pending approvals, oldest first."""
    from treadle.surfaces.cli import approvals, process

    process.perform(partial(approvals.list_approvals, json))


@approvals_app.command("show")
def show_approval(approval_id: ApprovalArgument, json: Json = False) -> None:
    """Show an approval with the exact arguments of the call."""
    from treadle.surfaces.cli import approvals, process

    process.perform(partial(approvals.show_approval, approval_id, json))


@approvals_app.command("approve")
def approve(
    approval_id: ApprovalArgument,
    arguments: Annotated[
        str | None, Option(metavar="JSON", help="Run the call with these arguments instead.")
    ] = None,
    session: Annotated[bool, Option("--session", help="Approve such calls for the rest of the session.")] = False,
    note: Note = "",
    base_url: BaseUrl = None,
    yes: FurtherYes = None,
    json: Json = False,
) -> None:
    """Approve a call and follow its run."""
    from treadle.operations.approval_service import Answer
    from treadle.surfaces.cli import approvals, process
    from treadle.surfaces.cli.runs import Going

    answer = Answer("approve", arguments, note, "command line", "session" if session else "once")
    process.perform(partial(approvals.decide, approval_id, answer, Going(json, base_url, decision_of(yes))))


@approvals_app.command("deny")
def deny(
    approval_id: ApprovalArgument,
    note: Note = "",
    base_url: BaseUrl = None,
    yes: FurtherYes = None,
    json: Json = False,
) -> None:
    """Deny a call and follow its run."""
    from treadle.operations.approval_service import Answer
    from treadle.surfaces.cli import approvals, process
    from treadle.surfaces.cli.runs import Going

    answer = Answer("deny", None, note, "command line")
    process.perform(partial(approvals.decide, approval_id, answer, Going(json, base_url, decision_of(yes))))
