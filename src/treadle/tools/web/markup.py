"""Splits HTML into tags and texts in one pass, in time proportional to the page whatever it contains.

A page may be hostile. Both the parser of the standard library and a fast one in C (lexbor) take from ten seconds
to minutes for a few hundred kilobytes of crafted input, and hold the interpreter meanwhile."""

import re
from collections.abc import Iterator
from html import unescape
from typing import NamedTuple

_OPENING = re.compile(r"<(?=[a-zA-Z/!?])")
_NAME = re.compile(r"[a-zA-Z][^\s/>]{0,50}")
_ATTRIBUTE = re.compile(r"""[\s/]*([^\s/>=][^\s/>=]*)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"'][^\s>]*)))?""")
_MAX_ATTRIBUTES = 40
_RAW_ELEMENTS = {
    name: re.compile(f"</{name}", re.IGNORECASE)
    for name in ("script", "style", "iframe", "textarea", "title", "xmp", "noembed", "noframes")
}
"""Elements whose content is not markup, with the pattern that ends them."""


class PageText(NamedTuple):
    text: str


class StartTag(NamedTuple):
    name: str
    attributes: dict[str, str]


class EndTag(NamedTuple):
    name: str


MarkupToken = PageText | StartTag | EndTag


def tokenize_page(page: str) -> Iterator[MarkupToken]:
    """Yield the tags and texts of a page. What is unclosed at the end is dropped, so that nothing is searched
    twice."""
    at = 0
    while at < len(page):
        found = _OPENING.search(page, at)
        opening = found.start() if found else len(page)
        if opening > at:
            yield PageText(_unescape(page[at:opening]))
        if found is None:
            return
        token, at = _read_tag(page, opening)
        if token is None:
            continue
        yield token
        if isinstance(token, StartTag) and token.name in _RAW_ELEMENTS:
            end = _RAW_ELEMENTS[token.name].search(page, at)
            stop = end.start() if end else len(page)
            yield PageText(_unescape(page[at:stop]) if token.name in ("title", "textarea") else "")
            at = stop


def _read_tag(page: str, at: int) -> tuple[MarkupToken | None, int]:
    """Return the token that starts with this `<`, and where it ends."""
    if page.startswith("<!--", at):
        return None, _find_past(page, "-->", at + 2)
    closing = page.startswith("/", at + 1)
    name = _NAME.match(page, at + 1 + closing)
    if name is None:
        return None, _find_past(page, ">", at)
    if closing:
        return EndTag(name[0].lower()), _find_past(page, ">", name.end())
    attributes, end = _read_attributes(page, name.end())
    return StartTag(name[0].lower(), attributes), end


def _read_attributes(page: str, at: int) -> tuple[dict[str, str], int]:
    attributes: dict[str, str] = {}
    while len(attributes) < _MAX_ATTRIBUTES and (found := _ATTRIBUTE.match(page, at)):
        value = next((given for given in found.groups()[1:] if given is not None), "")
        attributes.setdefault(found[1].lower(), _unescape(value))
        at = found.end()
    return attributes, _find_past(page, ">", at)


def _find_past(page: str, mark: str, at: int) -> int:
    """Return the position after the mark, or the end of the page if there is none."""
    found = page.find(mark, at)
    return len(page) if found < 0 else found + len(mark)


def _unescape(text: str) -> str:
    """Return the text with character references such as `&amp;` replaced."""
    if "&" not in text:
        return text
    try:
        return unescape(text)
    except ValueError:  # a number with thousands of digits
        return text
