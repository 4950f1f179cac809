"""What the user has chosen for the terminal UI, kept in `tui.json` in the home. The user may edit the file."""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct

from treadle.domain.settings import InvalidValue, check_struct
from treadle.surfaces.tui.keys import bind_keys
from treadle.surfaces.tui.own_themes import OwnTheme, check_themes

FILE_NAME = "tui.json"


class Preferences(Struct, frozen=True, omit_defaults=True):
    """The settings of the terminal UI."""

    theme: str | None = None
    """dark, light, plain or a theme of the user; None: as the terminal is."""
    bell: bool = True
    """Ring when a long run ends or needs the user."""
    copy_on_select: bool = False
    mouse: bool = True
    thinking: bool = False
    """Show the model's thinking."""
    details: bool = False
    """Show the details of tool calls."""
    keys: dict[str, dict[str, str | tuple[str, ...]]] = {}
    """Keys by place and action."""
    themes: dict[str, OwnTheme] = {}
    """Themes of the user, by name."""


def read_preferences(folder: Path) -> tuple[Preferences, list[str]]:
    """Return the settings, and what is wrong with the file. Wrong settings have their defaults."""
    path = folder / FILE_NAME
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Preferences(), []
    except OSError as error:
        return Preferences(), [f"{path}: cannot be read: {error.strerror}; check its permissions"]
    except ValueError as error:
        return Preferences(), [f"{path}: it is not valid JSON: {error}; accepted: an object of settings"]
    read = Preferences()
    problems: list[str] = []
    for name, value in (cast("dict[str, Any]", data) if isinstance(data, dict) else {"": data}).items():
        try:
            found = check_struct({name: value} if name else value, _Checked)
            read = msgspec.structs.replace(read, **{name: getattr(found, name)})
        except InvalidValue as wrong:
            problems.append(str(wrong))
    _, wrong_keys = bind_keys(read.keys)
    wrong_themes = check_themes(read.themes, read.theme)
    return read, [f"{path}: {problem}" for problem in (*problems, *wrong_keys, *wrong_themes)]


def write_preferences(folder: Path, changes: dict[str, object]) -> None:
    """Store changed settings, and keep the others as they are in the file. A home that cannot be written, or a file
    that cannot be read, stays as it is."""
    path = folder / FILE_NAME
    with suppress(OSError, ValueError):
        data: Any = json.loads(path.read_bytes()) if path.exists() else {}
        if isinstance(data, dict):
            content = json.dumps({**cast("dict[str, Any]", data), **changes}, indent=2, ensure_ascii=False)
            path.with_suffix(".new").write_text(f"{content}\n", encoding="utf-8")
            os.replace(path.with_suffix(".new"), path)


def describe_problems(problems: Sequence[str]) -> str:
    """Return what is wrong with the file, on one line: the first problem, and how many more there are."""
    more = len(problems) - 1
    return problems[0] + (f" ({more} more problem{'' if more == 1 else 's'})" if more else "")


class _Checked(Preferences, frozen=True, forbid_unknown_fields=True):
    """The settings, checked strictly."""
