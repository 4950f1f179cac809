"""Secrets: handed to tools when they run, and taken out of every text that comes back."""

from collections.abc import Collection, Mapping
from typing import Protocol

from msgspec import Struct

from treadle.domain.errors import TreadleError


class VaultError(TreadleError):
    """The vault cannot be used: no key fits, or it is damaged. The message is for whoever keeps it."""


class SecretRefused(Exception):
    """There is no such secret, or it is not granted to this agent for this tool.

    The message is for the model and does not tell the one from the other; `reason`, for the record, does."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message


class Redaction(Struct, frozen=True):
    text: str
    names: tuple[str, ...] = ()
    """The secrets that were found in it; empty: the text is as it was."""


class TextStream(Protocol):
    """A text that comes in pieces, cut anywhere. Nothing that may become part of a secret is let out early."""

    def feed(self, piece: str) -> str:
        """What can be shown now."""
        ...

    def flush(self) -> str:
        """What was held back: the text has ended."""
        ...


class Redactor(Protocol):
    """Knows the value of every secret, and how it looks in the usual encodings."""

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to look for."""
        ...

    def redact(self, text: str) -> Redaction: ...

    def stream(self) -> TextStream: ...


class Vault(Protocol):
    """Ask it anew each time: what it answers follows what others change in it. Each method may raise VaultError."""

    @property
    def redactor(self) -> Redactor:
        """For the secrets there are now. It does not change: take one for a whole text."""
        ...

    def names(self, agent: str) -> Collection[str]:
        """The secrets that an agent was granted, for any tool."""
        ...

    def granted(self, agent: str, tool: str) -> Mapping[str, str]:
        """The values that a tool may be handed for an agent, by name."""
        ...

    def reveal(self, name: str, agent: str, tool: str) -> str:
        """One value, for one tool. Raises SecretRefused."""
        ...
