"""Converts the elements of a page into lines of text, in order."""

from urllib.parse import urljoin

from treadle.tools.web.markup import StartTag

_MAX_LIST_DEPTH = 8
_MAX_QUOTE_DEPTH = 4
_MAX_LINK_CHARACTERS = 1000
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_SPACED_BLOCKS = {"p", "blockquote", "pre", "table", "dl", "figure", "section", "article", *_HEADINGS}
"""Blocks with an empty line before and after."""
_TIGHT_BLOCKS = {
    "address", "aside", "body", "center", "dd", "details", "div", "dt", "fieldset", "figcaption", "footer", "form",
    "header", "li", "main", "summary", "title",
}  # fmt: skip
_FENCE = "```"


class PageLayout:
    """Receives the visible parts of a page piece by piece."""

    def __init__(self, url: str) -> None:
        self.size = 0
        self._base = url
        self._lines: list[str] = []
        self._inline: list[str] = []
        self._prefix = ""
        """The prefix of the next line: the mark of a heading or of an item."""
        self._lists: list[int | None] = []
        """The number of the last item of each open list; None: the list is not numbered."""
        self._quotes = 0
        self._open_link: tuple[str, int] | None = None
        """The target of the open link, and where its text starts in the line."""
        self._preformatted: list[str] | None = None
        self._row: list[str] | None = None
        self._first_row = False

    def text(self, text: str) -> None:
        self.size += len(text)
        (self._inline if self._preformatted is None else self._preformatted).append(text)

    def start(self, tag: StartTag) -> None:
        name = tag.name
        match name:
            case "br":
                self._new_line()
            case "hr":
                self._block(spaced=True)
                self._lines += ["---", ""]
            case "img" if alt := tag.attributes.get("alt", "").strip():
                self.text(f"[image: {alt}]")
            case "base":
                self._base = self._resolve_link(tag.attributes.get("href", "")) or self._base
            case "a":
                self._end_link()  # a nested link ends the outer one
                self._open_link = (tag.attributes.get("href", ""), len(self._inline))
            case "code" if self._preformatted is None:
                self.text("`")
            case "ul" | "ol":
                self._block(spaced=not self._lists)
                self._lists.append(0 if name == "ol" else None)
            case "table" | "tr" | "td" | "th":
                self._start_table(name)
            case _:
                self._start_block(name)

    def end(self, name: str) -> None:
        match name:
            case "a":
                self._end_link()
            case "code" if self._preformatted is None:
                self.text("`")
            case "ul" | "ol" if self._lists:
                self._block(spaced=len(self._lists) == 1)
                self._lists.pop()
            case "pre":
                self._end_preformatted()
            case "title":
                self._prefix = "Title: "
                self._block(spaced=True)
            case "td" | "th" if self._row is not None:
                self._cell()
            case "tr":
                self._end_row()
            case _ if name in _SPACED_BLOCKS or name in _TIGHT_BLOCKS:
                self._block(spaced=self._is_spaced(name))
                if name == "blockquote":
                    self._quotes -= 1
            case _:
                pass

    def finish(self) -> str:
        self._end_preformatted()
        self._end_row()
        self._block(spaced=False)
        kept: list[str] = []
        for line in self._lines:
            if line or (kept and kept[-1]):
                kept.append(line)
        return "\n".join(kept).strip()

    def _start_block(self, name: str) -> None:
        if name not in _SPACED_BLOCKS and name not in _TIGHT_BLOCKS:
            return
        self._block(spaced=self._is_spaced(name))
        if name in _HEADINGS:
            self._prefix = "#" * _HEADINGS[name] + " "
        elif name == "li":
            self._prefix = self._start_item()
        elif name == "blockquote":
            self._quotes += 1
        elif name == "pre" and self._preformatted is None:
            self._preformatted = []

    def _is_spaced(self, name: str) -> bool:
        return name in _SPACED_BLOCKS and not (name == "p" and self._lists)

    def _start_item(self) -> str:
        if not self._lists:
            return "- "
        indent = "  " * min(len(self._lists) - 1, _MAX_LIST_DEPTH)
        number = self._lists[-1]
        if number is None:
            return f"{indent}- "
        self._lists[-1] = number + 1
        return f"{indent}{number + 1}. "

    # ── Lines ──────────────────────────────────────────────────────────────────────────────────────

    def _block(self, spaced: bool) -> None:
        """End the line, unless a table row continues it."""
        if self._preformatted is not None:
            return
        if self._row is not None:
            self._inline.append(" ")
            return
        self._new_line()
        if spaced and self._lines and self._lines[-1]:
            self._lines.append("")

    def _new_line(self) -> None:
        if self._preformatted is not None:
            self._preformatted.append("\n")
            return
        if self._row is not None:
            self._inline.append(" ")
            return
        text = self._take_inline()
        if text:
            self._add(f"{self._prefix}{text}")
            self._prefix = ""

    def _take_inline(self) -> str:
        """Return the text since the last line with collapsed spaces."""
        text = " ".join("".join(self._inline).split())
        self._inline.clear()
        self._open_link = (self._open_link[0], 0) if self._open_link else None
        return "" if text == "``" else text

    def _add(self, line: str) -> None:
        mark = "> " * min(self._quotes, _MAX_QUOTE_DEPTH)
        self._lines.append(f"{mark}{line}")
        self.size += len(mark) + len(self._prefix)

    def _end_preformatted(self) -> None:
        if self._preformatted is None:
            return
        code = "".join(self._preformatted).strip("\n")
        self._preformatted = None
        if code.strip():
            self._lines += [_FENCE, *code.split("\n"), _FENCE, ""]

    # ── Links and tables ───────────────────────────────────────────────────────────────────────────

    def _resolve_link(self, link: str) -> str:
        """Return the URL of a link, or "" if it does not lead to another page."""
        link = link.strip()
        if not link or link.startswith("#") or len(link) > _MAX_LINK_CHARACTERS:
            return ""
        try:
            joined = urljoin(self._base, link)
        except ValueError:
            return ""
        url = "".join(joined.split())
        return url if url.startswith(("http://", "https://")) else ""

    def _end_link(self) -> None:
        if self._open_link is None:
            return
        (link, since), self._open_link = self._open_link, None
        if self._preformatted is not None:
            return
        text = " ".join("".join(self._inline[since:]).split())
        if text and (address := self._resolve_link(link)):
            lead = " " if self._inline[since][:1].isspace() else ""
            self._inline[since:] = [f"{lead}[{text}]({address})"]
            self.size += len(address) + 4

    def _start_table(self, name: str) -> None:
        if name == "table":
            self._end_row()
            self._block(spaced=True)
            self._first_row = True
        elif name == "tr":
            self._end_row()
            self._block(spaced=False)
            self._row = []
        elif self._row is None:
            self._block(spaced=False)
        else:
            self._cell()

    def _cell(self) -> None:
        text = self._take_inline().replace("|", "\\|")
        if self._row is not None and text:
            self._row.append(text)

    def _end_row(self) -> None:
        if self._row is None:
            return
        self._cell()
        cells, self._row = self._row, None
        if len(cells) == 1:
            self._add(cells[0])
        elif cells:
            self._add(f"| {' | '.join(cells)} |")
            if self._first_row:
                self._add("|" + " --- |" * len(cells))
        self._first_row = False
