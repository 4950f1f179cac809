"""The processes on one database, each restarted as soon as it has ended, and the faults that hit them."""

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.stores.postgres.servers import control, start

from treadle.domain.errors import StoreError
from treadle.stores.postgres.connection import DRIVER_ERRORS, connect

TREADLE = str(Path(sys.executable).with_name("treadle"))
START_SECONDS = 60.0
RESTART_PAUSE_SECONDS = 0.1
HELD_RUNS = "SELECT run_id, epoch FROM runs WHERE worker LIKE $1"
RETRY_MESSAGES = "Flush failed, requeuing"
"""Log messages of PgQueuer, with a traceback, about jobs that it retries when the database is back."""
INSPECT_AFTER_SECONDS = (0.1, 1.0)
"""When the runs of a killed process are inspected: its last writes may be committed a moment later."""

Restart = Callable[[str], Awaitable[None]]
"""Restarts the database: `fast`, as an administrator does, or `immediate`, as a crash does."""


@dataclass(slots=True)
class ProcessHit:
    """A worker was killed or stopped at this time while it owned these runs, by their epochs."""

    at: float
    name: str
    held: dict[str, int] = field(default_factory=dict[str, int])


class Member:
    """One process. Whatever ends it, it is restarted, as by systemd."""

    def __init__(
        self,
        name: str,
        command: list[str],
        environment: Mapping[str, str],
        folder: Path,
        changed: Callable[[], None],
    ) -> None:
        self.name = name
        self._changed = changed
        """Called when the process starts or ends."""
        self.command = command
        self.process: asyncio.subprocess.Process | None = None
        self.told: dict[str, Any] = {}
        """Its output when it was first ready."""
        self.stopped = False
        self.by_itself: list[str] = []
        """How it ended without being killed."""
        self.log = folder / f"{name}.log"
        self._environment = environment
        self.badly: list[str] = []
        """How it ended after a stop request, if not as it should."""
        self._killed: set[int] = set()
        self._told_to_stop: set[int] = set()
        self._up = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._keeping = asyncio.create_task(self._keep())
        async with asyncio.timeout(START_SECONDS):
            await self.is_up()

    async def end(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait({self._keeping})
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    @property
    def works(self) -> bool:
        return self._up.is_set() and not self.stopped

    async def is_up(self) -> None:
        """Wait until it has reported that it is ready."""
        await self._up.wait()

    def kill(self) -> int | None:
        """Kill it now, and return its process id, or None if it is not running."""
        process = self.process
        if process is None or process.returncode is not None:
            return None
        self._killed.add(process.pid)
        with suppress(ProcessLookupError):
            process.kill()
        return process.pid

    def tell_to_stop(self) -> bool:
        """Tell it to stop, as for an upgrade. Return whether it was running."""
        if self.process is None or not self._up.is_set():
            return False
        self._told_to_stop.add(self.process.pid)
        self.process.terminate()
        return True

    async def _keep(self) -> None:
        while True:
            with self.log.open("a") as log:
                self.process = await asyncio.create_subprocess_exec(
                    *self.command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=log,
                    env={**os.environ, **self._environment},
                )
            assert self.process.stdout is not None
            if said := await self.process.stdout.readline():
                self.told = self.told or json.loads(said)
                self._up.set()
                self._changed()
            code = await self.process.wait()
            self._up.clear()
            self._changed()
            self._take_note(self.process.pid, code)
            await asyncio.sleep(RESTART_PAUSE_SECONDS)

    def _take_note(self, pid: int, code: int) -> None:
        if pid in self._killed:
            return
        said = f"{self.name} ended with {code}: {_last_line(self.log)}"
        if pid not in self._told_to_stop:
            self.by_itself.append(said)
        elif code != 0:
            self.badly.append(said)


class Cluster:
    """Workers and servers of one home on one database."""

    def __init__(self, url: str, environment: Mapping[str, str], folder: Path, treadle: tuple[str, ...]) -> None:
        self.url = url
        self.workers: list[Member] = []
        self.servers: list[Member] = []
        self.blows: list[ProcessHit] = []
        self.kills: list[tuple[float, str]] = []
        self.told_to_stop: list[tuple[float, str]] = []
        self.database_away = False
        self.changes: list[tuple[float, bool]] = []
        """Whether any worker could take over a run, from each of these times on."""
        compiled = {"PYTHONDONTWRITEBYTECODE": ""}  # a restarted process need not compile again
        self._environment = {**environment, **compiled, "TREADLE_DATABASE_URL": url}
        self._folder = folder
        self._treadle = treadle
        self._looking: set[asyncio.Task[None]] = set()

    @property
    def members(self) -> list[Member]:
        return [*self.workers, *self.servers]

    @property
    def token(self) -> str:
        return self.servers[0].told["token"]

    @property
    def doors(self) -> list[str]:
        """Return the URLs of the servers, which do not change when they restart."""
        return [server.told["url"] for server in self.servers]

    async def start(self, workers: int, servers: int, concurrency: int) -> None:
        for number in range(servers):  # one after the other: the first prints the token
            server = self._member(f"server-{number}", "serve", "--no-workers", "--json", "--port", "0")
            self.servers.append(server)
            await server.start()
            server.command[-1] = server.told["url"].rpartition(":")[2]
        for number in range(workers):
            many = ("--concurrency", str(concurrency))
            self.workers.append(self._member(f"worker-{number}", "worker", "--json", *many))
        await asyncio.gather(*(worker.start() for worker in self.workers))

    async def start_group(self, processes: int) -> None:
        """Start one server with several processes, which execute the runs too."""
        server = self._member("server-0", "serve", "--processes", str(processes), "--json", "--port", "0")
        self.servers.append(server)
        await server.start()
        self.changed()

    def kill_process(self, pid: int) -> None:
        """Kill a process of the server."""
        os.kill(pid, signal.SIGKILL)
        self.kills.append((time.time(), f"process {pid}"))
        self._strike(f"process {pid}", pid)

    async def end(self) -> None:
        await asyncio.gather(*(member.end() for member in self.members))
        await self.looked()

    async def looked(self) -> None:
        """Wait until the runs of all killed processes have been inspected."""
        if self._looking:
            await asyncio.wait(self._looking)

    def kill_one(self, chance: Random) -> None:
        """Kill a random process."""
        self.kill(chance.choice([member for member in self.members if not member.stopped]))

    def kill(self, member: Member) -> None:
        pid = member.kill()
        if pid is not None:
            self.kills.append((time.time(), member.name))
            if member in self.workers:
                self._strike(member.name, pid)

    def tell_one_to_stop(self, chance: Random) -> None:
        """Tell a random process to stop: it releases its runs, and others continue at once."""
        member = chance.choice([member for member in self.members if not member.stopped])
        if member.tell_to_stop():
            self.told_to_stop.append((time.time(), member.name))

    async def stop_one(self, chance: Random, seconds: float) -> None:
        """Stop a worker for this long, and let it continue: it does not know what happened meanwhile."""
        worker = chance.choice(self.workers)
        await worker.is_up()
        assert worker.process is not None
        worker.stopped = True
        self.changed()
        worker.process.send_signal(signal.SIGSTOP)
        self._strike(f"{worker.name}, stopped", worker.process.pid)
        await asyncio.sleep(seconds)
        worker.process.send_signal(signal.SIGCONT)
        worker.stopped = False
        self.changed()

    def changed(self) -> None:
        """Record which processes are running now."""
        there = not self.database_away and any(worker.works for worker in self.workers or self.servers)
        self.changes.append((time.time(), there))

    async def restart_database(self, restart: Restart, how: str) -> None:
        self.database_away = True
        self.changed()
        await restart(how)
        self.database_away = False
        self.changed()

    async def ask(self, statement: str, *values: object) -> list[Any]:
        """Return the result of a statement as soon as the database is available."""
        while True:
            try:
                connection = await connect(self.url)
                try:
                    return await connection.fetch(statement, *values)
                finally:
                    await connection.close()
            except (StoreError, *DRIVER_ERRORS):
                await asyncio.sleep(0.1)

    def unforeseen(self) -> list[str]:
        """Return the unexpected errors that the processes have logged."""
        return [
            f"{member.name}: {error}"
            for member in self.members
            for error in find_unexpected_errors(_read_lines(member.log))
        ]

    def _member(self, name: str, command: str, *arguments: str) -> Member:
        words = [*self._treadle, command, "--log-format", "json", *arguments]
        return Member(name, words, self._environment, self._folder, self.changed)

    def _strike(self, name: str, pid: int) -> None:
        blow = ProcessHit(time.time(), name)
        self.blows.append(blow)
        task = asyncio.create_task(self._look(blow, pid))
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)

    async def _look(self, blow: ProcessHit, pid: int) -> None:
        """Record the runs that it owned. The name of a worker contains its process id."""
        for pause in INSPECT_AFTER_SECONDS:
            await asyncio.sleep(pause)
            for run_id, epoch in await self.ask(HELD_RUNS, f"%:{pid}:%"):
                blow.held[run_id] = epoch


def _read_lines(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines() if log.exists() else []


def find_unexpected_errors(lines: Sequence[str]) -> list[str]:
    """Return the errors that were logged with a traceback, and those that ended a process."""
    found = list[str]()
    for line in lines:
        logged: dict[str, str] = {}
        with suppress(ValueError):  # plain text, or a line cut off when its process was killed
            logged = json.loads(line) if line.startswith("{") else {}
        if "error" in logged and not logged["message"].startswith(RETRY_MESSAGES):
            found.append(f"{logged['message']}: {logged['error'].splitlines()[-1]}")
        elif not logged and ("failed that should not" in line or "Traceback" in line):
            found.append(line)
    return found


def _last_line(log: Path) -> str:
    return next(reversed(_read_lines(log)), "it has said nothing")


@asynccontextmanager
async def open_cluster(
    url: str, environment: Mapping[str, str], folder: Path, treadle: tuple[str, ...] = (TREADLE,)
) -> AsyncGenerator[Cluster, None]:
    """Open the cluster. None of its processes is left at the end of the block."""
    made = Cluster(url, environment, folder, treadle)
    try:
        yield made
    finally:
        await made.end()


# ── The database ───────────────────────────────────────────────────────────────────────────────────


@contextmanager
def open_postgres() -> Generator[tuple[str, Restart], None, None]:
    """Start a server of its own that waits for the disk. Yield its URL, and how to restart it."""
    folder = Path(tempfile.mkdtemp(prefix="chaos"))
    server = start(folder / "data", settings="")
    log = str(folder / "data" / "log")

    async def restart(how: str) -> None:
        await asyncio.to_thread(control, server, "-m", how, "-l", log, "restart")
        server.ensure_postgres_running()  # record the new process, to stop it in the end

    try:
        yield server.get_uri(), restart
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
