"""A web page as text that a model reads well: headings, links, lists, tables and code; and only what is shown."""

from itertools import islice

from treadle.tools.web.layout import Layout
from treadle.tools.web.markup import End, PageText, StartTag, tokens

MOST_CHARACTERS = 600_000
MOST_TOKENS = 500_000
"""A page with more tags and texts, or that would become longer, is not read to its end."""
_VOID = {
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr",
}  # fmt: skip
_DROPPED = {
    "script", "style", "template", "svg", "nav", "iframe", "object", "canvas", "select", "button", "textarea",
    "audio", "video", "map", "dialog", "xmp", "noembed", "noframes", "datalist",
}  # fmt: skip
_BLOCKS = {
    "address", "article", "aside", "blockquote", "body", "center", "dd", "details", "div", "dl", "dt", "fieldset",
    "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main",
    "ol", "p", "pre", "section", "summary", "table", "td", "th", "tr", "ul",
}  # fmt: skip
_CLOSES_ITS_LIKE = {"p", "li", "dt", "dd", "tr", "td", "th", "option"}


def readable(page: str, url: str) -> str:
    """The text of a page that came from this address."""
    reader = _Reader(url)
    for token in islice(tokens(page), MOST_TOKENS):
        match token:
            case PageText(text):
                reader.text(text)
            case StartTag():
                reader.start(token)
            case End(name):
                reader.end(name)
        if reader.layout.size > MOST_CHARACTERS:
            break
    return reader.layout.finished()


class _Reader:
    """Keeps which elements are open, and leaves out what is in those that are not shown."""

    def __init__(self, url: str) -> None:
        self.layout = Layout(url)
        self._open: list[str] = []
        self._counts: dict[str, int] = {}
        self._dropped_from: int | None = None
        """How many elements were open where the one began that is not shown."""

    def text(self, text: str) -> None:
        if self._dropped_from is None:
            self.layout.text(text)

    def start(self, tag: StartTag) -> None:
        self._close_what_it_closes(tag.name)
        if tag.name in _VOID:
            if self._dropped_from is None:
                self.layout.start(tag)
            return
        self._open.append(tag.name)
        self._counts[tag.name] = self._counts.get(tag.name, 0) + 1
        if self._dropped_from is not None:
            return
        if tag.name in _DROPPED or _is_hidden(tag):
            self._dropped_from = len(self._open)
        else:
            self.layout.start(tag)

    def end(self, name: str) -> None:
        while self._counts.get(name, 0):
            if self._pop() == name:
                return

    def _close_what_it_closes(self, name: str) -> None:
        if not self._open:
            return
        top = self._open[-1]
        if (top == name and name in _CLOSES_ITS_LIKE) or (top == "p" and name in _BLOCKS):
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
    if tag.name in ("html", "body"):  # some pages show themselves by a script
        return False
    style = tag.attributes.get("style", "").lower().replace(" ", "")
    return "hidden" in tag.attributes or "display:none" in style or "visibility:hidden" in style
