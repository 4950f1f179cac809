"""Prints the files that runs changed, and what undoing did."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from treadle.domain.errors import UsageError
from treadle.surfaces.terminal.output import note, print_json
from treadle.surfaces.terminal.text import inert

if TYPE_CHECKING:
    from treadle.operations.file_changes import ChangedFiles, UndoneFiles, UnrecordedCall

_SIGNS = {"created": "A", "changed": "M", "deleted": "D"}


def choose_files(found: "ChangedFiles", paths: Sequence[str]) -> "ChangedFiles":
    """Return the changes of some paths; of all without one. Raise UsageError for a path without a change."""
    known = {file.path for file in found.files}
    if unknown := [path for path in paths if path not in known]:
        raise UsageError(f"The run has not changed `{unknown[0]}`. Nothing was changed.")
    return msgspec.structs.replace(found, files=tuple([f for f in found.files if not paths or f.path in paths]))


def print_changed_files(found: "ChangedFiles", *, json: bool) -> None:
    """Print one line for each file, followed by its diff if there is one."""
    if json:
        print_json(found)
        return
    for file in found.files:
        counts = "" if file.added is None else f"  +{file.added} -{file.removed}"
        remark = f"  ({file.conflict})" if file.conflict else ""
        remark += f"  (not stored: {file.unstored})" if file.unstored else ""
        print(f"{_SIGNS[file.change]} {inert(file.path)}{counts}{remark}")
        if file.diff:
            print(inert(file.diff) + "\n")
    if not found.files:
        note("No file differs from what it was before the run.")
    _print_unrecorded(found.unrecorded)


def print_undone_files(done: "UndoneFiles", *, json: bool) -> int:
    """Print what became of each file. Return 0 if all are as they were before the run, else 1."""
    if json:
        print_json(done)
    else:
        for file in done.files:
            if file.state != "unchanged":
                print(f"{file.state:<9} {inert(file.path)}{f'  ({file.reason})' if file.reason else ''}")
        if not any(file.state != "unchanged" for file in done.files):
            note("There was nothing to undo.")
        if any(file.state == "conflict" for file in done.files):
            note("Add --overwrite to undo changes of files that someone else changed, too.")
        _print_unrecorded(done.unrecorded)
    return 1 if any(file.state in ("conflict", "failed") for file in done.files) else 0


def _print_unrecorded(calls: "Sequence[UnrecordedCall]") -> None:
    for call in calls:
        note(f"Not recorded: what {call.call_id} changed ({call.reason}).")
