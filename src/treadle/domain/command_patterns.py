"""Patterns of rules that allow commands. They are compared with the words of a command, not with its text.

`*` inside a word stays inside that word. A final ` *` covers any number of further words, but none that the tool
marks as a risk: options and operands that do more than the rule says."""

import re
from collections.abc import Iterator
from fnmatch import translate
from functools import lru_cache
from typing import Literal

from msgspec import Struct

Risk = Literal["executes", "writes", "deletes", "sends", "reads", "unknown"]
"""What a word makes a command do besides what its program is for. `unknown`: an option that is not known."""
RISK_PHRASES: dict[Risk, str] = {
    "executes": "can run other programs",
    "writes": "writes or changes something else",
    "deletes": "deletes or overwrites",
    "sends": "sends something",
    "reads": "reads another file or address",
    "unknown": "is an option that is not known",
}
_PATTERN_WORD = re.compile(r"""(?:'[^']*'|"[^"]*"|\S)+""")
_QUOTED = re.compile(r"""'([^']*)'|"([^"]*)\"""")
_WILDCARD = re.compile(r"\[[^\]]+\]|[*?]")
_HAS_TEXT = re.compile(r"[^\W_]")
_CACHED_PATTERNS = 2048


class CommandWords(Struct, frozen=True):
    """The words of one command, without quotes."""

    words: tuple[str, ...]
    risks: tuple[Risk | None, ...]
    """For each word, why a final ` *` does not cover it; None if it does."""
    escapes: bool = False
    """Options of the command can run other programs or write files. Only a rule with `options: any` allows it."""


class Uncovered(Struct, frozen=True):
    """A word that a pattern would cover if it were not a risk."""

    word: str
    risk: Risk


class _PatternWord(Struct, frozen=True):
    regex: re.Pattern[str]
    is_literal: bool
    names_operands: bool
    """It contains text, so that it can stand for an operand that is a risk."""
    names_options: bool
    """It begins with the name of an option, so that it can stand for an option that is a risk."""

    def matches(self, word: str) -> bool:
        return self.regex.match(word) is not None

    def covers(self, word: str) -> bool:
        return self.is_literal or (self.names_options if word.startswith("-") else self.names_operands)


class _WordPattern(Struct, frozen=True):
    fixed: tuple[_PatternWord, ...]
    is_open: bool
    """It ends with ` *`."""


def covers(pattern: str, command: CommandWords) -> bool:
    """Return whether a pattern allows a command."""
    return _compare(pattern, command) is True


def covers_any_options(pattern: str, command: CommandWords) -> bool:
    """Return whether a pattern allows a command, whatever its further words do."""
    parsed = _parse_pattern(pattern)
    return _matches_words(parsed, command.words)


def find_uncovered(pattern: str, command: CommandWords) -> Uncovered | None:
    """Return the word because of which a pattern does not allow a command that has the words of the pattern; None
    if it allows the command, or is for another one."""
    found = _compare(pattern, command)
    return None if isinstance(found, bool) else found


def _compare(pattern: str, command: CommandWords) -> Uncovered | bool:
    parsed = _parse_pattern(pattern)
    if not _matches_words(parsed, command.words):
        return False
    for index, (word, risk) in enumerate(zip(command.words, command.risks, strict=True)):
        is_named = index < len(parsed.fixed) and parsed.fixed[index].covers(word)
        if risk is not None and not is_named:
            return Uncovered(word, risk)
    return True


def _matches_words(pattern: _WordPattern, words: tuple[str, ...]) -> bool:
    fixed = pattern.fixed
    if not (len(words) > len(fixed) if pattern.is_open else len(words) == len(fixed)):
        return False
    return all(expected.matches(word) for expected, word in zip(fixed, words, strict=False))


@lru_cache(maxsize=_CACHED_PATTERNS)
def _parse_pattern(pattern: str) -> _WordPattern:
    words = list(_split_pattern(pattern))
    is_open = bool(words) and set(words[-1]) == {"*"}
    return _WordPattern(tuple(map(_parse_word, words[:-1] if is_open else words)), is_open)


def _split_pattern(pattern: str) -> Iterator[str]:
    """Yield the words of a pattern. Quotes keep blanks together, and what they quote is literal."""
    for found in _PATTERN_WORD.finditer(pattern):
        yield _QUOTED.sub(lambda quoted: _escape(quoted[1] or quoted[2] or ""), found[0])


def _escape(text: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", text)


def _parse_word(word: str) -> _PatternWord:
    wildcard = _WILDCARD.search(word)
    before = word if wildcard is None else word[: wildcard.start()]
    return _PatternWord(
        re.compile(translate(word)),
        is_literal=wildcard is None,
        names_operands=_HAS_TEXT.search(_WILDCARD.sub("", word)) is not None,
        names_options=_HAS_TEXT.search(before) is not None,
    )
