"""Rows for people: columns as wide as they need to be; a terminal cuts the last one."""

import sys
from collections.abc import Sequence

from treadle.surfaces.cli.terminal import columns, one_line

GAP = "  "


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    lines = [head, *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(head))]
    left = max(10, columns() - sum(widths[:-1]) - len(GAP) * (len(head) - 1)) if sys.stdout.isatty() else None
    for *cells, last in lines:
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
        print(GAP.join([*padded, one_line(last, left)]).rstrip())
