"""Skills: instructions that an agent loads when it needs them, in the Agent Skills format."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct


class Skill(Struct, frozen=True):
    """A skill that a user has approved, as it was at that time."""

    name: str
    description: str
    origin: Literal["home", "workspace"]
    tools: tuple[str, ...] = ()
    """Tools that the skill provides. A skill of a workspace provides none."""


class Skills(Protocol):
    def list_offered(self, patterns: Sequence[str], workspace: Path) -> Sequence[Skill]:
        """Return the approved skills that match these names or globs, by name.

        They are looked up now, so a skill that changed after its approval is left out. A skill of the home takes
        precedence over one of the workspace."""
        ...

    def load(self, name: str, patterns: Sequence[str], workspace: Path, file: str | None = None) -> str:
        """Return the instructions of a skill and the names of its other files, or the content of one of these
        files.

        `file` is a path relative to the skill's folder. Raise LookupError with a message for the model."""
        ...
