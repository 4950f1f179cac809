"""The process of a command: signals, errors in one line, exit codes."""

import asyncio
import errno
import gc
import io
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NoReturn

from treadle.domain.errors import InsufficientCredits, QuotaExceeded, TreadleError, UsageError
from treadle.surfaces.terminal.output import print_error
from treadle.surfaces.terminal.text import columns, is_terminal, one_line
from treadle.surfaces.terminal.word_wrap import fold_note
from treadle.system.process_privacy import forbid_dumps

FAILED, USAGE, LIMIT_REACHED, NEEDS_AN_ANSWER, INTERRUPTED, PIPE_CLOSED = 1, 2, 3, 4, 130, 141
DEBUG = "TREADLE_DEBUG"


def perform(
    command: Callable[[], Coroutine[Any, Any, int] | int | None],
    loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> NoReturn:
    """Run a command and exit with its code. An error is printed in one line, unless TREADLE_DEBUG is set.

    What a command does before it returns its coroutine happens outside the event loop: Ctrl-C interrupts it even
    while it reads standard input."""
    forbid_dumps()
    _set_up_output()
    try:
        work = command()
        if isinstance(work, Coroutine):
            with asyncio.Runner(loop_factory=loop) as runner:
                work = runner.run(work)
        code = work or 0
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        code = PIPE_CLOSED
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        code = _report(error)
    if code == PIPE_CLOSED:  # the reader is gone; flushing the rest must not fail again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def _report(error: Exception) -> int:
    if isinstance(error, TreadleError):
        print_error(error)
        if isinstance(error, QuotaExceeded | InsufficientCredits):
            return LIMIT_REACHED
        return USAGE if isinstance(error, UsageError) else FAILED
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        print_error("The output cannot be written: no space is left. Free some space, or write elsewhere.")
        return FAILED
    print_error(
        f"unexpected error: {type(error).__name__}: {error}. Set {DEBUG}=1 for the traceback, and please report it."
    )
    return FAILED


def _set_up_output() -> None:
    sys.stdout = sys.stdout or _discard()  # None if the caller has closed it
    sys.stderr = sys.stderr or _discard()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    handler = logging.StreamHandler()
    if not os.environ.get(DEBUG):
        handler.setFormatter(_OneLine())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


def _discard() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO())


class _OneLine(logging.Formatter):
    """A log record without its traceback: one line, which a terminal shows broken between words."""

    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        line = f"treadle: {one_line(record.getMessage())}" + (f": {one_line(str(error))}" if error else "")
        return "\n".join(fold_note(line, columns() if is_terminal() else None))


def tune_for_long_run() -> None:
    """Tune a process that has started and will run for long.

    Objects made so far live as long as the process, so the garbage collector skips them and runs less often.
    Threads switch less often: under load the loop and the writer would only take the core from each other."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    sys.setswitchinterval(0.02)


class Stop:
    """Handles Ctrl-C and SIGTERM while it is entered. The first is left to the command; the second ends the process
    at once, which the journal survives."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.unanswered = asyncio.Event()
        """A stop that came during a question: it leaves the question open and the run as it is."""
        self.is_asking = False
        """Whether a question to the user is open."""
        self.before_exit: Callable[[], None] = _do_nothing
        """Called before the second signal ends the process."""
        self._signal: signal.Signals = signal.SIGINT

    @property
    def exit_code(self) -> int:
        return 128 + self._signal

    def __enter__(self) -> "Stop":
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._receive, number)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().remove_signal_handler(number)

    @property
    def is_requested(self) -> bool:
        """Return whether the user wants to leave the run or the question."""
        return self.asked.is_set() or self.unanswered.is_set()

    @property
    def is_terminated(self) -> bool:
        """Return whether SIGTERM asked the process to end."""
        return self._signal == signal.SIGTERM

    def reset(self) -> None:
        """Forget earlier stops, to go on with another message."""
        self.asked.clear()
        self.unanswered.clear()

    @contextmanager
    def asking(self) -> Generator[None]:
        """Mark the time of a question to the user."""
        self.is_asking = True
        try:
            yield
        finally:
            self.is_asking = False

    def leave(self, number: signal.Signals) -> None:
        """Stop as this signal asks: the terminal or the reader of standard output is gone."""
        self._signal = number
        self.asked.set()

    def _receive(self, number: signal.Signals) -> None:
        event = self.unanswered if self.is_asking else self.asked
        if event.is_set():
            self.before_exit()
            os._exit(128 + number)
        self._signal = number
        event.set()


def _do_nothing() -> None:
    """Stand for work that a command does not have."""
