"""The progress of a download on the command line."""

import sys

from treadle.surfaces.terminal.output import note


def draw_bar(name: str, done: int, total: int) -> str:
    """Return the line for a download that is in progress."""
    percent = 100 * done // total if total else 0
    return f"{name}: {done / 1e6:.0f} of {total / 1e6:.0f} MB ({percent}%) {'█' * (percent // 4):<25}"


class DownloadBar:
    """The progress of a download: one line that is overwritten on a terminal, a line at each quarter elsewhere."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._shown = -1

    def __call__(self, done: int, total: int) -> None:
        percent = 100 * done // total if total else 0
        terminal = sys.stderr.isatty()
        if percent == self._shown or (not terminal and percent % 25 and percent != 100):
            return
        self._shown = percent
        line = draw_bar(self._name, done, total)
        if not terminal:
            note(line.rstrip("█ "))
            return
        print(f"\r{line}", end="\n" if done >= total else "", file=sys.stderr, flush=True)
