"""Rows for people: columns as wide as they need to be; a terminal cuts each line at its own width."""

import sys
from collections.abc import Sequence
from itertools import zip_longest

from treadle.surfaces.cli.terminal import columns, cut, one_line

GAP = "  "


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], leads: Sequence[str] = ()) -> None:
    """`leads` are drawn before the first rows as they are, such as the lines of a tree."""
    lines = [head, *([one_line(cell) for cell in row] for row in rows)]
    lines[1:] = [[f"{lead}{line[0]}", *line[1:]] for lead, line in zip_longest(leads, lines[1:], fillvalue="")]
    widths = [max(len(line[index]) for line in lines) for index in range(len(head))]
    width = columns() if sys.stdout.isatty() else None
    for line in lines:
        padded = [cell.ljust(cell_width) for cell, cell_width in zip(line, widths, strict=True)]
        print(cut(GAP.join(padded).rstrip(), width))
