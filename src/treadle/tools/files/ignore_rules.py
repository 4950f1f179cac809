"""What a search passes by: what the .gitignore files of the workspace name, and folders that hold no source."""

import os
from itertools import groupby
from typing import NamedTuple

from treadle.ports.tool import ToolError
from treadle.tools.files.globs import ignore_expression
from treadle.tools.files.regex import BadExpression, Expression
from treadle.tools.files.text import read_bytes
from treadle.tools.files.workspace import OpenPath

PASSED_BY = frozenset({
    ".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".tox", ".nox", ".mypy_cache", ".ruff_cache",
    ".pytest_cache", ".hypothesis",
})  # fmt: skip
_FILE = ".gitignore"
_MOST_BYTES = 64_000
_MOST_RULES = 500


class _Rules(NamedTuple):
    """Patterns that stand together in one file and say the same."""

    ignore: bool
    expression: Expression


class _File(NamedTuple):
    under: str
    """The folder that it stands in, with a slash at the end."""
    rules: tuple[_Rules, ...]


class Ignored(NamedTuple):
    """The .gitignore files from the workspace down to a folder."""

    files: tuple[_File, ...] = ()

    def and_those_of(self, folder: int, under: str) -> "Ignored":
        """With the one that stands in this folder."""
        try:
            descriptor = OpenPath(folder, _FILE, under + _FILE).open()
        except ToolError:  # none, or none that may be read
            return self
        try:
            text = read_bytes(descriptor, _MOST_BYTES).decode("utf-8", "replace")
        finally:
            os.close(descriptor)
        rules = rules_of(text)
        return Ignored((*self.files, _File(under, rules))) if rules else self

    def covers(self, path: str) -> bool:
        """Whether this is passed by. A folder is given with a slash at its end."""
        for file in reversed(self.files):
            name = path[len(file.under) :]
            for rules in reversed(file.rules):
                if rules.expression.fits(name):
                    return rules.ignore
        return False


def rules_of(text: str) -> tuple[_Rules, ...]:
    """The rules of a .gitignore, in its order: the last one that fits decides."""
    lines = [line for line in map(_trimmed, text.splitlines()) if line and not line.startswith("#")]
    grouped = groupby(lines[:_MOST_RULES], key=lambda line: line.startswith("!"))
    made = [_together(ignore=not negated, patterns=[line.removeprefix("!") for line in group])
            for negated, group in grouped]  # fmt: skip
    return tuple([rules for rules in made if rules is not None])


def _together(ignore: bool, patterns: list[str]) -> _Rules | None:
    try:
        return _Rules(ignore, Expression("|".join(_expression(pattern) for pattern in patterns)))
    except BadExpression:
        return None


def _expression(pattern: str) -> str:
    only_folders = pattern.endswith("/")
    body = pattern.rstrip("/")
    anchored = "/" in body
    expression = ignore_expression(body.removeprefix("/"))
    above = "" if anchored else "(?:.*/)?"
    return f"(?:(?s){above}(?:{expression}){'/' if only_folders else '/?'})"


def _trimmed(line: str) -> str:
    """Without the spaces at its end, unless the last is escaped."""
    trimmed = line.rstrip(" \t\r")
    return f"{trimmed} " if trimmed.endswith("\\") and trimmed != line else trimmed
