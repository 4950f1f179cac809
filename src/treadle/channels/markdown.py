"""Markdown in the dialects of platforms."""

import re
from collections.abc import Callable, Sequence
from html import escape, unescape
from typing import Any

MAX_TABLE_WIDTH = 80
"""Characters of a row in columns. The rows of wider tables are lists."""
_TAG = re.compile(r"<[^>]*>")

# ── Dialects ──


def _keep_text(text: str) -> str:
    return text


def _show_html(text: str) -> str:
    return unescape(_TAG.sub("", text))


class Dialect:
    """How one platform writes what Markdown means. A pair is what goes before and after a span."""

    def __init__(
        self,
        spans: dict[str, tuple[str, str]],
        escape_text: Callable[[str], str],
        link: Callable[[str, str], str],
        code_block: Callable[[str, str], str],
        quote: Callable[[str], str],
        show: Callable[[str], str] = _keep_text,
    ) -> None:
        self.spans = spans
        self.escape_text = escape_text
        self.link = link
        self.code_block = code_block
        self.quote = quote
        self.show = show
        """Returns what people see of a rendered text."""


def _escape_slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _html_link(url: str, text: str) -> str:
    return f'<a href="{escape(url)}">{text}</a>'


def _html_block(code: str, language: str) -> str:
    kind = f' class="language-{escape(language)}"' if language else ""
    return f"<pre><code{kind}>{escape(code, quote=False)}</code></pre>"


def _escape_html(text: str) -> str:
    return escape(text, quote=False)


TELEGRAM = Dialect(
    {"strong": ("<b>", "</b>"), "em": ("<i>", "</i>"), "s": ("<s>", "</s>"), "code": ("<code>", "</code>")},
    _escape_html,
    _html_link,
    _html_block,
    lambda text: f"<blockquote>{text}</blockquote>",
    _show_html,
)
MATRIX = Dialect(
    {
        "strong": ("<strong>", "</strong>"),
        "em": ("<em>", "</em>"),
        "s": ("<del>", "</del>"),
        "code": ("<code>", "</code>"),
    },
    _escape_html,
    _html_link,
    _html_block,
    lambda text: f"<blockquote>{text}</blockquote>",
    _show_html,
)
SLACK = Dialect(
    {"strong": ("*", "*"), "em": ("_", "_"), "s": ("~", "~"), "code": ("`", "`")},
    _escape_slack,
    lambda url, text: f"<{url}|{text}>" if text != url else f"<{url}>",
    lambda code, language: f"```\n{_escape_slack(code)}```",
    lambda text: "\n".join(f"> {line}" for line in text.split("\n")),
)
PLAIN = Dialect(
    {"strong": ("", ""), "em": ("", ""), "s": ("", ""), "code": ("", "")},
    _keep_text,
    lambda url, text: url if text == url else f"{text} ({url})",
    lambda code, language: "\n".join(f"    {line}" for line in code.rstrip("\n").split("\n")),
    lambda text: "\n".join(f"> {line}" for line in text.split("\n")),
)


def render(text: str, dialect: Dialect) -> str:
    """Return Markdown in a dialect. HTML in the text is shown as text, never as markup."""
    from markdown_it import MarkdownIt  # only where a message is sent

    parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
    rendered = _Rendering(dialect).blocks(parser.parse(text)).strip("\n")
    if dialect.show(rendered).strip():
        return rendered
    return dialect.escape_text(text.strip())  # such as a definition of a link, which platforms would not show


def measure(text: str, dialect: Dialect) -> int:
    """Return how many characters of Markdown people see in a dialect."""
    return len(dialect.show(render(text, dialect)))


class _Rendering:
    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    def blocks(self, tokens: Sequence[Any]) -> str:
        """Return blocks, separated by an empty line."""
        found: list[str] = []
        index = 0
        while index < len(tokens):
            token = tokens[index]
            if token.nesting == 1:
                end = _find_end(tokens, index)
                found.append(self._block(token, tokens[index + 1 : end]))
                index = end + 1
            else:
                found.append(self._leaf(token))
                index += 1
        return "\n\n".join(block for block in found if block)

    def _block(self, token: Any, inside: Sequence[Any]) -> str:
        match token.type:
            case "heading_open":
                before, after = self._dialect.spans["strong"]
                return f"{before}{self.blocks(inside)}{after}"
            case "blockquote_open":
                return self._dialect.quote(self.blocks(inside))
            case "bullet_list_open":
                return self._items(inside, None)
            case "ordered_list_open":
                return self._items(inside, int(token.attrGet("start") or 1))
            case "table_open":
                return self._table(inside)
            case _:
                return self.blocks(inside)

    def _table(self, tokens: Sequence[Any]) -> str:
        """Return a table in columns of equal width, or as a list if it is wide: platforms have no tables."""
        rows = _read_table(tokens)
        widths = [max(len(row[at]) for row in rows if at < len(row)) for at in range(max(map(len, rows)))]
        if sum(widths) + 2 * len(widths) <= MAX_TABLE_WIDTH:
            return self._dialect.code_block(_draw_table(rows, widths), "")
        header, *rest = rows
        before, after = self._dialect.spans["strong"]
        blocks = [
            "\n".join(
                f"{before}{self._escape(name)}{after}: {self._escape(cell)}" if name else self._escape(cell)
                for name, cell in zip(header, row, strict=False)
                if cell
            )
            for row in rest or [[""] * len(header)]
        ]
        return "\n\n".join(filter(None, blocks)) or self._escape("  ".join(header))

    def _items(self, tokens: Sequence[Any], number: int | None) -> str:
        lines: list[str] = []
        index = 0
        while index < len(tokens):
            end = _find_end(tokens, index)
            mark = "• " if number is None else f"{number}. "
            item = self.blocks(tokens[index + 1 : end]).replace("\n\n", "\n")
            lines.append(mark + item.replace("\n", "\n" + " " * len(mark)))
            number = None if number is None else number + 1
            index = end + 1
        return "\n".join(lines)

    def _leaf(self, token: Any) -> str:
        match token.type:
            case "fence" | "code_block":
                language = token.info.split()[0] if token.info.split() else ""
                return self._dialect.code_block(token.content, language)
            case "hr":
                return "———"
            case "inline":
                return self._inline(token.children or [])
            case _:
                return self._dialect.escape_text(token.content)

    def _inline(self, tokens: Sequence[Any]) -> str:
        written: list[str] = []
        links: list[tuple[str, int]] = []
        for token in tokens:
            kind = token.type.removesuffix("_open").removesuffix("_close")
            if kind == "link":
                self._link(token, written, links)
            elif kind == "image":
                written.append(
                    self._dialect.link(str(token.attrGet("src")), self._escape(token.content or "image"))
                )
            elif token.type in ("softbreak", "hardbreak"):
                written.append("\n")
            elif token.type == "code_inline":
                before, after = self._dialect.spans["code"]
                written.append(f"{before}{self._escape(token.content)}{after}")
            elif token.nesting and kind in self._dialect.spans:
                written.append(self._dialect.spans[kind][0 if token.nesting == 1 else 1])
            else:
                written.append(self._escape(token.content))
        return "".join(written)

    def _link(self, token: Any, written: list[str], links: list[tuple[str, int]]) -> None:
        if token.nesting == 1:
            links.append((str(token.attrGet("href")), len(written)))
            return
        url, start = links.pop()
        text = "".join(written[start:])
        written[start:] = [self._dialect.link(url, text or self._escape(url))]

    def _escape(self, text: str) -> str:
        return self._dialect.escape_text(text)


def _find_end(tokens: Sequence[Any], start: int) -> int:
    """Return the index of the token that closes an opening one."""
    depth = 0
    for index in range(start, len(tokens)):
        depth += tokens[index].nesting
        if depth == 0:
            return index
    return len(tokens) - 1


def _read_table(tokens: Sequence[Any]) -> list[list[str]]:
    """Return the cells of a table, row by row, the header first."""
    rows: list[list[str]] = []
    for token in tokens:
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline":
            children: list[Any] = token.children or []
            rows[-1].append("".join(str(child.content) for child in children))
    return rows


def _draw_table(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> str:
    lines = ["  ".join(cell.ljust(widths[at]) for at, cell in enumerate(row)).rstrip() for row in rows]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]]) + "\n"
