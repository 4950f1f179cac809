"""Edits of `config.yaml` that keep its comments and its order: an entry is added to a section, or removed."""

import re
from typing import Any

from treadle.config.home import Home
from treadle.config.home_config import HomeConfig
from treadle.config.private_files import write_atomically
from treadle.config.yaml_files import dump_yaml, parse_struct
from treadle.domain.errors import ConfigError


def add_entry(home: Home, section: str, name: str, values: dict[str, Any]) -> None:
    """Add an entry to a section of the `config.yaml` of a home. Raise ConfigError if the result is not valid."""
    path = home.path / "config.yaml"
    text = _read(home)
    lines = text.splitlines(keepends=True)
    block = dump_yaml({name: values}, width=100)
    start = _find_section(lines, section)
    if start is None:
        body = "".join(f"  {line}\n" for line in block.splitlines())
        changed = f"{text.rstrip()}\n\n{section}:\n{body}".lstrip("\n")
    else:
        if lines[start].split(":", 1)[1].split("#")[0].strip() not in ("", "{}"):
            raise ConfigError(
                f"{path}: `{section}` is written on one line; write its entries on lines of their own."
            )
        indent = _find_indent(lines, start) or "  "
        lines[start] = f"{section}:\n"
        lines[start + 1 : start + 1] = [f"{indent}{line}\n" for line in block.splitlines()]
        changed = "".join(lines)
    _write(home, changed)


def remove_entry(home: Home, section: str, name: str) -> bool:
    """Remove an entry from a section. Return False if there is none. Raise ConfigError if it cannot be removed."""
    lines = _read(home).splitlines(keepends=True)
    start = _find_section(lines, section)
    if start is None or (indent := _find_indent(lines, start)) is None:
        return False
    own = re.compile(rf"{re.escape(indent)}(['\"]?){re.escape(name)}\1\s*:")
    first = next((at for at in range(start + 1, len(lines)) if own.match(lines[at])), None)
    if first is None:
        return False
    last = first + 1
    while last < len(lines) and (not lines[last].strip() or lines[last].startswith(f"{indent} ")):
        last += 1
    while last > first + 1 and not lines[last - 1].strip():
        last -= 1
    del lines[first:last]
    if _find_indent(lines, start) is None:
        lines[start] = f"{section}: {{}}\n"
    _write(home, "".join(lines))
    return True


def _find_section(lines: list[str], section: str) -> int | None:
    return next((at for at, line in enumerate(lines) if re.match(rf"{section}\s*:", line)), None)


def _find_indent(lines: list[str], start: int) -> str | None:
    """Return the indent of the entries of a section, or None if it has none."""
    for line in lines[start + 1 :]:
        if line.strip() and not line.lstrip().startswith("#"):
            found = line[: len(line) - len(line.lstrip())]
            return found or None
    return None


def _read(home: Home) -> str:
    path = home.path / "config.yaml"
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}; check the file") from None


def _write(home: Home, text: str) -> None:
    """Write the file if its new content is valid. A file that is a link stays one."""
    path = home.path / "config.yaml"
    parse_struct(text, HomeConfig, str(path))
    home.ensure()
    write_atomically(path.resolve(), text)
