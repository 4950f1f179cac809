"""The tags and the metadata that a program gives a run."""

from collections.abc import Mapping, Sequence
from typing import Any


def read_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Return the tags of a run. Raise TypeError for anything that is not a list of texts."""
    if isinstance(tags, str):
        raise TypeError(f"tags={tags!r} is not a list. Write tags=[{tags!r}].")
    for tag in tags:
        _require_text("A tag", tag)
    return tuple(tags)


def read_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata of a run. Raise TypeError for anything that is not a dictionary of texts."""
    if not isinstance(metadata, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] -- programs are not checked
        raise TypeError(f"metadata={metadata!r} is not a dictionary. Write metadata={{'ticket': '42'}}.")
    for name, value in metadata.items():
        _require_text("A name of metadata", name)
        _require_text(f"The metadata `{name}`", value)
    return dict(metadata)


def _require_text(what: str, value: Any) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{what} is text, not {type(value).__name__}. Write {str(value)!r}.")
