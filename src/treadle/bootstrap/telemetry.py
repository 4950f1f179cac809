"""Wiring of metrics, the log and traces of an engine. An embedded engine has none of them unless the program
enables them."""

import logging
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack

from msgspec import Struct

from treadle import __version__
from treadle.config.home import Home
from treadle.domain.errors import ConfigError, UsageError
from treadle.domain.ids import RunId
from treadle.engine.event_hub import EventHub
from treadle.models.registry import ModelRegistry
from treadle.ports.clock import Clock
from treadle.ports.journal import Journal, Runs
from treadle.ports.vault import Vault
from treadle.telemetry.event_watch import Watch, Watcher
from treadle.telemetry.logs import JsonLogFormatter, PrivateLogFile, RunLog, with_run_context
from treadle.telemetry.metrics import MetricsWatcher
from treadle.telemetry.span_names import CAPTURE_CONTENT

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL = "http/protobuf"
LOG_FILE = "treadle.log"
PAGE_EVENTS = 500
_TRUE = ("true", "1", "yes", "on", "span_only", "span_and_event")


class Telemetry(Struct, frozen=True):
    """Which telemetry an engine produces."""

    metrics: bool = False
    """Count, for `Engine.metrics`."""
    log_file: bool = False
    """Write the log to `logs/treadle.log` in the home, including how each run ended."""
    log_json: bool = False
    """Write the log to standard error as JSON lines instead of text."""
    traces: bool = False
    """Send spans to the collector that the OTEL_ variables name."""
    contents: bool = False
    """Include messages, and the arguments and results of tool calls, in spans."""

    @classmethod
    def from_environment(
        cls,
        environment: Mapping[str, str],
        *,
        metrics: bool = False,
        log_file: bool = False,
        log_json: bool = False,
    ) -> "Telemetry":
        """Return the settings, with traces if the OTEL_ variables name a collector. Raise UsageError for an
        unsupported protocol."""
        is_configured = environment.get("OTEL_TRACES_EXPORTER", "otlp") != "none" and any(
            map(environment.get, ENDPOINTS)
        )
        off = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        if is_configured and not off:
            _check_protocol(environment)
        contents = environment.get(CAPTURE_CONTENT, "").strip().lower() in _TRUE
        return cls(metrics, log_file, log_json, traces=is_configured and not off, contents=contents)


def _check_protocol(environment: Mapping[str, str]) -> None:
    name = next((name for name in PROTOCOLS if environment.get(name)), None)
    if name is not None and environment[name] != PROTOCOL:
        raise UsageError(
            f"{name} is `{environment[name]}`; accepted: {PROTOCOL}. Set it to that (collectors usually have port "
            "4318 for it), or unset it."
        )


class EngineTelemetry:
    """The telemetry of one engine, each time it is opened."""

    def __init__(self, settings: Telemetry, home: Home, models: ModelRegistry, vault: Vault, clock: Clock) -> None:
        self._settings = settings
        self._home = home
        self._vault = vault
        self._runs = RunLog()

        def breakers() -> list[tuple[str, str, str]]:
            return [(state.provider, state.model, state.phase) for state in models.breakers()]

        self.metrics = MetricsWatcher(clock, breakers) if settings.metrics else None

    async def begin(
        self, hub: EventHub, journal: Journal, runs: Runs, opened: AsyncExitStack, shared: bool = False
    ) -> None:
        """Start watching the commits of this process, until `opened` is closed.

        On a shared database, runs that this process does not work on are counted by other processes."""
        watchers: list[Watcher] = []
        if self.metrics is not None:
            for record in () if shared else await runs.unfinished():
                self.metrics.adopt(record.origin.run_id, record.status)
            watchers.append(self.metrics)
        if self._settings.log_file or self._settings.log_json:
            self._begin_log(opened)
            watchers.append(self._runs)
        if self._settings.traces:
            watchers.append(self._begin_traces(opened))
        watch = Watch(watchers, lambda run_id, after: journal.read(run_id, after, PAGE_EVENTS))
        opened.push_async_callback(watch.close)
        hub.observers.append(watch)
        hub.handover_observers.append(watch.forget)
        hub.claim_observers.append(watch.take)

    def around(self, work: Callable[[RunId], Awaitable[None]]) -> Callable[[RunId], Awaitable[None]]:
        """Return the work of a dispatcher, with log lines that name the run."""
        return with_run_context(work)

    def _begin_traces(self, opened: AsyncExitStack) -> Watcher:
        try:
            from treadle.telemetry.traces import create_exporter
        except ModuleNotFoundError as error:
            raise UsageError(
                f"Traces are enabled, and {error.name} is not installed. Install it with pip install "
                "'treadle[telemetry]', or unset the OTEL_ variables."
            ) from None
        traces = create_exporter(os.environ, __version__, self._settings.contents)
        opened.push_async_callback(traces.close)
        return traces

    def _begin_log(self, opened: AsyncExitStack) -> None:
        root, treadle = logging.getLogger(), logging.getLogger("treadle")
        lines = JsonLogFormatter(self._vault, self._runs)
        handlers: list[logging.Handler] = []
        if self._settings.log_json:
            handlers.append(logging.StreamHandler(sys.stderr))
            for handler in [each for each in root.handlers if _writes_to_terminal(each)]:
                root.removeHandler(handler)
                opened.callback(root.addHandler, handler)
        if self._settings.log_file:
            handlers.append(self._log_file())
        for handler in handlers:
            handler.setFormatter(lines)
            root.addHandler(handler)
            opened.callback(handler.close)
            opened.callback(root.removeHandler, handler)
        if treadle.level == logging.NOTSET:
            treadle.setLevel(logging.INFO)
            opened.callback(treadle.setLevel, logging.NOTSET)

    def _log_file(self) -> logging.Handler:
        path = self._home.ensure() / "logs" / LOG_FILE
        try:
            return PrivateLogFile(path)
        except OSError as error:
            raise ConfigError(
                f"{path}: the log cannot be written: {error.strerror}; check its permissions"
            ) from None


def _writes_to_terminal(handler: logging.Handler) -> bool:
    """Return whether a handler writes to a stream and not to a file."""
    return isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler)
