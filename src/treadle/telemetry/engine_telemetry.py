"""Metrics, the log and traces of an engine. An embedded engine has none of them unless the program enables them."""

import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from treadle.domain.errors import UsageError
from treadle.domain.ids import RunId
from treadle.domain.version import VERSION
from treadle.ports.clock import Clock
from treadle.ports.journal import Journal, Runs
from treadle.ports.vault import Vault
from treadle.telemetry.event_watch import Watch, Watcher
from treadle.telemetry.log_setup import install_log
from treadle.telemetry.logs import JsonLogFormatter, RunLog, with_run_context
from treadle.telemetry.metrics import MetricsWatcher
from treadle.telemetry.settings import Telemetry

PAGE_EVENTS = 500


class EngineTelemetry:
    """The telemetry of one engine, each time it is opened."""

    def __init__(
        self,
        settings: Telemetry,
        prepare_home: Callable[[], Path],
        list_breakers: Callable[[], list[tuple[str, str, str]]],
        vault: Vault,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._prepare_home = prepare_home
        self._vault = vault
        self._runs = RunLog()
        self.metrics = MetricsWatcher(clock, list_breakers) if settings.metrics else None

    def report_connections(self, list_states: Callable[[], list[tuple[str, str]]]) -> None:
        """Add the states of connections to MCP servers, by name, to the metrics."""
        if self.metrics is not None:
            self.metrics.connections = list_states

    async def begin(self, journal: Journal, runs: Runs, opened: AsyncExitStack, shared: bool = False) -> Watch:
        """Return the observer of the commits of this process. It ends when `opened` is closed.

        On a shared database, runs that this process does not work on are counted by other processes."""
        watchers: list[Watcher] = []
        if self.metrics is not None:
            for record in () if shared else await runs.list_unfinished():
                self.metrics.adopt(record.origin.run_id, record.status)
            watchers.append(self.metrics)
        if self._settings.log_file or self._settings.log_json:
            formatter = JsonLogFormatter(self._vault, self._runs, self._settings.process)
            install_log(opened, self._settings, self._prepare_home, formatter)
            watchers.append(self._runs)
        if self._settings.traces:
            watchers.append(self._begin_traces(opened))
        watch = Watch(watchers, lambda run_id, after: journal.read(run_id, after, PAGE_EVENTS))
        opened.push_async_callback(watch.close)
        return watch

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
        traces = create_exporter(os.environ, VERSION, self._settings.contents, self._settings.processor)
        opened.push_async_callback(traces.close)
        return traces
