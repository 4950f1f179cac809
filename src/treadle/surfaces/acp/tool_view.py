"""A tool call as an editor shows it: a title, a kind, the places that it touches, and its content."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from acp.helpers import image_block, plan_entry, text_block, tool_content, tool_diff_content, update_plan
from acp.schema import (
    AgentPlanUpdate,
    ContentToolCallContent,
    FileEditToolCallContent,
    ToolCallLocation,
    ToolKind,
)

from treadle.domain.messages import Image
from treadle.domain.transcript import PlanStep
from treadle.surfaces.acp.patch_view import view_patch
from treadle.surfaces.terminal.call_view import decode, pretty_json, show_call, summarize_call
from treadle.surfaces.terminal.file_changes import PATCH_TOOL, read_edits
from treadle.surfaces.terminal.text import reveal, reveal_line

CallContent = ContentToolCallContent | FileEditToolCallContent
KINDS: dict[str, ToolKind] = {
    "read_file": "read", "recall": "read", "load_skill": "read", "write_file": "edit", "edit_file": "edit",
    "apply_patch": "edit",
    "glob": "search", "grep": "search", "memory_search": "search", "find_tools": "search", "bash": "execute",
    "web_fetch": "fetch", "clarify": "think", "update_plan": "think",
}  # fmt: skip
VERBS = {"read_file": "Read", "write_file": "Write", "edit_file": "Edit", "web_fetch": "Fetch"}
PLAN_TOOL = "update_plan"
TITLE_CHARACTERS = 120
MAX_COMPARED_BYTES = 1_000_000
"""The text of a larger file is not shown before a change."""
MAX_CONTENT_CHARACTERS = 200_000
WIDE = 200
_FENCES = re.compile("`{3,}")


class CallView(NamedTuple):
    """What an editor shows of a call before it has a result."""

    title: str
    kind: ToolKind
    locations: list[ToolCallLocation]
    content: list[CallContent]
    raw_input: Any


def view_call(name: str, arguments: str, folder: Path, *, is_past: bool = False) -> CallView:
    """Return the view of a call. For a past call, the text before a change is not known."""
    values = decode(arguments).values or {}
    if name == PATCH_TOOL and (patch := _view_patch(values, folder, is_past=is_past)) is not None:
        return patch
    diffs = _make_diffs(name, values, folder, is_past=is_past)
    return CallView(
        _make_title(name, arguments, values),
        KINDS.get(name, "other"),
        _find_locations(name, values, folder),
        diffs,
        values or arguments,
    )


def _view_patch(values: dict[str, Any], folder: Path, *, is_past: bool) -> CallView | None:
    """Return the view of a call with a patch, or None if that is not valid."""
    view = view_patch(str(values.get("input")), folder, (lambda path: None) if is_past else _read_text)
    if view is None:
        return None
    locations = [ToolCallLocation(path=str(folder / path)) for path in view.paths if "\0" not in path]
    return CallView(reveal_line(view.title, TITLE_CHARACTERS), view.kind, locations, view.content, values)


def show_whole_call(name: str, arguments: str) -> ContentToolCallContent:
    """Return everything that would run, with invisible characters shown, for a reviewer."""
    lines = show_call(arguments, WIDE).lines
    values = decode(arguments).values or {}
    command = values.get("command")
    if any(line.startswith("  !") for line in lines):
        return text_content(fence("\n".join(lines)))
    if name == "bash" and isinstance(command, str) and len(values) == 1:
        return text_content(fence(reveal(command), "sh"))
    return text_content(fence(reveal(pretty_json(arguments)).rstrip("\n"), "json"))


def show_result(text: str, images: Sequence[Image] = ()) -> list[CallContent]:
    """Return the result of a call."""
    found: list[CallContent] = []
    if text.strip():
        found.append(text_content(fence(text[:MAX_CONTENT_CHARACTERS])))
    found += [tool_content(image_block(image.data, image.media_type)) for image in images]
    return found


def text_content(text: str) -> ContentToolCallContent:
    return tool_content(text_block(text))


def fence(text: str, language: str = "") -> str:
    """Return a text as a code block that it cannot close."""
    longest = max((len(found) for found in _FENCES.findall(text)), default=2)
    marks = "`" * (longest + 1)
    return f"{marks}{language}\n{text}\n{marks}"


def show_plan(steps: Sequence[PlanStep]) -> AgentPlanUpdate:
    """Return the plan of the agent."""
    return update_plan(plan_entry(step.text, status=step.status, priority=step.priority) for step in steps)


def _make_title(name: str, arguments: str, values: dict[str, Any]) -> str:
    command, path, pattern = values.get("command"), values.get("path"), values.get("pattern")
    if name == "bash" and isinstance(command, str):
        return reveal_line(command, TITLE_CHARACTERS)
    if name in VERBS:
        return f"{VERBS[name]} {reveal_line(str(path or values.get('url') or ''), TITLE_CHARACTERS)}".strip()
    if name in ("glob", "grep") and isinstance(pattern, str):
        where = f" in {reveal_line(path, 60)}" if isinstance(path, str) and path not in ("", ".") else ""
        verb = "Find" if name == "glob" else "Search for"
        return f"{verb} {reveal_line(pattern, TITLE_CHARACTERS)}{where}"
    return f"{name} {summarize_call(arguments, TITLE_CHARACTERS)}".strip()


def _find_locations(name: str, values: dict[str, Any], folder: Path) -> list[ToolCallLocation]:
    path, line = values.get("path"), values.get("start_line")
    if not isinstance(path, str) or not path or "\0" in path:
        return []
    at = line if isinstance(line, int) and not isinstance(line, bool) and line >= 0 else None
    return [ToolCallLocation(path=str(folder / path), line=at)]


def _make_diffs(name: str, values: dict[str, Any], folder: Path, *, is_past: bool) -> list[CallContent]:
    """Return the changes of a call: one for each text that it replaces."""
    path, content = values.get("path"), values.get("content")
    if name not in ("edit_file", "write_file") or not isinstance(path, str):
        return []
    if name == "write_file":
        old = None if is_past else _read_text(folder / path)
        return [tool_diff_content(str(folder / path), content, old)] if isinstance(content, str) else []
    return [tool_diff_content(str(folder / path), edit.new, edit.old) for edit in read_edits(values)]


def _read_text(path: Path) -> str | None:
    """Return the text of a file; None if there is none, or if it cannot be shown."""
    try:
        if path.is_file() and path.stat().st_size <= MAX_COMPARED_BYTES:
            return path.read_text()
    except (OSError, UnicodeDecodeError, ValueError):
        pass
    return None
