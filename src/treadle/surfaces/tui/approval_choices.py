"""What a reviewer can choose about a call that waits: the keys 1 to 5, and the answer of each."""

from msgspec import Struct

from treadle.domain.tools import EDIT_TOOLS
from treadle.operations.approval_service import Answer
from treadle.operations.approvals import ApprovalView
from treadle.surfaces.terminal.call_view import describe_offer

BY = "terminal"


class ApprovalChoice(Struct, frozen=True):
    """A key, and what it does."""

    key: str
    name: str
    help: str
    answer: Answer | None = None
    """What is sent. None: the user types something first."""
    must_read: bool = False
    """The call runs as it is shown: a longer one must have been read."""
    types: str = ""
    """What the user types first: `edit` or `note`."""
    is_rule: bool = False
    """A rule for later sessions is stored too."""


def list_choices(view: ApprovalView) -> tuple[ApprovalChoice, ...]:
    """Return what can be chosen about a call."""
    if view.is_plan:
        return _PLAN_CHOICES
    choices = [
        ApprovalChoice("1", "approve", "run it once", Answer("approve", by=BY), must_read=True),
        ApprovalChoice("2", "edit", "run it with other arguments", types="edit"),
        ApprovalChoice("3", "deny", "deny it with a note", types="note"),
    ]
    if view.pattern is not None and view.tool in EDIT_TOOLS:
        answer = Answer("approve", by=BY, mode="accept_edits")
        choices.append(
            ApprovalChoice("4", "all edits", "allow all edits in this workspace", answer, must_read=True)
        )
    elif view.pattern is not None:
        answer = Answer("approve", by=BY, remember="session")
        help_ = f"allow {describe_offer(view.tool, view.pattern)} for this session"
        choices.append(ApprovalChoice("4", "allow", help_, answer, must_read=True))
    if view.pattern is not None:
        answer = Answer("approve", by=BY, remember="session")
        help_ = f"always allow {describe_offer(view.tool, view.pattern)} in this workspace"
        choices.append(ApprovalChoice("5", "always", help_, answer, must_read=True, is_rule=True))
    return tuple(choices)


_PLAN_CHOICES = (
    ApprovalChoice(
        "1",
        "accept edits",
        "approve the plan; it changes files of the workspace without asking",
        Answer("approve", by=BY, mode="accept_edits"),
        must_read=True,
    ),
    ApprovalChoice(
        "2", "ask", "approve the plan; it asks before changes", Answer("approve", by=BY, mode="ask"), must_read=True
    ),
    ApprovalChoice("3", "keep planning", "say what to change", types="note"),
    ApprovalChoice(
        "4",
        "auto",
        "approve the plan; it asks for nothing that the sandbox confines",
        Answer("approve", by=BY, mode="auto"),
        must_read=True,
    ),
)
