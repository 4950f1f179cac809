"""The paths that a settings file of git names: folders with hooks, and further settings."""

from typing import Literal

from msgspec import Struct


class NamedPath(Struct, frozen=True):
    """A path as it is written in a settings file."""

    kind: Literal["hooks", "settings"]
    """hooks: relative to the work tree. settings: relative to the folder of the file."""
    path: str


def find_named_paths(content: bytes) -> tuple[NamedPath, ...]:
    """Return the paths of `core.hooksPath` and of included files."""
    if b"path" not in content.lower():
        return ()
    found: list[NamedPath] = []
    section = ""
    for line in content.decode("utf-8", "surrogateescape").splitlines():
        text = line.strip()
        if text.startswith("["):
            header, _, text = text[1:].partition("]")
            section = header.split('"')[0].strip().lower()
        name, equals, value = text.partition("=")
        path = value.strip().strip('"')
        match section, name.strip().lower():
            case "core", "hookspath" if equals and path:
                found.append(NamedPath("hooks", path))
            case "include" | "includeif", "path" if equals and path:
                found.append(NamedPath("settings", path))
            case _:
                pass
    return tuple(found)
