"""Which paths ignore files leave out. Their syntax is that of .gitignore, which `pathspec` translates; who lists a
folder reads the files."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

SKIPPED_FOLDERS = frozenset({
    ".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".tox", ".nox", ".mypy_cache", ".ruff_cache",
    ".pytest_cache", ".hypothesis",
})  # fmt: skip
"""Folders without source code, which need no rule."""
MAX_IGNORE_FILE_BYTES = 256 * 1024
_MAX_RULES = 1000
"""Rules that one ignore file may have."""


class _IgnoreFile(NamedTuple):
    under: str
    """Its folder, with a trailing slash, or "" for the top."""
    list_matches: Callable[[bytes], list[int] | None]
    """Return the numbers of the rules that match a path."""
    ignores: tuple[bool, ...]
    """Whether each rule ignores what it matches, or includes it again."""


class IgnoreRules(NamedTuple):
    """The ignore files from the top of a tree down to a folder."""

    files: tuple[_IgnoreFile, ...] = ()

    def with_file(self, text: str, under: str) -> "IgnoreRules":
        """Return the rules together with those of an ignore file, which take precedence. `under` is its folder,
        with a trailing slash."""
        file = _parse_file(text, under)
        return IgnoreRules((*self.files, file)) if file.ignores else self

    def covers(self, path: str) -> bool:
        """Return whether the last rule that matches a path itself ignores it. A folder is given with a trailing
        slash, and what is in an ignored folder is not asked for."""
        for file in reversed(self.files):
            if numbers := file.list_matches(path.removeprefix(file.under).encode("utf-8", "replace")):
                return file.ignores[max(numbers)]
        return False


def _parse_file(text: str, under: str) -> _IgnoreFile:
    """Compile the rules with RE2: matching takes time in proportion to the path, whatever the rules are."""
    import re2  # pyright: ignore[reportMissingTypeStubs] -- it has none; everything used is below

    library = cast("Any", re2)
    options = library.Options()
    options.dot_nl = True
    options.never_capture = True
    options.log_errors = False
    expressions = library.Set.SearchSet(options)
    ignores: list[bool] = []
    for expression, ignored in _translate_rules(text):
        try:
            expressions.Add(expression)
        except library.error:  # git leaves out a rule with an invalid range, too
            continue
        ignores.append(ignored)
    try:
        expressions.Compile()
    except library.error:  # the rules are too large together
        ignores = []
    return _IgnoreFile(under, expressions.Match, tuple(ignores))


def _translate_rules(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the expression of each rule, which matches whole paths, and whether it ignores them."""
    lines = [line for line in text.split("\n") if line.strip() and not line.startswith("#")]
    if not lines:
        return
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

    for line in lines[:_MAX_RULES]:
        try:
            expression, ignored = GitIgnoreSpecPattern.pattern_to_regex(line)
        except ValueError:
            continue
        if expression is not None and ignored is not None:
            # Only what ends with `/**` has a slash as its end. It ignores what is in the folder, not the folder.
            yield f"(?:{expression}){'.+' if expression.endswith('/') else ''}$", ignored
