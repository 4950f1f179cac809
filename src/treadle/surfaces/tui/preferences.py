"""What the user has chosen for the terminal UI, kept in `tui.json` in the home."""

import os
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

FILE_NAME = "tui.json"


class Preferences(Struct, frozen=True, omit_defaults=True):
    """The settings of the terminal UI."""

    theme: str | None = None
    """dark, light or plain; None: as the terminal is."""
    bell: bool = True
    """Ring when a long run ends or needs the user."""
    copy_on_select: bool = False
    mouse: bool = True
    thinking: bool = False
    """Show the model's thinking."""
    details: bool = False
    """Show the details of tool calls."""


def read_preferences(folder: Path) -> Preferences:
    """Return the settings; the defaults if there are none that can be read."""
    try:
        return msgspec.json.decode((folder / FILE_NAME).read_bytes(), type=Preferences)
    except (OSError, msgspec.DecodeError):
        return Preferences()


def write_preferences(folder: Path, preferences: Preferences) -> None:
    """Store the settings. A home that cannot be written keeps the old ones."""
    path = folder / FILE_NAME
    with suppress(OSError):
        path.with_suffix(".new").write_bytes(msgspec.json.format(msgspec.json.encode(preferences)) + b"\n")
        os.replace(path.with_suffix(".new"), path)
