"""The marker with which a model says that it is done, found and removed as a whole word."""

import re
from functools import lru_cache

_PAIRS = {
    "*": "*",
    "_": "_",
    "`": "`",
    "~": "~",
    '"': '"',
    "'": "'",
    "(": ")",
    "[": "]",
    "<": ">",
    "{": "}",
    "|": "|",
}
"""Signs that models put around a marker."""
_SENTENCE_ENDS = ".!?:;"
_SELF_CLOSED = re.compile(r" ?/([>\]}])")
"""The end of a self-closing tag: `<word/>`."""
_INTRODUCES = re.compile(r"[ \t]*(?:[:=\u2013\u2014\u2192]|->|-[ \t]|is\b|are\b)[*_`~]*[ \t]*[^\s.!]")
"""What connects a word with the answer that follows it on the same line."""
_DECORATIONS = "#>*- \t"


def has_marker(text: str, marker: str) -> bool:
    return marker in text and _word_pattern(marker).search(text) is not None


def remove_marker(text: str, marker: str) -> str:
    """Return the text without the marker, what wraps it, and the line that it leaves empty. A marker inside a line
    that introduces what follows, as in `All done. FINAL: 42`, stays."""
    kept = 0
    while (found := _word_pattern(marker).search(text, kept)) is not None:
        start, end = _extend_over_wrapping(text, *found.span())
        if not _opens_line(text, start) and _INTRODUCES.match(text, end):
            kept = found.end()
            continue
        if end == found.end() and _opens_line(text, start) and text[end : end + 1] in (":", ".", "!"):
            start, end = _extend_over_wrapping(text, start, end + 1)  # a label: `FINAL: the answer`
        before, after = text[:start], text[end:]
        if not (after[:1].isalnum() and start < found.start()):  # a tag before a word leaves its space
            before = before.rstrip(" \t")
        if before.endswith(("\n", *_SENTENCE_ENDS)) or not before:
            after = after.lstrip(".!") if not after.partition("\n")[0].strip(".! \t") else after
        line = before.rpartition("\n")[2]
        if line.strip() and not line.strip(_DECORATIONS) and not after.partition("\n")[0].strip():
            before = before.removesuffix(line)  # a heading, a quote or a list item with nothing else in it
        text = _join(before, after.lstrip(" \t") if _opens_line(text, start) else after)
    return text.strip()


def _opens_line(text: str, start: int) -> bool:
    return not text[:start].rpartition("\n")[2].strip(_DECORATIONS + "_`")


def _extend_over_wrapping(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the span of a word with the pairs of signs directly around it: `**word**`, `<word>`, `</word>`."""
    while start > 0 and end < len(text):
        if _PAIRS.get(text[start - 1]) == text[end]:
            start, end = start - 1, end + 1
        elif text[start - 1] == "/" and start > 1 and _PAIRS.get(text[start - 2]) == text[end]:
            start, end = start - 2, end + 1
        elif (closed := _SELF_CLOSED.match(text, end)) is not None and _PAIRS.get(text[start - 1]) == closed[1]:
            start, end = start - 1, closed.end()
        else:
            break
    return start, end


def _join(before: str, after: str) -> str:
    """Join two texts. If the marker had its own lines, keep only one gap."""
    if not (before.endswith("\n") and after.startswith("\n")):
        return before + after
    head, tail = before.rstrip("\n"), after.lstrip("\n")
    return head + "\n" * max(len(before) - len(head), len(after) - len(tail)) + tail


@lru_cache(maxsize=64)
def _word_pattern(marker: str) -> re.Pattern[str]:
    before = r"(?<!\w)" if re.match(r"\w", marker) else ""
    after = r"(?!\w)" if re.search(r"\w\Z", marker) else ""
    return re.compile(f"{before}{re.escape(marker)}{after}")
