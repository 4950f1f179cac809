"""A real terminal for tests: a tmux server of its own, with keys to send and a screen to read."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.05
DEAD = "Pane is dead"

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed: apt-get install tmux")


class Terminal:
    """One program in one tmux pane."""

    def __init__(self, socket: str) -> None:
        self._socket = socket

    def send(self, *keys: str) -> None:
        """Press keys by their tmux names ("Enter", "Escape", "C-c")."""
        self._tmux("send-keys", "-t", "main", *keys)

    def type(self, text: str) -> None:
        """Type text literally."""
        self._tmux("send-keys", "-t", "main", "-l", text)

    def paste(self, text: str) -> None:
        """Paste text as a terminal does, with bracketed paste where the program asks for it."""
        subprocess.run(["tmux", "-S", self._socket, "load-buffer", "-"], input=text.encode(), check=True)
        self._tmux("paste-buffer", "-p", "-t", "main")

    def point(self, column: int, row: int, button: int = 0) -> None:
        """Press and release a mouse button at a cell, counted from 0, as a terminal reports it. Buttons 64 and 65
        are the wheel."""
        at = f"{button};{column + 1};{row + 1}"
        self.type(f"\x1b[<{at}M" if button >= 64 else f"\x1b[<{at}M\x1b[<{at}m")

    def read_clipboard(self) -> str:
        """Return what the program has copied with OSC 52."""
        done = subprocess.run(
            ["tmux", "-S", self._socket, "show-buffer"], check=False, capture_output=True, text=True
        )
        return done.stdout

    def resize(self, columns: int, rows: int) -> None:
        self._tmux("resize-window", "-t", "main", "-x", str(columns), "-y", str(rows))

    def read_screen(self, *, history: bool = False, escapes: bool = False) -> str:
        """Return the text on the screen, with the scrollback and the escape codes on request. The screen of a
        program that has ended comes with its scrollback: tmux scrolls to say that the pane is dead."""
        options = ["capture-pane", "-p", "-t", "main", *(["-e"] if escapes else [])]
        screen = "" if history else self._tmux(*options)
        return self._tmux(*options, "-S", "-") if history or DEAD in screen else screen

    def wait_for(self, condition: str | Callable[[str], bool], *, history: bool = False) -> str:
        """Wait until the screen contains a text or fulfils a condition, and return the screen."""

        def is_fulfilled(screen: str) -> bool:
            return condition in screen if isinstance(condition, str) else condition(screen)

        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_fulfilled(screen := self.read_screen(history=history)):
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {PATIENCE_SECONDS:.0f} s for {condition!r} on this screen:\n{screen}")
            time.sleep(POLL_SECONDS)
        return screen

    def read_process_id(self) -> int:
        """Return the id of the process that the pane started."""
        return int(self._tmux("display-message", "-p", "-t", "main", "#{pane_pid}"))

    def _tmux(self, *arguments: str) -> str:
        return subprocess.run(
            ["tmux", "-S", self._socket, *arguments], check=True, capture_output=True, text=True
        ).stdout


@contextmanager
def open_terminal(
    command: list[str], folder: Path, environment: Mapping[str, str], *, columns: int = 80, rows: int = 24
) -> Generator[Terminal]:
    """Run a command in a terminal; the pane stays open for reading after the command has ended."""
    with tempfile.TemporaryDirectory(prefix="tmux-") as sockets:
        socket = f"{sockets}/socket"
        settings = Path(sockets, "tmux.conf")
        settings.write_text(
            "set -g remain-on-exit on\nset -g escape-time 0\nset -g history-limit 20000\nset -g status off\n"
            "set -s set-clipboard on\n"
        )
        start = ["tmux", "-S", socket, "-f", str(settings), "new-session", "-d", "-s", "main"]
        size = ["-x", str(columns), "-y", str(rows), "-c", str(folder)]
        variables = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TERM": "xterm-256color", **environment}
        subprocess.run([*start, *size, "--", *command], check=True, env=variables)
        try:
            yield Terminal(socket)
        finally:
            subprocess.run(["tmux", "-S", socket, "kill-server"], check=False, capture_output=True)
