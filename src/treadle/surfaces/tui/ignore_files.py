"""The files of a folder that its ignore files do not name. Git is not asked: the settings of a repository can name
programs that it runs."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

IGNORE_FILES = (".gitignore", ".ignore")
"""The later one takes precedence."""
MAX_FILES = 20_000
MAX_RULES = 2_000
MAX_DOUBLE_STARS = 3
MAX_FILE_BYTES = 256 * 1024
SKIPPED = frozenset(
    {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".tox", ".mypy_cache", ".ruff_cache"}
)


class IgnoreRule(NamedTuple):
    """A line of an ignore file."""

    base: str
    """The folder of the ignore file, with a slash at its end, or "" for the top."""
    above: str
    """What paths lack at their beginning, if the ignore file is above the folder that is listed."""
    pattern: re.Pattern[str]
    """Matches a path below that folder."""
    ignores: bool
    """False: the rule begins with `!` and includes again."""
    only_folders: bool


def list_files(folder: Path) -> list[str]:
    """Return the files of a folder that its ignore files do not name, as relative paths. An ignore file applies to
    its folder and those below it; the last rule that matches decides."""
    found: list[str] = []
    pending: list[tuple[str, tuple[IgnoreRule, ...]]] = [("", _read_rules_above(folder))]
    while pending and len(found) < MAX_FILES:
        prefix, inherited = pending.pop()
        rules = (*inherited, *_read_rules(folder / prefix, prefix))[:MAX_RULES]
        files, folders = _scan(folder / prefix)
        found += [f"{prefix}{name}" for name in files if not is_ignored(f"{prefix}{name}", rules)]
        pending += [
            (f"{prefix}{name}/", rules)
            for name in reversed(folders)
            if name not in SKIPPED and not is_ignored(f"{prefix}{name}", rules, is_folder=True)
        ]
    return found[:MAX_FILES]


def _scan(folder: Path) -> tuple[list[str], list[str]]:
    """Return the names of the files and of the folders in a folder. Links to folders are not followed."""
    files: list[str] = []
    folders: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.isprintable():
                    (folders if entry.is_dir(follow_symlinks=False) else files).append(entry.name)
    except OSError:
        return [], []
    return sorted(files), sorted(folders)


def is_ignored(path: str, rules: Sequence[IgnoreRule], *, is_folder: bool = False) -> bool:
    """Return whether the last rule that matches a path ignores it."""
    for rule in reversed(rules):
        if rule.only_folders and not is_folder:
            continue
        if path.startswith(rule.base) and rule.pattern.fullmatch(rule.above + path[len(rule.base) :]):
            return rule.ignores
    return False


def _read_rules_above(folder: Path) -> tuple[IgnoreRule, ...]:
    """Return the rules of the folders above, up to the top of the repository, that apply in the folder."""
    top = folder.absolute()
    above: list[Path] = []
    while not (top / ".git").exists():
        if top.parent == top:
            return ()
        top = top.parent
        above.append(top)
    rules: list[IgnoreRule] = []
    for each in reversed(above):
        below = folder.absolute().relative_to(each).as_posix()
        rules += _read_rules(each, "", f"{below}/")
    return tuple(rules)


def _read_rules(folder: Path, base: str, above: str = "") -> list[IgnoreRule]:
    """Return the rules of the ignore files in a folder."""
    rules: list[IgnoreRule] = []
    for name in IGNORE_FILES:
        try:
            with (folder / name).open("rb") as file:
                lines = file.read(MAX_FILE_BYTES).decode(errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            rule = parse_rule(line, base, above)
            if rule is not None:
                rules.append(rule)
    return rules


def parse_rule(line: str, base: str = "", above: str = "") -> IgnoreRule | None:
    """Return the rule in a line of an ignore file; None if it has none."""
    text = re.sub(r"(?<!\\)\s+$", "", line)
    if not text or text.startswith("#"):
        return None
    ignores = not text.startswith("!")
    text = text if ignores else text[1:]
    body = text.rstrip("/")
    is_anchored = "/" in body
    body = body.removeprefix("/")
    if not body or body.count("**/") > MAX_DOUBLE_STARS:
        return None
    expression = "(?:[^/]+/)*".join(_translate(part) for part in re.split(r"(?:(?<=/)|^)(?:\*\*/)+", body))
    try:
        pattern = re.compile(expression if is_anchored else f"(?:.*/)?{expression}", re.DOTALL)
    except re.error:
        return None
    return IgnoreRule(base, above, pattern, ignores, text.endswith("/"))


def _translate(pattern: str) -> str:
    """Return the regular expression of a pattern without `**/`. A star stops at a slash. What follows it is matched
    at its first place, and no other is tried: many stars take no longer than one."""
    parts: list[str] = [""]
    for token in _TOKEN.findall(pattern):
        if token.startswith("*"):
            parts.append("")
        else:
            parts[-1] += _translate_token(token)
    head, *rest = parts
    if pattern.endswith("/**"):
        return f"{head}{''.join(f'(?>[^/]*?{part})' for part in rest[:-1])}.+"
    if not rest:
        return head
    return f"{head}{''.join(f'(?>[^/]*?{part})' for part in rest[:-1])}[^/]*{rest[-1]}"


_TOKEN = re.compile(r"\*+|\?|\[[!^]?\]?[^\]/]*\]|\\.|.", re.DOTALL)


def _translate_token(token: str) -> str:
    if token == "?":
        return "[^/]"
    if len(token) > 1 and token.startswith("["):
        inverted = token[1] in "!^"
        inside = token[2 if inverted else 1 : -1].replace("\\", r"\\").replace("[", r"\[").replace("]", r"\]")
        return f"(?!/)[{'^' if inverted else ''}{inside}]" if inside else re.escape(token)
    return re.escape(token[1:] if len(token) > 1 else token)
