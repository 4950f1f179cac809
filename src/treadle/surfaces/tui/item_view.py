"""Items of the transcript as styled lines."""

import re
from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style

from treadle.domain.attachments import measure_base64
from treadle.domain.durations import format_duration
from treadle.domain.graphemes import display_width
from treadle.domain.tools import COMMAND, COMMAND_ALIAS, PLAN_TOOL
from treadle.domain.transcript import (
    AnswerItem,
    CallItem,
    ChildItem,
    EndItem,
    MessageItem,
    NoteItem,
    NoteLevel,
    PlanItem,
    PlanStep,
    QuestionItem,
    ThinkingItem,
)
from treadle.surfaces.markdown.blocks import render_markdown
from treadle.surfaces.markdown.palette import PLAIN, Palette
from treadle.surfaces.markdown.wrapping import Line, clean, pad_line, wrap
from treadle.surfaces.terminal.call_view import decode, show_call, summarize_call
from treadle.surfaces.terminal.file_changes import FILE_TOOLS, find_change
from treadle.surfaces.terminal.text import cut, reveal_line
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.file_report import render_files
from treadle.surfaces.tui.keys import DEFAULT_KEYS, KeyMap
from treadle.surfaces.tui.transcript import Report, ShownItem

MAX_WIDTH = 120
"""Longer lines of prose are hard to read."""
MARGIN = "  "
MAX_DIFF_LINES = 14
MAX_EXPANDED_LINES = 400
MAX_LIVE_LINES = 3
MAX_OUTPUT_LINES = 3
_TOTAL = re.compile(r"^\[(\d+ matching lines? in \d+ files?|\d+ files?)\]$", re.MULTILINE)
_FILES = "{count} file{s}"
MAX_USER_LINES = 30
SUBJECTS = {"edit_file": "path", "write_file": "path", "clarify": "question"}
"""The argument that says what a call is about; the others are shown below it."""
MARKS = {
    "writing": "…", "pending": "○", "approval": "?", "question": "?", "client": "○", "running": "●", "done": "✓",
    "failed": "✗", "denied": "✗", "blocked": "✗",
}  # fmt: skip


def render_item(
    shown: ShownItem,
    width: int,
    palette: Palette,
    key_map: KeyMap = DEFAULT_KEYS,
    *,
    details: bool,
    thinking: bool,
) -> list[Line]:
    """Return the lines of an item, with an empty line before it where one belongs."""
    inner = max(10, width - len(MARGIN) - 1)
    prose = min(inner, MAX_WIDTH)
    is_open = details if shown.expanded is None else shown.expanded
    match shown.item:
        case MessageItem() as item:
            return [[], *_user(item, inner, palette, is_open=bool(shown.expanded))]
        case AnswerItem(source="command", text=text):
            return answer_lines(wrap([(clean(text), palette.text)], prose))
        case Report(files=files) if files:
            return render_files(files, inner, palette)
        case AnswerItem(text=text) | Report(text=text):
            return answer_lines(render_markdown(text, prose, palette))
        case ThinkingItem() as item:
            is_open = thinking if shown.expanded is None else shown.expanded
            return [[], *_thinking(item, inner, palette, is_open=is_open)]
        case CallItem() as item:
            children = list_children(shown)
            return _call(item, children, inner, palette, key_map, is_open=is_open)
        case QuestionItem(state="answered", answer=answer):
            return [_under(cut(f"→ {clean(answer)}", inner - 4), palette.text)]
        case PlanItem(steps=steps):
            return [line for step in steps for line in _plan_step(step, inner, palette)]
        case ChildItem() as item:
            return [_child_line(item, inner, palette)]
        case NoteItem(level="detail") if not details:
            return []
        case NoteItem() as item:
            return _note(item.text, item.level, item.details, inner, palette, is_open=is_open)
        case EndItem() as item:
            return _end(item, inner, palette)
        case _:
            return []


def answer_lines(lines: Sequence[Line]) -> list[Line]:
    """Return the lines of an answer with their margin, after an empty line."""
    return [[], *([Segment(MARGIN, PLAIN), *line] if line else [] for line in lines)]


def _user(item: MessageItem, width: int, palette: Palette, *, is_open: bool) -> list[Line]:
    text = clean(item.text.strip("\n"))
    if count := len(item.images):
        size = format_size(sum(measure_base64(image.data) for image in item.images))
        text += f" {texts.IMAGES.format(count=count, s='' if count == 1 else 's', size=size)}"
    rows = wrap([(text, palette.user)], min(width, MAX_WIDTH) - 2)
    if len(rows) > MAX_USER_LINES and not is_open:
        hidden = len(rows) - MAX_USER_LINES
        rows = [
            *rows[:MAX_USER_LINES],
            [Segment(_describe_more(hidden), palette.user + palette.dim)],
        ]
    bar = Segment("▌ ", palette.accent + Style(bgcolor=palette.user.bgcolor))
    full = width + len(MARGIN) - 1
    lines = [pad_line([bar, *row], full, palette.user) for row in rows]
    if item.delivery in ("steer", "interrupt"):
        lines[0] = _put_right(lines[0], texts.STEERED, full, palette.user + palette.dim)
    return lines


def _put_right(line: Line, text: str, width: int, style: Style) -> Line:
    used = sum(
        display_width(segment.text.rstrip()) if segment is line[-1] else display_width(segment.text)
        for segment in line
    )
    if used + len(text) + 2 > width:
        return line
    last = line[-1]
    kept = last.text.rstrip() if last.text.strip() == "" else last.text
    shown = [*line[:-1], Segment(kept, last.style)]
    filled = sum(display_width(segment.text) for segment in shown)
    return [*shown, Segment(" " * (width - filled - len(text) - 1), style), Segment(f"{text} ", style)]


def _thinking(item: ThinkingItem, width: int, palette: Palette, *, is_open: bool) -> list[Line]:
    done = item.state != "writing"
    seconds = None if not item.duration_ms else format_duration(max(1, round(item.duration_ms / 1000)))
    title = texts.THOUGHT.format(seconds=seconds) if seconds else texts.THOUGHT_BEFORE if done else texts.THINKING
    if not is_open:
        first = clean(" ".join(item.text.split())[-400:] if not done else "")
        line = f"{title} …" if not done else title
        tail = f"  {first[-(max(10, width - len(line) - 6)) :]}" if first else ""
        return [[Segment(MARGIN, PLAIN), Segment(cut(f"▸ {line}{tail}", width), palette.thinking)]]
    rows = wrap([(clean(item.text.strip()), palette.thinking)], min(width, MAX_WIDTH) - 2)
    head = [Segment(MARGIN, PLAIN), Segment(f"▾ {title}", palette.thinking)]
    return [head, *([Segment(f"{MARGIN}  ", PLAIN), *row] for row in rows)]


def _note(
    text: str, level: NoteLevel, details: str, width: int, palette: Palette, *, is_open: bool = False
) -> list[Line]:
    style = {"warning": palette.warning, "error": palette.error}.get(level, palette.dim)
    rows = wrap([(clean(text), style)], min(width, MAX_WIDTH) - 2)
    mark = {"warning": "!", "error": "✗"}.get(level, "·")
    if details:
        mark = "▾" if is_open else "▸"
    lines = [[Segment(f"{MARGIN}{mark if index == 0 else ' '} ", style), *row] for index, row in enumerate(rows)]
    return [*lines, *_output_lines(details.split("\n"), width, palette)] if details and is_open else lines


def _end(item: EndItem, width: int, palette: Palette) -> list[Line]:
    """Return the lines about the end of a run: its answer if nothing else shows it, and what went wrong."""
    lines = answer_lines(render_markdown(item.text, min(width, MAX_WIDTH), palette)) if item.text else []
    if item.status != "completed":
        is_cancelled = item.outcome == "cancelled"  # by the user, who knows how to go on
        parts = (item.reason,) if is_cancelled else (item.reason, item.next)
        said = " ".join(f"{part.rstrip('.')}." for part in parts if part)
        outcome = "" if is_cancelled else f"{item.outcome.replace('_', ' ')}: "
        level: NoteLevel = "warning" if is_cancelled else "error"
        lines += _note(f"{outcome}{said}", level, "", width, palette)
    if item.unverified_claim:
        lines += _note(texts.UNVERIFIED.format(claim=item.unverified_claim), "warning", "", width, palette)
    return lines


def _plan_step(step: PlanStep, width: int, palette: Palette) -> list[Line]:
    mark, style = {
        "completed": ("✓", palette.dim),
        "in_progress": ("▸", palette.text + palette.strong),
        "pending": ("○", palette.text),
    }[step.status]
    rows = wrap([(clean(step.text), style)], min(width, MAX_WIDTH) - 4)
    return [[Segment(f"{MARGIN}  {mark if index == 0 else ' '} ", style), *row] for index, row in enumerate(rows)]


# ── Tool calls ──


def _call(
    item: CallItem, children: Sequence[ChildItem], width: int, palette: Palette, key_map: KeyMap, *, is_open: bool
) -> list[Line]:
    lines = [_call_head(item, width, palette)]
    if is_open and item.state != "writing":
        lines += _details(item, width, palette)
    else:
        lines += _preview(item, width, palette, key_map)
    return [*lines, *(_child_line(child, width, palette) for child in children)]


def list_children(shown: ShownItem) -> list[ChildItem]:
    """Return the child runs that an item shows, in the order of their lines, which are its last ones."""
    if isinstance(shown.item, ChildItem):
        return [shown.item]
    return sorted(shown.children.values(), key=_order_child)


def _order_child(child: ChildItem) -> list[int]:
    """Return the place of a child run: each below the one that started it."""
    return [int(part) for part in child.key.split(".")]


def _call_head(item: CallItem, width: int, palette: Palette) -> Line:
    style = {
        "done": palette.success,
        "failed": palette.error,
        "denied": palette.error,
        "blocked": palette.error,
        "approval": palette.warning,
        "question": palette.warning,
        "running": palette.accent,
    }.get(item.state, palette.dim)
    right = _call_state(item)
    name = clean(item.name)
    room = width - len(name) - display_width(right) - 5
    if item.state == "writing":
        summary = texts.WRITING.format(size=format_size(len(item.arguments)))
    else:
        summary = _summarize(item, max(8, room))
    gap = max(1, width - 2 - display_width(name) - 1 - display_width(summary) - display_width(right))
    return [
        Segment(f"{MARGIN}{MARKS[item.state]} ", style),
        Segment(name, palette.text + palette.strong),
        Segment(f" {summary}", palette.dim),
        Segment(" " * gap, PLAIN),
        Segment(
            right, style if item.state in ("approval", "question", "denied", "blocked", "failed") else palette.dim
        ),
    ]


def _summarize(item: CallItem, width: int) -> str:
    """Return what a call is about, on one line: its subject, or all arguments."""
    if item.arguments.strip() in ("", "{}") or (item.name == PLAN_TOOL and item.state == "done"):
        return ""  # the checklist follows
    values = decode(item.arguments).values if item.name in SUBJECTS else None
    subject = None if values is None else values.get(SUBJECTS[item.name])
    if isinstance(subject, str):
        return reveal_line(subject, width)
    return summarize_call(item.arguments, width)


def _call_state(item: CallItem) -> str:
    if item.state == "done":
        taken = format_milliseconds(item.duration_ms) if item.duration_ms else ""
        return " · ".join(filter(None, (_count_found(item), taken)))
    if item.error in ("interrupted", "cancelled"):
        return item.error
    state = texts.CALL_STATES[item.state]
    if item.exit_code:
        state += f" · {texts.EXIT_CODE.format(code=item.exit_code)}"
    return state if item.duration_ms is None else f"{state} · {format_milliseconds(item.duration_ms)}"


def _count_found(item: CallItem) -> str:
    """Return what a search has found, which its result says or lists; empty for other calls."""
    if item.name == "grep" and (total := _TOTAL.search(item.result)) is not None:
        return total[1]
    if item.name != "glob":
        return ""
    names = [row for row in item.result.split("\n") if row and not row.startswith("[")]
    return (
        _FILES.format(count=len(names), s="" if len(names) == 1 else "s")
        if names and not names[0].startswith("No ")
        else ""
    )


def _preview_output(item: CallItem, width: int, palette: Palette, key_map: KeyMap) -> list[Line]:
    """Return the first lines that a command has printed."""
    if item.name not in (COMMAND, COMMAND_ALIAS) or not item.result.strip():
        return []
    rows = item.result.rstrip("\n").split("\n")
    shown = [_under(cut(clean(row), width - 4), palette.dim) for row in rows[:MAX_OUTPUT_LINES]]
    if len(rows) > MAX_OUTPUT_LINES:
        hidden = _describe_details(len(rows) - MAX_OUTPUT_LINES, key_map)
        shown.append(_under(hidden, palette.dim))
    return shown


def _preview(item: CallItem, width: int, palette: Palette, key_map: KeyMap) -> list[Line]:
    """Return what a closed call shows under its line: the diff of an edit, the last output, or why it failed."""
    if item.state == "running" and item.output.strip():
        rows = item.output[-2000:].rstrip("\n").split("\n")[-MAX_LIVE_LINES:]
        return [_under(cut(clean(row), width - 4), palette.dim) for row in rows]
    if item.state in ("failed", "denied", "blocked"):
        return [_under(cut(clean(row), width - 4), palette.error) for row in _explain_failure(item)]
    diff = find_diff(item)
    if diff:
        shown = [_diff_line(row, width, palette) for row in diff[:MAX_DIFF_LINES]]
        if len(diff) > MAX_DIFF_LINES:
            hidden = len(diff) - MAX_DIFF_LINES
            shown.append(_under(_describe_details(hidden, key_map), palette.dim))
        return shown
    note = texts.EDITED if item.edited else item.note
    said = [_under(clean(note), palette.dim)] if note else []
    return [*said, *(_preview_output(item, width, palette, key_map) if item.state == "done" else ())]


def _explain_failure(item: CallItem) -> list[str]:
    """Return why a call failed: what a reviewer said, the end of a command's output, or the beginning of an
    error."""
    if item.note:
        return [item.note]
    rows = [row for row in item.result.split("\n") if row.strip()]
    return rows[-MAX_LIVE_LINES:] if item.exit_code else rows[:1]


def _details(item: CallItem, width: int, palette: Palette) -> list[Line]:
    lines: list[Line] = []
    diff = find_diff(item)
    if diff:
        lines += _limit(
            [_diff_line(row, width, palette) for row in diff[: MAX_EXPANDED_LINES + 1]], len(diff), palette
        )
    else:
        lines += [_under(row.strip("\n"), palette.dim) for row in show_call(item.arguments, width - 4, 60).lines]
    if item.note:
        lines.append(_under(clean(item.note), palette.warning))
    result = item.output if item.state == "running" else item.result
    if diff and item.state == "done" and item.name in FILE_TOOLS:
        return lines
    if not result.strip():
        return [*lines, _under(texts.NO_RESULT, palette.dim)] if item.is_final else lines
    if item.truncated:
        lines.append(_under(texts.OUTPUT_TRUNCATED, palette.dim))
    return [*lines, *_output_lines(result.rstrip("\n").split("\n"), width, palette)]


def _output_lines(rows: list[str], width: int, palette: Palette) -> list[Line]:
    """Return the output of a call: the beginning and the end, if it is long."""
    if len(rows) <= MAX_EXPANDED_LINES:
        return _wrap_rows(rows, width, palette)
    half = MAX_EXPANDED_LINES // 2
    left_out = _under(texts.LINES_LEFT_OUT.format(count=len(rows) - 2 * half), palette.dim)
    return [*_wrap_rows(rows[:half], width, palette), left_out, *_wrap_rows(rows[-half:], width, palette)]


def _wrap_rows(rows: list[str], width: int, palette: Palette) -> list[Line]:
    wrapped = [line for row in rows for line in wrap([(clean(row), palette.text)], width - 4)]
    if len(wrapped) > 2 * MAX_EXPANDED_LINES:  # lines without an end
        half = MAX_EXPANDED_LINES
        left_out = Segment(texts.LINES_LEFT_OUT.format(count=len(wrapped) - 2 * half), palette.dim)
        wrapped = [*wrapped[:half], [left_out], *wrapped[-half:]]
    return [[Segment(f"{MARGIN}  ", PLAIN), *line] for line in wrapped]


def _limit(lines: list[Line], total: int, palette: Palette) -> list[Line]:
    if total <= len(lines):
        return lines
    return [*lines, _under(_describe_more(total - len(lines)), palette.dim)]


def _under(text: str, style: Style) -> Line:
    return [Segment(f"{MARGIN}  ", PLAIN), Segment(text, style)]


def _child_line(child: ChildItem, width: int, palette: Palette) -> Line:
    ended = child.state == "ended"
    state = child.outcome or "ended" if ended else texts.CHILD_WAITS.get(child.waiting_for, child.waiting_for)
    state = state or "running"
    good = state in ("completed", "running", "silent")
    style = palette.success if ended and good else palette.accent if good else palette.warning
    mark = ("✓" if good else "✗") if ended else "●"
    steps = child.steps
    said = (
        f"{clean(state)}"
        + (f" · {clean(child.doing)}" if child.doing else "")
        + (f" · {steps} step{'' if steps == 1 else 's'}" if steps else "")
    )
    indent = "  " * (child.depth - 1)
    head = f"{MARGIN}  {indent}└ {mark} "
    return [
        Segment(head, style),
        Segment(clean(child.agent), palette.text),
        Segment(cut(f" {said}", max(8, width - len(head) - display_width(child.agent))), palette.dim),
    ]


# ── Diffs ──


def find_diff(item: CallItem) -> list[str]:
    """Return the change to a file that a call makes or made, as the lines of a diff; empty for other calls."""
    if item.name == "edit_file" and item.state == "done" and "\n@@ " in item.result:
        return item.result.split("\n")[1:]
    if item.state in ("writing", "failed"):
        return []
    change = find_change(item.name, decode(item.arguments).values, None)
    return [] if change is None else change.lines


def _diff_line(row: str, width: int, palette: Palette) -> Line:
    style = {"+": palette.added, "-": palette.removed, "@": palette.changed}.get(row[:1], palette.dim)
    line = [Segment(cut(clean(row), width - 4), style)]
    if row[:1] in "+-" and palette.fills:
        line = pad_line(line, width - 4, style)
    return [Segment(f"{MARGIN}  ", PLAIN), *line]


# ── Amounts ──


def format_milliseconds(milliseconds: int) -> str:
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    return f"{milliseconds / 1000:.1f} s" if milliseconds < 60_000 else format_duration(milliseconds // 1000)


def format_size(characters: int) -> str:
    return (
        f"{characters} B"
        if characters < 1000
        else f"{characters / 1000:.1f} KB"
        if characters < 1e6
        else f"{characters / 1e6:.1f} MB"
    )


def _describe_more(count: int) -> str:
    """Return how many lines are left out."""
    return texts.MORE_LINES.format(lines=_count_more(count))


def _describe_details(count: int, key_map: KeyMap) -> str:
    key, them = key_map["anywhere.toggle_details"], "it" if count == 1 else "them"
    return texts.MORE_DETAILS.format(lines=_count_more(count), key=key, them=them)


def _count_more(count: int) -> str:
    return f"{count} more line{'' if count == 1 else 's'}"


def format_count(number: int) -> str:
    return str(number) if number < 1000 else f"{number / 1000:.1f}k" if number < 1e6 else f"{number / 1e6:.1f}M"
