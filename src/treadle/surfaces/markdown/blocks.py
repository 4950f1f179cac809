"""Blocks of Markdown as styled lines: paragraphs, lists, quotes, code, tables."""

from collections.abc import Iterator, Sequence
from functools import lru_cache

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from treadle.surfaces.markdown.code import highlight
from treadle.surfaces.markdown.palette import PLAIN, Palette
from treadle.surfaces.markdown.wrapping import Line, Span, clean, hard_wrap, pad_line, width_of, wrap

BULLETS = ("•", "◦", "▪")
MAX_DEPTH = 12
"""Deeper nesting is drawn at this depth: every level takes columns."""
LEAST_WIDTH = 8
COLUMN_GAP = 2


@lru_cache(1)
def make_parser() -> MarkdownIt:
    """Return the parser. HTML is text: nothing in it is obeyed."""
    return MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable(["html_block", "html_inline"])


def render_markdown(source: str, width: int, palette: Palette) -> list[Line]:
    """Return Markdown as lines of at most `width` columns."""
    return BlockRenderer(palette).render(make_parser().parse(source), width)


class BlockRenderer:
    """Draws the tokens of the parser with one palette."""

    def __init__(self, palette: Palette) -> None:
        self._palette = palette

    def render(self, tokens: Sequence[Token], width: int) -> list[Line]:
        """Return top-level blocks with an empty line between them."""
        return self._blocks(tokens, max(LEAST_WIDTH, width), 0, tight=False)

    def _blocks(self, tokens: Sequence[Token], width: int, depth: int, *, tight: bool) -> list[Line]:
        lines: list[Line] = []
        for group in _split_blocks(tokens):
            block = self._block(group, width, depth)
            if block and lines and not tight:
                lines.append([])
            lines.extend(block)
        return lines

    def _block(self, tokens: Sequence[Token], width: int, depth: int) -> list[Line]:
        first, inside = tokens[0], tokens[1:-1]
        match first.type:
            case "paragraph_open":
                return wrap(self.inline(inside[0], self._palette.text), width)
            case "heading_open":
                return self._heading(first, inside[0], width)
            case "fence" | "code_block":
                return self.code(first.content.removesuffix("\n"), first.info, width)
            case "bullet_list_open" | "ordered_list_open":
                return self._list(first, inside, width, depth)
            case "blockquote_open":
                bar = Segment("▎ ", self._palette.quote)
                quoted = self._blocks(inside, max(LEAST_WIDTH, width - 2), min(depth + 1, MAX_DEPTH), tight=False)
                return [[bar, *_restyle(line, self._palette.quote)] for line in quoted]
            case "hr":
                return [[Segment("─" * width, self._palette.rule)]]
            case "table_open":
                return self._table(inside, width)
            case "inline":
                return wrap(self.inline(first, self._palette.text), width)
            case _:
                return wrap([(clean(first.content), self._palette.text)], width) if first.content else []

    def _heading(self, opening: Token, content: Token, width: int) -> list[Line]:
        style = self._palette.heading if opening.tag in ("h1", "h2") else self._palette.subheading
        return wrap(self.inline(content, style), width)

    def code(self, code: str, language: str, width: int) -> list[Line]:
        """Return a code block."""
        return self.code_lines(highlight(code, language, self._palette), width)

    def code_lines(self, rows: Sequence[Sequence[Span]], width: int) -> list[Line]:
        """Return highlighted rows as lines of a code block."""
        block, lines = self._palette.block, list[Line]()
        for row in rows:
            for piece in hard_wrap(row, width - 2):
                line = [Segment(" ", block), *piece]
                lines.append(pad_line(line, width, block) if self._palette.fills else line)
        return lines

    def _list(self, opening: Token, inside: Sequence[Token], width: int, depth: int) -> list[Line]:
        number = int(opening.attrs.get("start") or 1) if opening.type == "ordered_list_open" else None
        items = [group[1:-1] for group in _split_blocks(inside)]
        margin = len(f"{(number or 0) + len(items) - 1}. ") if number is not None else 2
        indent = margin if depth < MAX_DEPTH else 0
        lines: list[Line] = []
        for index, item in enumerate(items):
            mark = BULLETS[min(depth, len(BULLETS) - 1)] if number is None else f"{number + index}."
            tight = all(
                token.hidden for token in item if token.type == "paragraph_open" and token.level <= item[0].level
            )
            body = self._blocks(item, max(LEAST_WIDTH, width - indent), min(depth + 1, MAX_DEPTH), tight=True)
            if lines and not tight:
                lines.append([])
            first, *others = body or [[]]
            lines.append([Segment(f"{mark} ".rjust(indent), self._palette.accent), *_task(first)])
            lines.extend([[Segment(" " * indent, PLAIN), *line] if line else [] for line in others])
        return lines

    # ── Inside lines ──

    def inline(self, token: Token, base: Style) -> list[Span]:
        """Return the text of a line of Markdown with its styles."""
        palette, styles = self._palette, [base]
        spans: list[Span] = []
        target = ""
        for child in token.children or ():
            match child.type:
                case "text" | "text_special" | "html_inline":
                    spans.append((clean(child.content), styles[-1]))
                case "code_inline":
                    spans.append((clean(child.content), styles[-1] + palette.code))
                case "softbreak":
                    spans.append((" ", styles[-1]))
                case "hardbreak":
                    spans.append(("\n", styles[-1]))
                case "strong_open":
                    styles.append(styles[-1] + palette.strong)
                case "em_open":
                    styles.append(styles[-1] + palette.emphasis)
                case "s_open":
                    styles.append(styles[-1] + Style(strike=True))
                case "link_open":
                    target = str(child.attrs.get("href") or "")
                    styles.append(styles[-1] + palette.link)
                    spans.append(("", styles[-1]))
                case "link_close":
                    styles.pop()
                    _add_target(spans, clean(target), palette)
                case "strong_close" | "em_close" | "s_close":
                    styles.pop()
                case "image":
                    source = clean(str(child.attrs.get("src") or ""))
                    spans.append((f"[image: {clean(child.content) or source}]", styles[-1] + palette.link))
                    _add_target(spans, source, palette)
                case _:
                    spans.append((clean(child.content), styles[-1]))
        return [span for span in spans if span[0]]

    # ── Tables ──

    def _table(self, inside: Sequence[Token], width: int) -> list[Line]:
        head, rows = self._cells(inside)
        sides = [str(token.attrs.get("style") or "") for token in inside if token.type == "th_open"]
        columns = max((len(row) for row in (head, *rows)), default=0)
        if not columns:
            return []
        for row in (head, *rows):
            row.extend([list[Span]() for _ in range(columns - len(row))])
        widths = _fit_columns([[_span_width(cell) for cell in row] for row in (head, *rows)], width)
        lines = self._row(head, widths, sides)
        lines.append(_join_cells([[Segment("─" * size, self._palette.rule)] for size in widths], widths))
        for row in rows:
            lines.extend(self._row(row, widths, sides))
        return lines

    def _cells(self, inside: Sequence[Token]) -> tuple[list[list[Span]], list[list[list[Span]]]]:
        head: list[list[Span]] = []
        rows: list[list[list[Span]]] = []
        current, in_head = head, True
        for index, token in enumerate(inside):
            match token.type:
                case "thead_close":
                    in_head = False
                case "tr_open":
                    current = head if in_head else []
                    if not in_head:
                        rows.append(current)
                case "th_open" | "td_open":
                    style = self._palette.strong if in_head else PLAIN
                    current.append(self.inline(inside[index + 1], self._palette.text + style))
                case _:
                    pass
        return head, rows

    def _row(self, cells: Sequence[list[Span]], widths: Sequence[int], sides: Sequence[str]) -> list[Line]:
        wrapped = [
            [_align(line, size, side) for line in wrap(cell, size)]
            for cell, size, side in zip(cells, widths, sides, strict=True)
        ]
        height = max(map(len, wrapped))
        return [
            _join_cells([cell[index] if index < len(cell) else [] for cell in wrapped], widths)
            for index in range(height)
        ]


def _split_blocks(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """Yield each block of one level with everything inside it."""
    start, depth = 0, 0
    for index, token in enumerate(tokens):
        depth += token.nesting
        if depth == 0:
            yield tokens[start : index + 1]
            start = index + 1


def _add_target(spans: list[Span], target: str, palette: Palette) -> None:
    """Show where a link leads, unless its text says so: the reader sees every address."""
    shown = "".join(text for text, _ in spans[-8:])
    if target and not shown.endswith(target.removeprefix("mailto:")):
        spans.append((f" ({target})", palette.dim))


def _restyle(line: Line, under: Style) -> Line:
    return [Segment(segment.text, under + (segment.style or PLAIN)) for segment in line]


def _task(line: Line) -> Line:
    """Draw the box of an item of a task list."""
    if line and line[0].text[:4] in ("[ ] ", "[x] ", "[X] "):
        box = "☐ " if line[0].text[1] == " " else "☑ "
        return [Segment(box + line[0].text[4:], line[0].style), *line[1:]]
    return line


def _span_width(spans: Sequence[Span]) -> int:
    return sum(cell_len(text) for text, _ in spans)


def _fit_columns(rows: Sequence[Sequence[int]], width: int) -> list[int]:
    """Return the widths of the columns: the widest cells, cut from the widest column first until they fit."""
    widths = [
        max(1, *(row[index] for row in rows)) if len(rows) > 1 else max(1, rows[0][index])
        for index in range(len(rows[0]))
    ]
    available = max(len(widths), width - COLUMN_GAP * (len(widths) - 1))
    while sum(widths) > available:
        widest = max(range(len(widths)), key=widths.__getitem__)
        others = sorted(widths)[-2] if len(widths) > 1 else 0
        excess = sum(widths) - available
        widths[widest] = max(1, widths[widest] - max(1, min(excess, widths[widest] - others)))
        if max(widths) == 1:
            break
    return widths


def _align(line: Line, width: int, side: str) -> Line:
    """Return a line of a cell on the side that its column names: `text-align:right`."""
    missing = width - width_of(line)
    before = {"text-align:right": missing, "text-align:center": missing // 2}.get(side, 0)
    return [Segment(" " * before, PLAIN), *line] if before > 0 else line


def _join_cells(cells: Sequence[Line], widths: Sequence[int]) -> Line:
    line: Line = []
    for index, (cell, size) in enumerate(zip(cells, widths, strict=True)):
        last = index == len(widths) - 1
        line.extend(cell)
        if not last:
            line.append(Segment(" " * (size - width_of(cell) + COLUMN_GAP), PLAIN))
    return line
