"""The log: one line of JSON per record, without secrets; and the log lines about runs.

The run of a line comes with the record, or from the task that logs it."""

import fcntl
import logging
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Final

import msgspec

from treadle.domain import events as e
from treadle.domain.envelope import Draft, Event, Origin
from treadle.domain.ids import Instant, RunId
from treadle.domain.messages import make_sendable
from treadle.ports.vault import Vault, VaultError

logger = logging.getLogger("treadle.runs")

RUNNING: ContextVar[RunId | None] = ContextVar("treadle_running", default=None)
"""The run that the current task works on."""
FILE_BYTES, FILES = 10_000_000, 5
"""The size of a log file, and the number of older files that are kept."""
MAX_TEXT_CHARS = 20_000
"""Characters of one text; the rest is omitted."""
WITHHELD = "[withheld: the vault cannot be read, so secrets cannot be redacted]"
_ABOUT: Final = ("run_id", "session_id", "agent")
_TOKENS: Final = re.compile(
    r"\btrd_[A-Za-z0-9_-]{6,}|(?i:\b(?:bearer|basic)\s+)(?=\S*[0-9=])[A-Za-z0-9._~+/=-]{8,}"
)
"""Tokens of Treadle, and credentials after `bearer` or `basic`."""


def with_run_context(work: Callable[[RunId], Awaitable[None]]) -> Callable[[RunId], Awaitable[None]]:
    """Wrap work so that log lines of its task name the run."""

    async def work_with_context(run_id: RunId) -> None:
        RUNNING.set(run_id)
        await work(run_id)

    return work_with_context


SHORT_ID = len("run_") + 12
"""Characters of an id that name a run, as lists show it."""
LOGGED_EVENTS = frozenset(
    (
        e.RunQueued,
        e.RunEnd,
        e.RunWaiting,
        e.LlmError,
        e.ToolCallError,
        e.RunRecovered,
        e.BreakerOpened,
        e.BreakerClosed,
        e.McpDisconnected,
        e.McpFailed,
    )
)
"""Event types that produce a log line."""


class RunLog:
    """Implements `Watcher`: logs ends, waits and errors of runs, and knows the session and agent of each run."""

    def __init__(self) -> None:
        self._about: dict[RunId, dict[str, str]] = {}

    def about(self, run_id: RunId) -> dict[str, str]:
        """Return the fields of a log line about a run."""
        return self._about.get(run_id) or {"run_id": run_id}

    def remember(self, event: Event) -> None:
        self._remember_run(event.origin, event.data)

    def forget(self, run_id: RunId) -> None:
        self._about.pop(run_id, None)

    def observe(self, origin: Origin, first: int, drafts: Sequence[Draft]) -> None:
        for draft in drafts:
            if type(draft.data) in LOGGED_EVENTS:  # few types, and most of them once per run
                self._remember_run(origin, draft.data)
                self._log_event(origin.run_id, draft.data)

    def _remember_run(self, origin: Origin, data: e.EventData) -> None:
        if isinstance(data, e.RunQueued):
            self._about[origin.run_id] = {
                "run_id": origin.run_id,
                "session_id": origin.session_id,
                "agent": data.agent.name,
            }

    def _describe_run(self, run_id: RunId) -> str:
        """Return the run as a sentence names it: with the beginning of its id, and its agent."""
        agent = self._about.get(run_id, {}).get("agent")
        return f"run {run_id[:SHORT_ID]}" + (f" of {agent}" if agent else "")

    def _log_event(self, run_id: RunId, data: e.EventData) -> None:
        match data:
            case e.RunEnd(outcome=outcome, metrics=used, reason=reason):
                why = f": {reason}" if reason else ""
                steps = f"{used.steps} step{'' if used.steps == 1 else 's'}"
                fields = (self._describe_run(run_id), outcome, steps, used.duration_ms / 1000, why)
                logger.info("%s ended: %s, %s, %.1f s%s", *fields, extra=self.about(run_id))
                self._about.pop(run_id, None)
            case e.RunWaiting(reason, detail):
                logger.info(
                    "%s waits (%s): %s", self._describe_run(run_id), reason, detail, extra=self.about(run_id)
                )
            case e.LlmError(kind=kind, message=message):
                said = (self._describe_run(run_id), kind, message)
                logger.info("%s: model call failed (%s): %s", *said, extra=self.about(run_id))
            case e.ToolCallError(name=name, kind=kind):
                said = (self._describe_run(run_id), name, kind)
                logger.info("%s: call of %s failed (%s)", *said, extra=self.about(run_id))
            case e.RunRecovered(reason=reason):
                logger.info("%s resumed: %s", self._describe_run(run_id), reason, extra=self.about(run_id))
            case e.BreakerOpened(provider, model) | e.BreakerClosed(provider, model):
                logger.info("%s: %s/%s", e.NAMES[type(data)], provider, model, extra=self.about(run_id))
            case e.McpDisconnected(server, reason) | e.McpFailed(server, reason):
                logger.info("%s: %s: %s", e.NAMES[type(data)], server, reason, extra=self.about(run_id))
            case _:
                pass


class JsonLogFormatter(logging.Formatter):
    """Formats a record as one line of JSON, without terminal control characters and without secrets of the
    vault."""

    def __init__(self, vault: Vault, runs: RunLog, process: int | None = None) -> None:
        """`process`: the number of this process, if the server has several."""
        super().__init__()
        self._vault = vault
        self._runs = runs
        self._process = {} if process is None else {"process": process}

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _format_time(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            **self._process,
            "message": self._redact(record.getMessage()),
        }
        line |= {name: self._redact(value) for name, value in self._find_run_fields(record).items()}
        if record.exc_info:
            line["error"] = self._redact(self.formatException(record.exc_info))
        return escape_unprintable(msgspec.json.encode(line).decode())

    def _find_run_fields(self, record: logging.LogRecord) -> dict[str, str]:
        said = {name: str(value) for name in _ABOUT if (value := getattr(record, name, None)) is not None}
        run_id = said.get("run_id") or RUNNING.get()
        return said if run_id is None else self._runs.about(RunId(run_id)) | said

    def _redact(self, text: str) -> str:
        try:
            shown = self._vault.redactor.redact(make_sendable(text)).text
        except VaultError:
            return WITHHELD
        shown = _TOKENS.sub("[redacted]", shown)
        return shown if len(shown) <= MAX_TEXT_CHARS else f"{shown[:MAX_TEXT_CHARS]}… ({len(shown)} characters)"


def make_log_line(logger_name: str, message: str, **fields: object) -> str:
    """Return a line of the log about a process that has no vault, and therefore no secrets."""
    line = {"time": _format_time(time.time()), "level": "info", "logger": logger_name, **fields, "message": message}
    return escape_unprintable(msgspec.json.encode(line).decode())


def escape_unprintable(line: str) -> str:
    """Return an equivalent line of JSON in which unprintable characters are escaped."""
    if line.isascii() and "\x7f" not in line:
        return line
    return "".join(map(_escape, line))


def _escape(character: str) -> str:
    if character.isprintable():
        return character
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


class PrivateLogFile(RotatingFileHandler):
    """A rotating log that only its owner can read.

    Several processes may write to it. One of them rotates it, and the others continue with the new file."""

    def __init__(self, path: Path, size: int = FILE_BYTES, kept: int = FILES) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._has_reported_error = False
        self._latest: tuple[logging.LogRecord | None, str] = (None, "")
        super().__init__(path, maxBytes=size, backupCount=kept, encoding="utf-8", errors="replace")

    def format(self, record: logging.LogRecord) -> str:
        """Format each record once: its length is needed before it is written."""
        if self._latest[0] is not record:
            self._latest = (record, super().format(record))
        return self._latest[1]

    def shouldRollover(self, record: logging.LogRecord) -> bool:
        """Decide like the base class, with fewer file accesses."""
        if self.stream is None:  # pyright: ignore[reportUnnecessaryComparison] -- it is, between two files
            return False
        return self._is_full(record) or not self._is_current()

    def doRollover(self) -> None:
        """Rotate the files, unless another process has done that: then continue with the new file."""
        with self._lock_files():
            if self._is_current():
                super().doRollover()
                return
            assert self.stream is not None
            self.stream.close()
            self.stream = self._open()

    def _is_full(self, record: logging.LogRecord) -> bool:
        assert self.stream is not None
        return os.fstat(self.stream.fileno()).st_size + len(self.format(record)) >= self.maxBytes

    def _is_current(self) -> bool:
        """Return whether the open file is still the one with the name of the log."""
        assert self.stream is not None
        try:
            return os.path.samestat(os.stat(self.baseFilename), os.fstat(self.stream.fileno()))
        except FileNotFoundError:
            return False

    @contextmanager
    def _lock_files(self) -> Generator[None]:
        """Keep other processes from rotating the files during the block."""
        folder = os.open(os.path.dirname(self.baseFilename), os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def handleError(self, record: logging.LogRecord) -> None:
        """Report the first failure only: on a full disk, every line fails."""
        if not self._has_reported_error:
            self._has_reported_error = True
            lost = f"treadle: writing to the log {self.baseFilename} failed, lines are lost: {sys.exc_info()[1]}"
            print(lost, file=sys.stderr, flush=True)

    def _open(self) -> TextIOWrapper:
        handle = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        return os.fdopen(handle, "a", encoding=self.encoding, errors=self.errors)


def _format_time(at: Instant) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
