"""How a command begins and ends: signals, errors in one line, exit codes."""

import asyncio
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

from treadle.domain.errors import TreadleError, UsageError
from treadle.surfaces.cli.terminal import one_line
from treadle.system.process_privacy import forbid_dumps

FAILED, USAGE, NEEDS_AN_ANSWER, INTERRUPTED, PIPE_CLOSED = 1, 2, 4, 130, 141
DEBUG = "TREADLE_DEBUG"


def perform(
    command: Callable[[], Coroutine[Any, Any, int]],
    loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> NoReturn:
    """Run a command to its exit code. Whatever goes wrong is one line, unless TREADLE_DEBUG asks for more."""
    forbid_dumps()
    _set_up_output()
    try:
        with asyncio.Runner(loop_factory=loop) as runner:
            code = runner.run(command())
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        code = PIPE_CLOSED
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        code = _explain(error)
    if code == PIPE_CLOSED:  # nobody reads any more; what is left must not fail a second time
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def complain(what: object) -> None:
    print(f"treadle: {one_line(str(what))}", file=sys.stderr, flush=True)


def _explain(error: Exception) -> int:
    if isinstance(error, TreadleError):
        complain(error)
        return USAGE if isinstance(error, UsageError) else FAILED
    complain(
        f"something failed that should not: {type(error).__name__}: {error}. Set {DEBUG}=1 to see where, and "
        "please report it."
    )
    return FAILED


def _set_up_output() -> None:
    sys.stdout = sys.stdout or _nowhere()  # where the caller has closed one, Python has None
    sys.stderr = sys.stderr or _nowhere()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    handler = logging.StreamHandler()
    if not os.environ.get(DEBUG):
        handler.setFormatter(_OneLine())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


def _nowhere() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO())


class _OneLine(logging.Formatter):
    """A log record without its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        return f"treadle: {one_line(record.getMessage())}" + (f": {one_line(str(error))}" if error else "")


def settle() -> None:
    """What has been made by now stays for as long as the process does: the collector need not look at it again, and
    may look at the rest less often, when most of it is gone. Threads change less often too: where there is more to
    do than one core can, the loop and the writer would only take it from each other."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    sys.setswitchinterval(0.02)


class Stop:
    """Ctrl-C and SIGTERM while it is entered. The first is heard and left to the command; the second ends the
    process at once, which the journal survives."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.unanswered = asyncio.Event()
        """A stop that came while somebody was asked something: it leaves the question, not the run."""
        self._is_asking = False
        self._signal = signal.SIGINT

    @property
    def exit_code(self) -> int:
        return 128 + self._signal

    def __enter__(self) -> "Stop":
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._hear, number)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().remove_signal_handler(number)

    @property
    def is_heard(self) -> bool:
        """Whether somebody wants to leave: the run, or the question."""
        return self.asked.is_set() or self.unanswered.is_set()

    @property
    def is_terminated(self) -> bool:
        """Whether the process was told to end, by no person at the terminal."""
        return self._signal == signal.SIGTERM

    @contextmanager
    def asking(self) -> Generator[None]:
        """While somebody is asked something."""
        self._is_asking = True
        try:
            yield
        finally:
            self._is_asking = False

    def _hear(self, number: signal.Signals) -> None:
        heard = self.unanswered if self._is_asking else self.asked
        if heard.is_set():
            os._exit(128 + number)
        self._signal = number
        heard.set()
