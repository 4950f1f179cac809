"""Versions of agents: every content that the file of an agent had, and the labels that name some of them."""

import re
from typing import Literal

from msgspec import Struct

from treadle.domain.ids import Instant
from treadle.domain.suggestions import find_closest

VersionOrigin = Literal["file", "api", "restore"]
"""Where a change was made: in the file itself, through an operation, or by restoring an earlier version."""
MARK = "@"
"""Between the name of an agent and the version or the label that is meant."""
CURRENT = "current"
"""The version that the agent has now. No label can have this name."""
LABEL_PATTERN = "[a-z][a-z0-9._-]{0,63}"
MAX_DIGITS = 9
"""Of the number of a version."""
_LABEL = re.compile(LABEL_PATTERN)
_REDACTED = re.compile(r"\[redacted:([^\]\n]*)\]")


class AgentVersion(Struct, frozen=True):
    """One content of the file of an agent."""

    agent: str
    number: int
    """Counted from 1 for each agent."""
    text: str
    """The content, without secrets. Empty: the agent was deleted."""
    at: Instant
    """When it was changed."""
    author: str
    origin: VersionOrigin = "file"
    restored: int | None = None
    """The version that was restored; None: the content is new."""

    @property
    def is_deletion(self) -> bool:
        return not self.text

    @property
    def removed_secrets(self) -> tuple[str, ...]:
        """Return the names of the secrets that the content had. Such a version cannot be used."""
        return tuple(dict.fromkeys(_REDACTED.findall(self.text)))


class AgentLabel(Struct, frozen=True):
    """A name for a version, such as `production`. It can be moved to another version."""

    agent: str
    label: str
    number: int
    at: Instant
    author: str


class AgentReference(Struct, frozen=True):
    """An agent as a caller names it: `NAME`, `NAME@7` or `NAME@candidate`."""

    name: str
    number: int | None = None
    label: str | None = None

    @property
    def names_version(self) -> bool:
        return self.number is not None or self.label is not None


def parse_agent_reference(text: str) -> AgentReference:
    """Return the agent and the version that a text names. Raise ValueError for an invalid version."""
    name, mark, version = text.partition(MARK)
    if not mark:
        return AgentReference(name)
    number, label = parse_version(version)
    return AgentReference(name, number, label)


def parse_version(text: str) -> tuple[int | None, str | None]:
    """Return the number or the label that a text names. Raise ValueError if it is neither."""
    if text.isdecimal() and len(text) <= MAX_DIGITS and int(text) > 0:
        return int(text), None
    check_label(text)
    return None, text


def check_label(text: str) -> None:
    """Raise ValueError if a text is not a label, or `current`."""
    if not _LABEL.fullmatch(text):
        raise ValueError(
            f"`{text[:80]}` is neither a version nor a label. A version is a number; a label begins with a letter "
            "and has up to 64 lowercase letters, digits, dots, dashes and underscores"
        )


def explain_unknown_label(agent: str, label: str, known: list[str]) -> str:
    near = find_closest(label, known)
    hint = f"Did you mean `{near}`?" if near else f"Labels: {', '.join(known) or 'none yet'}."
    return f"Agent `{agent}` has no label `{label}`. {hint}"
