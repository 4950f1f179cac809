"""The files of a folder that its ignore files do not name. Git is not asked: the settings of a repository can name
programs that it runs."""

import os
from pathlib import Path

from treadle.domain.ignore_rules import MAX_IGNORE_FILE_BYTES, SKIPPED_FOLDERS, IgnoreRules

IGNORE_FILES = (".gitignore", ".ignore")
"""The later one takes precedence."""
MAX_FILES = 20_000


def list_files(folder: Path) -> list[str]:
    """Return the files of a folder that its ignore files do not name, as relative paths. An ignore file applies to
    its folder and those below it, up to the top of the repository; the last rule that matches decides."""
    top = _find_top(folder.absolute())
    inside = folder.absolute().relative_to(top).parts
    rules, start = IgnoreRules(), ""
    for name in inside:
        rules = _read_rules(rules, top, start)
        start += f"{name}/"
    found: list[str] = []
    pending = [(start, rules)]
    while pending and len(found) < MAX_FILES:
        under, inherited = pending.pop()
        rules = _read_rules(inherited, top, under)
        files, folders = _scan(top / under)
        found += [path[len(start) :] for name in files if not rules.covers(path := f"{under}{name}")]
        pending += [
            (path, rules)
            for name in reversed(folders)
            if name not in SKIPPED_FOLDERS and not rules.covers(path := f"{under}{name}/")
        ]
    return found[:MAX_FILES]


def _find_top(folder: Path) -> Path:
    """Return the top of the repository that a folder is in, or the folder itself."""
    return next((above for above in (folder, *folder.parents) if (above / ".git").exists()), folder)


def _read_rules(rules: IgnoreRules, top: Path, under: str) -> IgnoreRules:
    """Return the rules together with those of the ignore files in a folder."""
    for name in IGNORE_FILES:
        try:
            with (top / under / name).open("rb") as file:
                rules = rules.with_file(file.read(MAX_IGNORE_FILE_BYTES).decode(errors="replace"), under)
        except OSError:
            continue
    return rules


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
