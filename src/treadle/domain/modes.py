"""Modes of a session: how much the agent may do without asking, in addition to the rules of the agent."""

from collections.abc import Mapping
from typing import Literal

ApprovalMode = Literal["plan", "ask", "accept_edits", "auto"]
"""plan: it only reads. ask: it asks before it changes anything that no rule allows. accept_edits: it also changes
files of the workspace. auto: it asks only for what no rule can allow."""
MODE_CYCLE: tuple[ApprovalMode, ...] = ("ask", "accept_edits", "plan", "auto")
"""The order in which one key chooses them."""
RULES_NAME = "rules"
"""What a session without a mode is called: the approval rules of its agent decide alone."""
MODE_NAMES: Mapping[ApprovalMode, str] = {
    "plan": "plan",
    "ask": "ask",
    "accept_edits": "accept edits",
    "auto": "auto",
}
MODE_TEXTS: Mapping[ApprovalMode | None, str] = {
    None: "The approval rules of the agent decide.",
    "ask": "Ask before each call that changes something and that no rule allows.",
    "accept_edits": "Change files of the workspace without asking, except protected files. Ask for the rest.",
    "plan": "Only read, until a plan is approved.",
    "auto": "Ask only for protected files, destructive commands and tools that always need an approval.",
}
_WIDTHS: Mapping[ApprovalMode, int] = {"plan": 0, "ask": 1, "accept_edits": 2, "auto": 3}


def is_wider(mode: ApprovalMode | None, than: ApprovalMode | None) -> bool:
    """Return whether a mode may let the agent do more without asking than another one does. Without a mode, the
    rules decide, which may allow anything."""
    if mode == than:
        return False
    if mode is None:
        return True
    if than is None:
        return mode in ("accept_edits", "auto")
    return _WIDTHS[mode] > _WIDTHS[than]


def copy_mode(mode: ApprovalMode | None) -> ApprovalMode | None:
    """Return the mode of a session that begins as a copy of another one. What a reviewer widened is not copied."""
    return mode if mode in ("plan", "ask") else None


def describe_mode(mode: ApprovalMode | None) -> str:
    """Return the name of a mode for people."""
    return RULES_NAME if mode is None else MODE_NAMES[mode]


def next_mode(mode: ApprovalMode | None, *, can_be_auto: bool = True) -> ApprovalMode:
    """Return the mode that follows when the user presses the key for it. A session without a mode is left like
    one that asks."""
    cycle = MODE_CYCLE if can_be_auto else MODE_CYCLE[:-1]
    return cycle[(cycle.index(mode) + 1) % len(cycle)] if mode in cycle else cycle[0 if mode else 1]


def parse_mode(text: str) -> ApprovalMode | None:
    """Return the mode that a user names; None for the rules of the agent. Raise ValueError for another word."""
    word = text.strip().lower().replace("-", "_").replace(" ", "_")
    if word == RULES_NAME:
        return None
    for mode in MODE_CYCLE:
        if word == mode:
            return mode
    raise ValueError(f"there is no mode `{text.strip()}`; modes: {', '.join((*MODE_CYCLE, RULES_NAME))}")
