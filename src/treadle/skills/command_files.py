"""Commands from files: a Markdown file each, whose text becomes a message of the user. The text of a project's
command is untrusted: it is only inserted, and nothing in it is executed."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

PROJECT_FOLDERS = (".treadle/commands", ".claude/commands", ".opencode/command", ".opencode/commands")
"""Relative to the workspace. An earlier folder takes precedence."""
USER_FOLDERS = (
    ".claude/commands", ".codex/prompts", ".config/opencode/command", ".config/opencode/commands",
)  # fmt: skip
"""Relative to the user's home folder, after `commands` in the home of Treadle."""
MAX_FILE_BYTES = 100_000
MAX_FILES = 200
_MAX_DEPTH = 3
_NAME = re.compile(r"[\w.-]{1,60}")
_FRONT_MATTER = re.compile(r"\A---\r?\n(.*?)^---\r?\n?", re.DOTALL | re.MULTILINE)
_FIELD = re.compile(r"^(description|argument-hint):[ \t]*(.*?)[ \t]*\r?$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\$(ARGUMENTS|[1-9])")


class CommandFile(Struct, frozen=True):
    """A command."""

    name: str
    """With a colon after each folder: `docs:write`."""
    description: str
    argument: str
    """What follows the name, for help."""
    text: str
    path: str
    is_own: bool
    """It is the user's own; otherwise it comes with the project."""

    def expand(self, arguments: str) -> str:
        """Return the message: the text with the arguments in place of `$ARGUMENTS`, `$1` and so on. Arguments that
        the text has no place for follow it."""
        words = arguments.split()

        def find(match: re.Match[str]) -> str:
            if match[1] == "ARGUMENTS":
                return arguments
            number = int(match[1])
            return words[number - 1] if number <= len(words) else ""

        expanded = _PLACEHOLDER.sub(find, self.text)
        if arguments and not _PLACEHOLDER.search(self.text):
            expanded = f"{expanded.rstrip()}\n\n{arguments}"
        return expanded.strip("\n")


def list_command_files(workspace: Path, home: Path, user_home: Path | None = None) -> Sequence[CommandFile]:
    """Return the commands of the user and of a project, by name. The user's own take precedence."""
    own = [home / "commands", *((user_home or Path.home()) / name for name in USER_FOLDERS)]
    found: dict[str, CommandFile] = {}
    for folder, is_own in [
        *((each, True) for each in own),
        *((workspace / name, False) for name in PROJECT_FOLDERS),
    ]:
        for name, path in _find_files(folder, "", 0):
            if name not in found and len(found) < MAX_FILES and (command := _read(name, path, is_own)) is not None:
                found[name] = command
    return tuple(found[name] for name in sorted(found))


def _find_files(folder: Path, prefix: str, depth: int) -> Iterator[tuple[str, Path]]:
    try:
        with os.scandir(folder) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in listed[:MAX_FILES]:
        stem = entry.name.removesuffix(".md")
        if not _NAME.fullmatch(stem):
            continue
        if entry.is_dir(follow_symlinks=False) and depth < _MAX_DEPTH:
            yield from _find_files(folder / entry.name, f"{prefix}{entry.name}:", depth + 1)
        elif entry.name.endswith(".md") and entry.is_file(follow_symlinks=False):
            yield f"{prefix}{stem}", folder / entry.name


def _read(name: str, path: Path, is_own: bool) -> CommandFile | None:
    """Return the command in a file; None if it cannot be read or is empty."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES + 1).decode("utf-8", "replace")
    except OSError:
        return None
    head = _FRONT_MATTER.match(text)
    fields = dict(_FIELD.findall(head[1])) if head is not None else {}
    body = text[head.end() :] if head is not None else text
    if not body.strip() or len(text) > MAX_FILE_BYTES:
        return None
    first = next(line.strip("# \t") for line in body.splitlines() if line.strip())
    description = _unquote(fields.get("description", "")) or first
    return CommandFile(
        name=name,
        description=description[:200],
        argument=_unquote(fields.get("argument-hint", ""))[:60],
        text=body,
        path=str(path),
        is_own=is_own,
    )


def _unquote(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value
