"""`edit_file`: replaces text that occurs exactly once. Several edits are applied all or none."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from treadle.domain.edits.file_text import FileText
from treadle.domain.edits.matches import MAX_TOLERANT_PLACES, Level
from treadle.domain.edits.text_edits import AppliedEdit, EditFault, TextEdit, apply_edits
from treadle.ports.tool import ToolContext, ToolError
from treadle.tools.files.atomic_write import lock_for_writing
from treadle.tools.files.diff import format_changes
from treadle.tools.files.fingerprints import refuse_changed, refuse_changed_target
from treadle.tools.files.name_display import display_name
from treadle.tools.files.similarity import explain_not_found
from treadle.tools.files.text import read_text
from treadle.tools.files.workspace import open_call_workspace
from treadle.tools.function import tool

MAX_EDITS = 200
_MAX_LISTED_LINES = 10
"""How many line numbers are listed if a text occurs more than once."""
_IGNORED: dict[Level, str] = {
    "exact": "",
    "line_ends": ", apart from the ends of lines",
    "look_alikes": ", apart from the ends of lines and characters that look alike",
    "indentation": ", apart from indentation",
}


class Edit(Struct, frozen=True, forbid_unknown_fields=True):
    """An edit."""

    old: str
    new: str


@tool(effect="write", paths=("path",), needs=("workspace",))
def edit_file(
    path: str,
    context: ToolContext,
    old: str = "",
    new: str = "",
    all: bool = False,
    edits: Annotated[tuple[Edit, ...], Meta(max_length=MAX_EDITS)] = (),
) -> str:
    """Replace text in a file. `old` must match exactly and occur once.

    Args:
        path: File path.
        old: Text to replace, without line numbers.
        new: New text.
        all: Replace every occurrence.
        edits: Several edits instead: all or none.
    """
    listed = list_edits(old, new, all, edits)
    with open_call_workspace(context) as workspace:
        refuse_changed(workspace, [path], context.files)
        with workspace.locate(path) as place:
            if place.status() is None:
                place.open()  # raises an error that says what is there instead
    with open_call_workspace(context) as workspace, lock_for_writing(workspace, path) as target:
        if target.descriptor is None:
            raise ToolError(f"{display_name(target.path)} no longer exists.")
        refuse_changed_target(target, context.files)
        planned = plan_edits(read_text(target.descriptor, target.path), target.path, listed)
        others = target.describe_hard_links()
        target.replace(planned.data)
        changes = [format_changes(done.before, done.starts, done.old, done.new) for done in planned.applied]
        head = f"{display_name(target.path)} changed{_count_places(planned.applied)}."
        return "\n".join([f"{head}{others}{describe_tolerated(planned.tolerated)}", *changes])


class PlannedEdits(NamedTuple):
    """What edits would make of a file."""

    applied: tuple[AppliedEdit, ...]
    data: bytes

    @property
    def tolerated(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for done in self.applied for name in done.tolerated))


def list_edits(old: str, new: str, every: bool, edits: Sequence[Edit]) -> tuple[TextEdit, ...]:
    """Return the edits of a call. Raise ToolError if there is nothing to change, whatever the file contains."""
    listed = tuple([TextEdit(each.old, each.new) for each in edits])
    if old or new or not listed:
        if listed:
            raise ToolError("give either `old` and `new`, or `edits`. Nothing was changed.")
        listed = (TextEdit(old, new, every),)
    for number, edit in enumerate(listed):
        which = _name_edit(number, len(listed))
        if not edit.old:
            raise ToolError(
                f"{which}`old` is empty. Give the text that is to be replaced; write_file writes a whole file."
            )
        if edit.old == edit.new:
            raise ToolError(f"{which}`old` and `new` are the same, so there is nothing to change.")
    return listed


def plan_edits(text: FileText, path: str, edits: Sequence[TextEdit]) -> PlannedEdits:
    """Return what the edits would make of a file. Raise ToolError if one of them is not possible."""
    if text.mark:  # it is not part of the text
        edits = [TextEdit(_drop_mark(edit.old), _drop_mark(edit.new), edit.all) for edit in edits]
    try:
        edited = apply_edits(text.text, edits)
    except EditFault as fault:
        raise ToolError(f"{display_name(path)}: {_explain(fault, edits)} Nothing was changed.") from None
    if edited.text == text.text:
        raise ToolError(f"{display_name(path)} has the new text already, so there is nothing to change.")
    return PlannedEdits(edited.edits, encode_changed(text, edited.text, path))


def _drop_mark(text: str) -> str:
    return text.removeprefix("\ufeff") or text


def _explain(fault: EditFault, edits: Sequence[TextEdit]) -> str:
    edit, which = edits[fault.number], _name_edit(fault.number, len(edits))
    if fault.kind == "missing":
        return f"{which}`old` was not found. {explain_not_found(fault.text, edit.old, edit.new)}"
    numbers = list_lines(fault.lines)
    ignored = _IGNORED[fault.level]
    many = fault.level != "exact" and len(fault.lines) >= MAX_TOLERANT_PLACES
    count = f"at least {MAX_TOLERANT_PLACES}" if many else len(fault.lines)
    advice = "Include more of the surrounding text to select one"
    advice += ", or set all=true to change each." if fault.level == "exact" and len(edits) == 1 else "."
    return f"{which}`old` occurs {count} times{ignored}, at lines {numbers}. {advice}"


def list_lines(lines: Sequence[int]) -> str:
    numbers = ", ".join(map(str, lines[:_MAX_LISTED_LINES]))
    return f"{numbers}, …" if len(lines) > _MAX_LISTED_LINES else numbers


def _name_edit(number: int, count: int) -> str:
    return "" if count == 1 else f"edit {number + 1} of {count}: "


def _count_places(applied: Sequence[AppliedEdit]) -> str:
    count = sum(len(done.starts) for done in applied)
    return "" if count == 1 else f" in {count} places"


def describe_tolerated(names: Sequence[str]) -> str:
    """Return a sentence about what differs in the file, with a leading space, or "" if nothing does."""
    return f" The text in the file differs in: {', '.join(names)}." if names else ""


def encode_changed(text: FileText, changed: str, path: str) -> bytes:
    """Return the changed text in the encoding of the file. Raise ToolError if that is not possible."""
    try:
        return text.encode(changed)
    except UnicodeEncodeError as error:
        wrong = display_name(changed[error.start : error.start + 1])
        raise ToolError(
            f"{display_name(path)} is written in {text.encoding}, which cannot represent {wrong}. Leave it out, or "
            "write the whole file as UTF-8 with write_file. Nothing was changed."
        ) from None
