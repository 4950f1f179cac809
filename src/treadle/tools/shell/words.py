"""The words of a parsed line: their text without quotes, and what is unknown before the line runs."""

import re

from msgspec import Struct
from tree_sitter import Node

EXPANSIONS = frozenset(
    {"simple_expansion", "expansion", "command_substitution", "process_substitution", "arithmetic_expansion"}
)
_ESCAPED = re.compile(r"\\(\n|.)", re.DOTALL)
_ESCAPED_IN_QUOTES = re.compile(r'\\(["\\$`\n])')
_ESCAPED_ANSI = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8}|[0-7]{1,3}|.)", re.DOTALL)
_ANSI = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b", "E": "\x1b"}
_BRACES = re.compile(r"\{.*(,|\.\.).*\}", re.DOTALL)
_GLOB = re.compile(r"[*?\[]|[@+!]\(")
_QUOTED_MARK = "\0"
"""Replaces a quoted character where only unquoted ones count."""


class Word(Struct, frozen=True):
    text: str
    """Without quotes; an expansion is left as written."""
    bare: str = ""
    """The same, with quoted and escaped characters replaced."""
    dynamic: bool = False
    """Part of it comes from an expansion."""
    splits: bool = False
    """That expansion is not quoted: it may become any number of words."""

    @property
    def is_glob(self) -> bool:
        return _GLOB.search(self.bare) is not None

    @property
    def is_brace(self) -> bool:
        return _BRACES.search(self.bare) is not None

    @property
    def is_known(self) -> bool:
        """Return whether it is exactly this one word whenever it runs."""
        return not (self.dynamic or self.is_glob or self.is_brace)

    def after(self, length: int) -> "Word":
        """Return the word without its first characters."""
        return Word(self.text[length:], self.bare[length:], self.dynamic, self.splits)


def make_literal(text: str) -> Word:
    return Word(text, _QUOTED_MARK * len(text))


def read_word(node: Node) -> Word:
    match node.type:
        case "string":
            return _read_double_quoted(node)
        case "raw_string":
            return make_literal(_source(node)[1:-1])
        case "ansi_c_string":
            return make_literal(_unescape_ansi(_source(node)[2:-1]))
        case "translated_string":
            return Word(_source(node)[1:].strip('"'), dynamic=True)
        case "concatenation" | "command_name":
            return _join_words([read_word(child) for child in node.children])
        case "brace_expression":
            return Word(_source(node), _source(node))
        case kind if kind in EXPANSIONS:
            return Word(_source(node), _QUOTED_MARK, dynamic=True, splits=True)
        case _ if any(child.type in EXPANSIONS for child in node.children):
            return Word(_source(node), _QUOTED_MARK, dynamic=True, splits=True)
        case _:
            return _read_unquoted(_source(node))


def _source(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


def _read_unquoted(source: str) -> Word:
    text = _ESCAPED.sub(lambda found: "" if found[1] == "\n" else found[1], source)
    bare = _ESCAPED.sub(lambda found: "" if found[1] == "\n" else _QUOTED_MARK, source)
    return Word(text, bare)


def _read_double_quoted(node: Node) -> Word:
    """Return the text between the quotes: expansions as written, and everything else, including what the grammar
    skips."""
    whole, begin = node.text or b"", node.start_byte
    pieces: list[str] = []
    at, dynamic = 1, False
    for child in node.children:
        if child.type in EXPANSIONS:
            dynamic = True
            pieces.append(_unescape_quoted(whole[at : child.start_byte - begin]))
            pieces.append(_source(child))
            at = child.end_byte - begin
    pieces.append(_unescape_quoted(whole[at : len(whole) - 1]))
    text = "".join(pieces)
    return Word(text, _QUOTED_MARK * len(text), dynamic=dynamic)


def _unescape_quoted(source: bytes) -> str:
    text = source.decode("utf-8", "replace")
    return _ESCAPED_IN_QUOTES.sub(lambda found: "" if found[1] == "\n" else found[1], text)


def _unescape_ansi(source: str) -> str:
    def character(found: re.Match[str]) -> str:
        code = found[1]
        if code[0] in "xuU" and len(code) > 1:
            return chr(min(int(code[1:], 16), 0x10FFFF))
        if code[0] in "01234567":
            return chr(int(code, 8) & 0xFF)
        return _ANSI.get(code, code)

    return _ESCAPED_ANSI.sub(character, source)


def _join_words(words: list[Word]) -> Word:
    return Word(
        "".join(word.text for word in words),
        "".join(word.bare for word in words),
        any(word.dynamic for word in words),
        any(word.splits for word in words),
    )
