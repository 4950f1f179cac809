"""What a search passes by: what the .gitignore files of the workspace name, and folders that hold no source."""

import os
from itertools import groupby
from typing import NamedTuple

from treadle.ports.tool import ToolError
from treadle.tools.files.globs import translate_ignore_pattern
from treadle.tools.files.regex import BadExpression, Expression
from treadle.tools.files.text import read_bytes
from treadle.tools.files.workspace import OpenPath

SKIPPED_FOLDERS = frozenset({
    ".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".tox", ".nox", ".mypy_cache", ".ruff_cache",
    ".pytest_cache", ".hypothesis",
})  # fmt: skip
_FILE_NAME = ".gitignore"
_MAX_BYTES = 64_000
_MAX_RULES = 500


class _PatternGroup(NamedTuple):
    """Patterns that stand together in one file and say the same."""

    ignore: bool
    expression: Expression


class _IgnoreFile(NamedTuple):
    under: str
    """The folder that it stands in, with a slash at the end."""
    rules: tuple[_PatternGroup, ...]


class IgnoreRules(NamedTuple):
    """The .gitignore files from the workspace down to a folder."""

    files: tuple[_IgnoreFile, ...] = ()

    def and_those_of(self, folder: int, under: str) -> "IgnoreRules":
        """With the one that stands in this folder."""
        try:
            descriptor = OpenPath(folder, _FILE_NAME, under + _FILE_NAME).open()
        except ToolError:  # none, or none that may be read
            return self
        try:
            text = read_bytes(descriptor, _MAX_BYTES).decode("utf-8", "replace")
        finally:
            os.close(descriptor)
        rules = parse_rules(text)
        return IgnoreRules((*self.files, _IgnoreFile(under, rules))) if rules else self

    def covers(self, path: str) -> bool:
        """Whether this is passed by. A folder is given with a slash at its end."""
        for file in reversed(self.files):
            name = path[len(file.under) :]
            for rules in reversed(file.rules):
                if rules.expression.fits(name):
                    return rules.ignore
        return False


def parse_rules(text: str) -> tuple[_PatternGroup, ...]:
    """The rules of a .gitignore, in its order: the last one that fits decides."""
    lines = [line for line in map(_trim_line, text.splitlines()) if line and not line.startswith("#")]
    grouped = groupby(lines[:_MAX_RULES], key=lambda line: line.startswith("!"))
    made = [_compile_group(ignore=not negated, patterns=[line.removeprefix("!") for line in group])
            for negated, group in grouped]  # fmt: skip
    return tuple([rules for rules in made if rules is not None])


def _compile_group(ignore: bool, patterns: list[str]) -> _PatternGroup | None:
    try:
        return _PatternGroup(ignore, Expression("|".join(_translate_pattern(pattern) for pattern in patterns)))
    except BadExpression:
        return None


def _translate_pattern(pattern: str) -> str:
    only_folders = pattern.endswith("/")
    body = pattern.rstrip("/")
    anchored = "/" in body
    expression = translate_ignore_pattern(body.removeprefix("/"))
    above = "" if anchored else "(?:.*/)?"
    return f"(?:(?s){above}(?:{expression}){'/' if only_folders else '/?'})"


def _trim_line(line: str) -> str:
    """Without the spaces at its end, unless the last is escaped."""
    trimmed = line.rstrip(" \t\r")
    return f"{trimmed} " if trimmed.endswith("\\") and trimmed != line else trimmed
