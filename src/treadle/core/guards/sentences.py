"""The sentences of an answer in the agent's own words, without what it quotes, shows or encodes. Linear in the
length of the answer, of which only the beginning and the end are read if it is long."""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, cast

import msgspec

from treadle.core.guards.claims import ActionClaim, find_claims

_END_CHARACTERS: Final = 8 * 1024
"""Number of characters that are read from the beginning and from the end."""
_CURLY_MARK = re.compile("[\u201c\u201d]")
_SHORTEST_QUOTATION: Final = 12
_SHORTEST_LINE: Final = 3
"""The length of the shortest verb."""
_TICKS: Final = ("\u2705", "\u2714", "done", "complete")
_GREETINGS: Final = ("dear ", "hi ", "hello ", "hey ", "hi,", "hello,", "hey,")
_SUBJECT = re.compile(r"\W{0,16}subject:", re.IGNORECASE)
_ABBREVIATION = re.compile(r"\b(dr|mr|mrs|ms|prof|st|vs|approx)\.(?= )", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[.!?]) ")
_BULLETS: Final = " -*\u2022\u2705\u2714\ufe0f\u2611|"
_NUMBER = re.compile(r"^\d{1,3}[.)](?: |$)")


def find_answer_claims(answer: str, json_opens_with: str = "{[") -> list[ActionClaim]:
    """Return the claims of the answer or, if it is JSON, of its strings."""
    strings = _json_strings(answer, json_opens_with)
    if strings is None:
        return _find_claims_in(answer)
    texts = [text for text in strings if len(text.split(maxsplit=2)) > 2]  # one or two words are a label
    return [claim for text in _select_ends(texts) for claim in _find_claims_in(text)]


def _json_strings(text: str, opened_by: str) -> list[str] | None:
    """Return the strings in a JSON text, without member names, or None if it is not JSON."""
    if not text.lstrip().startswith(tuple(opened_by)):
        return None
    try:
        pending: list[object] = [msgspec.json.decode(text)]
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    found: list[str] = []
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, list):
            pending.extend(reversed(cast("list[object]", value)))
        elif isinstance(value, dict):
            pending.extend(reversed(cast("dict[str, object]", value).values()))
    return found


def _keep_ends(text: str) -> str:
    if len(text) <= 2 * _END_CHARACTERS:
        return text
    return f"{text[:_END_CHARACTERS]}\n{text[-_END_CHARACTERS:]}"


def _select_ends(texts: list[str]) -> list[str]:
    first = _limit_characters(texts, _END_CHARACTERS)
    last = _limit_characters(reversed(texts[len(first) :]), _END_CHARACTERS)
    return [*first, *reversed(last)]


def _limit_characters(texts: Iterable[str], characters: int) -> list[str]:
    """Return the first texts up to a total length."""
    kept: list[str] = []
    for text in texts:
        if characters <= 0:
            break
        kept.append(text)
        characters -= len(text)
    return kept


# ── The agent's own sentences ──


def _find_claims_in(text: str) -> list[ActionClaim]:
    unfenced = _CURLY_MARK.sub('"', _keep_ends(" ".join(text.split("```")[::2])))
    lines = [line.strip() for line in unfenced.split("\n")]
    shows_text = "```" in text or any(_has_quotation(line) for line in lines if line)
    own = _without_verse(list(_select_own_lines(lines)))
    return find_claims([sentence for line in own for sentence in _split_sentences(line)], shows_text)


def _select_own_lines(lines: list[str]) -> Iterator[str]:
    """Yield the lines in the agent's own words, up to a letter that is for the reader."""
    for line in lines:
        if len(line) < _SHORTEST_LINE or line.startswith(">") or _is_mere_row(line):
            yield ""
            continue
        plain = _without_quotations(line.replace("**", "").replace("__", "")).strip()
        if _opens_letter(plain):
            return
        yield plain


def _is_mere_row(line: str) -> bool:
    """Return whether the line is a table row, unless the table lists what was done."""
    return line.startswith("|") and not any(tick in line.lower() for tick in _TICKS)


def _has_quotation(line: str) -> bool:
    return line.startswith(">") or _without_quotations(line) != line


def _without_quotations(line: str) -> str:
    """Return the line without quotations. A name in quotation marks is not a quotation."""
    if len(line) <= _SHORTEST_QUOTATION:
        return line
    pieces = line.split('"')
    for at in range(1, len(pieces) - 1, 2):  # the last piece is outside, or not closed
        if len(pieces[at]) >= _SHORTEST_QUOTATION:
            pieces[at] = " "
    return '"'.join(pieces)


def _opens_letter(line: str) -> bool:
    greets = len(line) <= 70 and line.endswith(",") and line.lower().startswith(_GREETINGS)
    return greets or _SUBJECT.match(line) is not None


def _without_verse(lines: list[str]) -> list[str]:
    """Return the lines without verse, which is a run of short lines that continue each other."""
    kept: list[str] = []
    in_verse = False
    for line, following in pairwise([*lines, ""]):
        opens = line.endswith((",", ";")) and _is_short(following)
        in_verse = _is_short(line) and (in_verse or opens)
        if line and not in_verse:
            kept.append(line)
    return kept


def _is_short(line: str) -> bool:
    return 4 <= len(line) <= 60 and line[0] not in "-*\u2022|0123456789"


def _split_sentences(line: str) -> Iterator[str]:
    flat = " ".join(line.split())
    for piece in _SENTENCE_END.split(_ABBREVIATION.sub(r"\1", flat)):
        yield _NUMBER.sub("", piece.lstrip(_BULLETS)).lstrip(_BULLETS)
