"""Functions of a program that answer what a run asks."""

from collections.abc import Awaitable, Callable
from typing import Any

from treadle.api.result import OpenQuestion
from treadle.domain.events import Decision
from treadle.operations.approvals import ApprovalView

OnApproval = Callable[[ApprovalView], Decision | bool | Awaitable[Decision | bool]]
"""Decides a call that needs an approval: `"approve"` or `"deny"`, or True or False."""
OnClarify = Callable[[OpenQuestion], str | Awaitable[str]]
"""Answers a question of an agent."""


def read_decision(answer: Any) -> Decision:
    """Return the decision that a program has made. Raise TypeError for anything else."""
    if answer is True or answer == "approve":
        return "approve"
    if answer is False or answer == "deny":
        return "deny"
    raise TypeError(f'A decision is "approve" or "deny", or True or False, not {answer!r}.')
