"""Edits: text that replaces other text. Each edit applies to the result of the one before."""

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Literal

from msgspec import Struct

from treadle.domain.edits.file_text import find_newline
from treadle.domain.edits.indentation import IndentRule, find_indent_rule, split_indent
from treadle.domain.edits.look_alikes import fold_characters
from treadle.domain.edits.matches import RETURN, Level, TextMatch, find_matches, name_differences

FINAL_NEWLINE = "final newline"
LINE_ENDINGS = "line endings"
MAX_COMPARED_LINES = 1_000_000
"""Product of the numbers of lines of an old and a new text, up to which unchanged lines are recognised."""


class TextEdit(Struct, frozen=True):
    """A text to replace, and its replacement."""

    old: str
    new: str = ""
    all: bool = False


class AppliedEdit(Struct, frozen=True):
    """What an edit did to a text."""

    before: str
    starts: list[int]
    """Where the replaced text was. If there are several places, all have the same text."""
    old: str
    """The replaced text, as it was in the file."""
    new: str
    tolerated: tuple[str, ...] = ()
    """In which ways the replaced text differs from the one that the edit names."""


class EditedText(Struct, frozen=True):
    """A text after all of its edits."""

    text: str
    edits: tuple[AppliedEdit, ...]


class EditFault(ValueError):
    """An edit is not possible. Nothing is changed."""

    def __init__(
        self,
        kind: Literal["missing", "ambiguous"],
        number: int,
        text: str,
        lines: tuple[int, ...] = (),
        level: Level = "exact",
    ) -> None:
        super().__init__(kind)
        self.kind: Literal["missing", "ambiguous"] = kind
        self.number = number
        """The position of the edit in its list, from 0."""
        self.text = text
        """The text at that time, with LF if all of its lines end with CRLF."""
        self.lines = lines
        self.level: Level = level


def apply_edits(text: str, edits: Sequence[TextEdit]) -> EditedText:
    """Return the text after these edits. Raise EditFault if one of them is not possible."""
    is_crlf = find_newline(text) == "CRLF"
    now = to_lf(text) if is_crlf else text
    applied: list[AppliedEdit] = []
    for number, edit in enumerate(edits):
        done = _apply(now, edit, number, is_crlf)
        now = now.replace(done.old, done.new) if len(done.starts) > 1 else _replace_at(now, done)
        applied.append(done)
    return EditedText(to_crlf(now) if is_crlf else now, tuple(applied))


def to_lf(text: str) -> str:
    return text.replace("\r\n", "\n")


def to_crlf(text: str) -> str:
    return text.replace("\n", "\r\n")


def _replace_at(text: str, done: AppliedEdit) -> str:
    start = done.starts[0]
    return text[:start] + done.new + text[start + len(done.old) :]


def _apply(text: str, edit: TextEdit, number: int, is_crlf: bool) -> AppliedEdit:
    old, new = (to_lf(edit.old), to_lf(edit.new)) if is_crlf else (edit.old, edit.new)
    crossed = (LINE_ENDINGS,) if is_crlf and "\n" in old and "\r\n" not in edit.old else ()
    level, places = find_matches(text, old)
    if not places:
        raise EditFault("missing", number, text)
    starts = [place.start for place in places]
    if level == "exact" and (len(places) == 1 or edit.all):
        return AppliedEdit(text, starts, old, new, crossed)
    if len(places) > 1:
        lines = tuple([text.count("\n", 0, start) + 1 for start in starts])
        raise EditFault("ambiguous", number, text, lines, level)
    done = _adapt(text, places[0], old, new, level)
    if done is None:
        raise EditFault("missing", number, text)
    return AppliedEdit(text, starts, done.old, done.new, tuple(dict.fromkeys((*crossed, *done.tolerated))))


# ── A replacement where the file differs ──


def _adapt(text: str, place: TextMatch, old: str, new: str, level: Level) -> AppliedEdit | None:
    """Return the edit with its replacement as the file would have it, or None if its indentation is unknown."""
    found = text[place.start : place.end]
    lacks_newline = old.endswith("\n") and not found.endswith("\n")
    if lacks_newline:
        old, new = old.removesuffix("\n"), new.removesuffix("\n")
    block = _Block(found, old, _find_line_end(text, place), level == "indentation")
    replacement = block.adapt(new)
    if replacement is None:
        return None
    tolerated = name_differences(block.found, block.wanted)
    return AppliedEdit(
        text, [place.start], found, replacement, (*tolerated, *([FINAL_NEWLINE] if lacks_newline else []))
    )


def _find_line_end(text: str, place: TextMatch) -> str:
    """Return what comes before the line break of the first line of a place that has one."""
    end = text.find("\n", place.start)
    if end < 0:
        end = text.rfind("\n")
    return RETURN if end > 0 and text[end - 1] == RETURN else ""


class _Block:
    """Lines of a file that match those of an edit, line by line. The last one has no line break."""

    def __init__(self, found: str, wanted: str, line_end: str, is_indented: bool) -> None:
        self.found = found.split("\n")
        self.wanted = wanted.split("\n")
        self._line_end = line_end
        self._is_indented = is_indented

    def adapt(self, new: str) -> str | None:
        """Return the new text with the indentation and the line ends of the file. Lines and parts of lines that the
        edit does not change stay as the file has them."""
        rule = find_line_rule(self.found, self.wanted) if self._is_indented else None
        if self._is_indented and rule is None:
            return None
        adapted: list[str] = []
        wanted, lines = [drop_return(line) for line in self.wanted], [drop_return(line) for line in new.split("\n")]
        for same, first, last, new_first, new_last in _compare(wanted, lines):
            is_paired = last - first == new_last - new_first
            for offset, line in enumerate(lines[new_first:new_last]):
                at = first + offset if is_paired else None
                content = adapt_line(line, rule)
                if content is None:
                    return None
                if at is not None:
                    found = drop_return(self.found[at])
                    content = found if same else keep_unchanged(found, wanted[at], line, content)
                adapted.append(content + self._find_end(at))
        return "\n".join([*adapted[:-1], adapted[-1].removesuffix(RETURN)])

    def _find_end(self, at: int | None) -> str:
        """Return what comes before the line break of a found line; of other lines, what the first one has."""
        if at is None or at == len(self.found) - 1:
            return self._line_end
        return self.found[at][len(drop_return(self.found[at])) :]


def drop_return(line: str) -> str:
    return line.removesuffix(RETURN)


def find_line_rule(found: Sequence[str], wanted: Sequence[str]) -> IndentRule | None:
    """Return the rule between the indentation of matching lines, or None if there is none."""
    pairs = [
        (split_indent(one)[0], split_indent(other)[0])
        for other, one in zip(found, wanted, strict=True)
        if one.strip()
    ]
    return find_indent_rule(pairs)


def adapt_line(line: str, rule: IndentRule | None) -> str | None:
    """Return a new line with the indentation of the file, or None if that is unknown."""
    indent, rest = split_indent(line)
    if rule is None or not rest:
        return line
    adapted = rule(indent)
    return None if adapted is None else adapted + rest


def keep_unchanged(found: str, wanted: str, new: str, content: str) -> str:
    """Return the content of a changed line with the characters of the file where the edit changes nothing."""
    found, old, new = found.strip(), wanted.strip(), new.strip()
    if len(found) != len(old) or found == old:
        return content
    limit = min(len(old), len(new))
    head = next((at for at in range(limit) if old[at] != new[at]), limit)
    left = limit - head
    tail = next((at for at in range(left) if old[-1 - at] != new[-1 - at]), left)
    if fold_characters(found[:head]) != fold_characters(old[:head]):
        return content
    kept = found[:head] + new[head : len(new) - tail] + (found[len(found) - tail :] if tail else "")
    indent = split_indent(content)[0]
    return indent + kept + content[len(content.rstrip()) :]


def _compare(old: list[str], new: list[str]) -> list[tuple[bool, int, int, int, int]]:
    """Return which lines stay: whether they are the same, and the ranges in both texts."""
    if len(old) * len(new) > MAX_COMPARED_LINES:
        return [(False, 0, 0, 0, len(new))]
    compared = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [(tag == "equal", first, last, at, end) for tag, first, last, at, end in compared]
