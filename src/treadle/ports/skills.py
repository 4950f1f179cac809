"""Skills: instructions that an agent loads when it needs them, in the Agent Skills format."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct


class Skill(Struct, frozen=True):
    """A skill that a person has approved, as it was then."""

    name: str
    description: str
    origin: Literal["home", "workspace"]
    tools: tuple[str, ...] = ()
    """Tools that it brings with it. One of a workspace brings none."""


class Skills(Protocol):
    def offered(self, wanted: Sequence[str], workspace: Path) -> Sequence[Skill]:
        """The approved skills that these names (or globs) stand for, by name: looked up now, so that one that was
        changed since it was approved is not among them. One of the home goes before one of the workspace."""
        ...

    def load(self, name: str, wanted: Sequence[str], workspace: Path, file: str | None = None) -> str:
        """The instructions of a skill and the names of its other files; or one of these files, by its path from the
        skill's folder. Raises LookupError, whose message is for the model."""
        ...
