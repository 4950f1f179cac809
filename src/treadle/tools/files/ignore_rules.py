"""What a search skips: everything that the .gitignore files of the workspace name, and folders without source
code."""

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
    """Consecutive patterns of one file with the same meaning."""

    ignore: bool
    expression: Expression


class _IgnoreFile(NamedTuple):
    under: str
    """Its folder, with a trailing slash."""
    rules: tuple[_PatternGroup, ...]


class IgnoreRules(NamedTuple):
    """The .gitignore files from the workspace down to a folder."""

    files: tuple[_IgnoreFile, ...] = ()

    def with_folder(self, folder: int, under: str) -> "IgnoreRules":
        """Return the rules together with those of the .gitignore in this folder."""
        try:
            descriptor = OpenPath(folder, _FILE_NAME, under + _FILE_NAME).open()
        except ToolError:  # missing or not readable
            return self
        try:
            text = read_bytes(descriptor, _MAX_BYTES).decode("utf-8", "replace")
        finally:
            os.close(descriptor)
        rules = parse_rules(text)
        return IgnoreRules((*self.files, _IgnoreFile(under, rules))) if rules else self

    def covers(self, path: str) -> bool:
        """Return whether a path is ignored. A folder is given with a trailing slash."""
        for file in reversed(self.files):
            name = path[len(file.under) :]
            for rules in reversed(file.rules):
                if rules.expression.matches(name):
                    return rules.ignore
        return False


def parse_rules(text: str) -> tuple[_PatternGroup, ...]:
    """Return the rules of a .gitignore in order. The last one that matches decides."""
    lines = [line for line in map(_trim_line, text.splitlines()) if line and not line.startswith("#")]
    grouped = groupby(lines[:_MAX_RULES], key=lambda line: line.startswith("!"))
    groups = [_compile_group(ignore=not negated, patterns=[line.removeprefix("!") for line in group])
            for negated, group in grouped]  # fmt: skip
    return tuple([rules for rules in groups if rules is not None])


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
    """Return the line without trailing spaces, unless the last one is escaped."""
    trimmed = line.rstrip(" \t\r")
    return f"{trimmed} " if trimmed.endswith("\\") and trimmed != line else trimmed
