"""Secrets: passed to tools when they run, and removed from every text that comes back."""

from collections.abc import Collection, Mapping
from typing import Protocol

from msgspec import Struct

from treadle.domain.errors import TreadleError


class VaultError(TreadleError):
    """The vault cannot be used: no key fits, or it is damaged. The message is for the operator."""


class SecretRefused(Exception):
    """There is no such secret, or it is not granted to this agent for this tool.

    The message is for the model and does not reveal which of the two it is. `reason` does, for the journal."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message


class Redaction(Struct, frozen=True):
    text: str
    names: tuple[str, ...] = ()
    """The secrets that were found; empty if the text is unchanged."""


class TextStream(Protocol):
    """A text that arrives in pieces of any size. Anything that may be part of a secret is held back."""

    def feed(self, piece: str) -> str:
        """Return the text that can be shown now."""
        ...

    def flush(self) -> str:
        """Return the text that was held back, at the end of the stream."""
        ...


class Redactor(Protocol):
    """Knows the value of every secret, and its common encodings."""

    @property
    def is_idle(self) -> bool:
        """Whether there are no secrets to look for."""
        ...

    def redact(self, text: str) -> Redaction: ...

    def stream(self) -> TextStream: ...


class Vault(Protocol):
    """Call it for each use and do not cache its answers: other processes may change the vault. Every method may
    raise VaultError."""

    @property
    def redactor(self) -> Redactor:
        """Return an immutable redactor for the current secrets. Use one redactor for a whole text."""
        ...

    def names(self, agent: str) -> Collection[str]:
        """Return the names of the secrets that are granted to an agent, for any tool."""
        ...

    def read_granted_secrets(self, agent: str, tool: str) -> Mapping[str, str]:
        """Return the secrets that are granted to a tool for an agent, by name."""
        ...

    def reveal(self, name: str, agent: str, tool: str) -> str:
        """Return one secret for one tool. Raise SecretRefused if it is not granted."""
        ...
