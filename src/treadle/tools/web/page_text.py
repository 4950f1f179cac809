"""Extracts the visible text of a web page in a form that models read well: headings, links, lists, tables and
code."""

from itertools import islice

from treadle.tools.web.layout import PageLayout
from treadle.tools.web.markup import EndTag, PageText, StartTag, tokenize_page

MAX_CHARACTERS = 600_000
MAX_TOKENS = 500_000
"""The rest of a page with more tags and texts, or with longer text, is dropped."""
_VOID_ELEMENTS = {
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr",
}  # fmt: skip
_DROPPED_ELEMENTS = {
    "script", "style", "template", "svg", "nav", "iframe", "object", "canvas", "select", "button", "textarea",
    "audio", "video", "map", "dialog", "xmp", "noembed", "noframes", "datalist",
}  # fmt: skip
_BLOCK_ELEMENTS = {
    "address", "article", "aside", "blockquote", "body", "center", "dd", "details", "div", "dl", "dt", "fieldset",
    "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main",
    "ol", "p", "pre", "section", "summary", "table", "td", "th", "tr", "ul",
}  # fmt: skip
_CLOSES_SAME = {"p", "li", "dt", "dd", "tr", "td", "th", "option"}


def extract_text(page: str, url: str) -> str:
    """Return the text of a page that came from this URL."""
    reader = _PageReader(url)
    for token in islice(tokenize_page(page), MAX_TOKENS):
        match token:
            case PageText(text):
                reader.text(text)
            case StartTag():
                reader.start(token)
            case EndTag(name):
                reader.end(name)
        if reader.layout.size > MAX_CHARACTERS:
            break
    return reader.layout.finish()


class _PageReader:
    """Tracks which elements are open, and leaves out the content of hidden ones."""

    def __init__(self, url: str) -> None:
        self.layout = PageLayout(url)
        self._open: list[str] = []
        self._counts: dict[str, int] = {}
        self._dropped_from: int | None = None
        """The number of open elements where the current hidden element started."""

    def text(self, text: str) -> None:
        if self._dropped_from is None:
            self.layout.text(text)

    def start(self, tag: StartTag) -> None:
        self._close_implicitly(tag.name)
        if tag.name in _VOID_ELEMENTS:
            if self._dropped_from is None:
                self.layout.start(tag)
            return
        self._open.append(tag.name)
        self._counts[tag.name] = self._counts.get(tag.name, 0) + 1
        if self._dropped_from is not None:
            return
        if tag.name in _DROPPED_ELEMENTS or _is_hidden(tag):
            self._dropped_from = len(self._open)
        else:
            self.layout.start(tag)

    def end(self, name: str) -> None:
        while self._counts.get(name, 0):
            if self._pop() == name:
                return

    def _close_implicitly(self, name: str) -> None:
        if not self._open:
            return
        top = self._open[-1]
        if (top == name and name in _CLOSES_SAME) or (top == "p" and name in _BLOCK_ELEMENTS):
            self._pop()

    def _pop(self) -> str:
        name = self._open.pop()
        self._counts[name] -= 1
        if self._dropped_from is None:
            self.layout.end(name)
        elif len(self._open) < self._dropped_from:
            self._dropped_from = None
        return name


def _is_hidden(tag: StartTag) -> bool:
    if tag.name in ("html", "body"):  # some pages become visible through a script
        return False
    style = tag.attributes.get("style", "").lower().replace(" ", "")
    return "hidden" in tag.attributes or "display:none" in style or "visibility:hidden" in style
