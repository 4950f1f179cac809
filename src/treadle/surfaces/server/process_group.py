"""Several processes of `treadle serve` behind one port.

The process that the user starts serves nothing itself. It holds the listening sockets, one for each process, so
that no connection is refused while a process is replaced; it starts the processes, and replaces those that end."""

import asyncio
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from treadle.domain.errors import InvalidState, TreadleError, UsageError
from treadle.surfaces.http.shared_board import create_board_file, open_board
from treadle.surfaces.http.siblings import LIST_FILE, ServerProcess
from treadle.surfaces.server.group_log import GroupLog
from treadle.surfaces.server.listener import BALANCES_CONNECTIONS, open_shared_port
from treadle.surfaces.server.messages import (
    End,
    FromProcess,
    Leave,
    Listen,
    Ready,
    ServerOptions,
    ServerSetup,
    StartRefused,
    ToProcess,
    open_channel,
    read_messages,
    send_message,
)
from treadle.surfaces.terminal.process import Stop
from treadle.system.helper_process import start_server_process

MODULE = "treadle.surfaces.server.member"
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.5, 30.0
STABLE_SECONDS = 60.0
"""A process that lived this long is replaced without a longer pause than the first."""
START_ATTEMPTS = 3
"""How often a process is started that ends before it is ready, if no other process serves."""
REPLACE_SECONDS = 60.0
"""How long the replacement in a restart may take to be ready."""
END_SECONDS = 30.0
"""How long processes may take to end after they have released their runs."""
REGIONS_PER_PROCESS = 4
"""Regions of the shared board: processes that were replaced keep theirs until they have ended."""
UNEVEN = (
    "This system does not distribute connections over processes: clients that connect at the same time may all be "
    "served by one process."
)


class StartFailed(InvalidState):
    """No process of the server could be started."""


class MemberProcess:
    """A process of the group, as the group sees it."""

    def __init__(self, number: int, region: int) -> None:
        self.number = number
        self.region = region
        self.instance = f"{number}-{secrets.token_hex(4)}"
        self.started_at = datetime.now(UTC)
        self.is_leaving = False
        self.readiness: asyncio.Future[Ready | None] = asyncio.get_running_loop().create_future()
        """Its report that it is ready; None if it ended before that."""
        self.failure: StartRefused | None = None
        self.ended = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None

    @property
    def process_id(self) -> int:
        return 0 if self._process is None else self._process.pid

    @property
    def is_ready(self) -> bool:
        return self.readiness.done() and self.readiness.result() is not None and not self.ended.is_set()

    async def run(self, setup: ServerSetup, log: GroupLog) -> int:
        """Start the process, and return its exit code when it has ended."""
        own, theirs = socket.socketpair()
        with theirs:
            descriptors = (theirs.fileno(), setup.board, *setup.listeners)
            self._process = await start_server_process(MODULE, str(theirs.fileno()), pass_fds=descriptors)
        reader, self._writer = await open_channel(own)
        try:
            self._writer.write(msgspec.json.encode(setup) + b"\n")
            assert self._process.stdout is not None
            copying = asyncio.create_task(log.pass_on(self.number, self._process.stdout))
            async for line in read_messages(reader):
                match msgspec.json.decode(line, type=FromProcess):
                    case StartRefused() as failed:
                        self.failure = failed
                    case ready:
                        self.readiness.set_result(ready)
            code = await self._process.wait()
            with suppress(TimeoutError):  # a command of a run may hold the pipe open
                await asyncio.wait_for(copying, 1.0)
            return code
        finally:
            self._writer.close()
            self.ended.set()
            if not self.readiness.done():
                self.readiness.set_result(None)

    async def tell(self, message: ToProcess) -> None:
        if self._writer is not None:
            await send_message(self._writer, message)

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()


class _Slot:
    """The place of a process, which its replacements take."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.current: MemberProcess | None = None
        self.is_replacing = False
        """Whether a replacement starts while the current process continues."""
        self.restarts = 0
        self.pause = FIRST_PAUSE_SECONDS


class ProcessGroup:
    """The processes of one server."""

    def __init__(self, options: ServerOptions, processes: int, home: Path, drain_seconds: float) -> None:
        self._options = options
        self._slots = [_Slot(number) for number in range(1, processes + 1)]
        self._drain_seconds = drain_seconds
        self._log = GroupLog(home, json=options.log_json)
        self._members: set[MemberProcess] = set()
        """All processes that have not ended."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_ending = False
        self._failed: asyncio.Future[TreadleError] = asyncio.get_running_loop().create_future()
        """Why the server cannot continue."""
        self._restarting = asyncio.Lock()
        self._folder = Path(tempfile.mkdtemp(prefix="treadle-", dir=os.environ.get("XDG_RUNTIME_DIR")))
        regions = REGIONS_PER_PROCESS * processes
        self._board_file = create_board_file(regions)
        self._board = open_board(self._board_file, 0)
        self._free_regions = list(range(regions))
        self._listeners = open_shared_port(options.host, options.port, processes)
        self._options = msgspec.structs.replace(options, port=self._listeners[0].getsockname()[1])

    @property
    def port(self) -> int:
        return self._options.port

    async def start(self) -> Ready | None:
        """Start all processes. Return the report of the first one, or None if the group was ended before that.

        Raise TreadleError if they cannot be started."""
        if not BALANCES_CONNECTIONS:
            self._log.report(UNEVEN)
        first, *others = self._slots
        ready = await self._fill(first, is_first=True)
        found = await asyncio.gather(*(self._fill(slot) for slot in others))
        if self._failed.done():
            raise self._failed.result()
        return ready if all(found) else None

    async def wait_for_failure(self) -> None:
        """Wait until the server cannot continue, and raise TreadleError."""
        raise await asyncio.shield(self._failed)

    def restart(self) -> None:
        """Replace all processes, one after the other, without refusing a connection."""
        self._start_task(self._restart())

    async def end(self) -> None:
        """End all processes as after SIGTERM."""
        self._is_ending = True
        for member in tuple(self._members):
            await member.tell(End())
        try:
            async with asyncio.timeout(self._drain_seconds + END_SECONDS):
                while self._members:
                    await next(iter(self._members)).ended.wait()
                    await asyncio.sleep(0)
        except TimeoutError:
            self._log.report("Some processes did not end in time and were killed. Other workers resume their runs.")
            self.kill()

    def kill(self) -> None:
        """End all processes at once. The journal survives that."""
        for member in self._members:
            member.kill()

    async def close(self) -> None:
        self.kill()
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for listener in self._listeners:
            listener.close()
        os.close(self._board_file)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._log.close()

    # ── Processes ──

    async def _fill(self, slot: _Slot, *, is_first: bool = False) -> Ready | None:
        """Start processes in a slot until one is ready, and return its report. Return None if the group ends."""
        for attempt in range(1, 1_000_000):
            if self._is_ending or self._failed.done():
                return None
            member = self._launch(slot, is_first=is_first)
            ready = await member.readiness
            if ready is not None:
                slot.current = member
                await self._update()
                return ready
            if self._is_ending:
                return None
            is_alone = not any(other.current is not None for other in self._slots)
            is_final = member.failure is not None and member.failure.is_usage_error
            if is_alone and (is_final or attempt >= START_ATTEMPTS):
                self._fail(member, attempt)
                return None
            await self._pause(slot, f"Process {slot.number} could not be started{_explain(member)}")
        return None

    def _fail(self, member: MemberProcess, attempts: int) -> None:
        if self._failed.done():
            return
        failure = member.failure
        if failure is None:
            times = "once" if attempts == 1 else f"{attempts} times"
            what = f"Process {member.number} ended {times} before it was ready. Its output is above."
            self._failed.set_result(StartFailed(what))
        else:
            error = UsageError if failure.is_usage_error else StartFailed
            self._failed.set_result(error(failure.message))

    def _launch(self, slot: _Slot, *, is_first: bool = False) -> MemberProcess:
        member = MemberProcess(slot.number, self._take_region())
        self._members.add(member)
        setup = ServerSetup(
            options=self._options
            if is_first
            else msgspec.structs.replace(self._options, wants_link=False, new=False),
            number=slot.number,
            processes=len(self._slots),
            instance=member.instance,
            folder=str(self._folder),
            listeners=tuple(listener.fileno() for listener in self._listeners),
            board=self._board_file,
            region=member.region,
            search_path=_list_search_path(),
            is_first=is_first,
        )
        self._start_task(self._watch(slot, member, setup))
        return member

    def _take_region(self) -> int:
        """Return a free region of the board. If there is none, a process that was replaced ends now."""
        if not self._free_regions:
            oldest = min((each for each in self._members if each.is_leaving), key=lambda each: each.started_at)
            oldest.kill()
            oldest.is_leaving = False
            self._members.discard(oldest)
            self._free_region(oldest)
        return self._free_regions.pop()

    def _free_region(self, member: MemberProcess) -> None:
        if member.region not in self._free_regions:
            self._board.clear(member.region)
            self._free_regions.append(member.region)

    async def _watch(self, slot: _Slot, member: MemberProcess, setup: ServerSetup) -> None:
        """Run a process until it ends, and replace it if it was to continue."""
        code = await member.run(setup, self._log)
        if member in self._members:
            self._members.discard(member)
            self._free_region(member)
        (self._folder / f"{member.instance}.sock").unlink(missing_ok=True)
        if slot.current is not member:
            await self._update()
            return
        slot.current = None
        await self._update()
        if self._is_ending:
            return
        slot.restarts += 1
        if slot.is_replacing:
            return
        lived = (datetime.now(UTC) - member.started_at).total_seconds()
        if lived >= STABLE_SECONDS:
            slot.pause = FIRST_PAUSE_SECONDS
        await self._pause(slot, f"Process {slot.number} (pid {member.process_id}) {_explain_end(code)}")
        await self._fill(slot)

    async def _pause(self, slot: _Slot, what: str) -> None:
        self._log.report(f"{what}. It is replaced in {slot.pause:g} s.")
        await asyncio.sleep(slot.pause)
        slot.pause = min(2 * slot.pause, MAX_PAUSE_SECONDS)

    async def _restart(self) -> None:
        async with self._restarting:
            self._log.report("Restarting: each process is replaced when its replacement is ready.")
            for slot in self._slots:
                if slot.current is None:  # it is being replaced already
                    continue
                slot.is_replacing = True
                is_replaced = await self._replace(slot)
                slot.is_replacing = False
                if not is_replaced:
                    self._start_task(self._refill(slot))
                    return
            self._log.report("All processes have been replaced.")

    async def _refill(self, slot: _Slot) -> None:
        """Start a process in a slot whose process has ended meanwhile."""
        if slot.current is None:
            await self._fill(slot)

    async def _replace(self, slot: _Slot) -> bool:
        """Replace a process. Return False if its replacement was not ready in time."""
        member = self._launch(slot)
        try:
            ready = await asyncio.wait_for(asyncio.shield(member.readiness), REPLACE_SECONDS)
        except TimeoutError:
            member.kill()
            ready = None
        if ready is None:
            self._log.report(
                f"The restart has stopped: the replacement of process {slot.number} was not ready"
                f"{_explain(member)}. The processes that were not replaced continue."
            )
            return False
        before, slot.current = slot.current, member
        slot.pause = FIRST_PAUSE_SECONDS
        if before is not None:
            before.is_leaving = True
            await before.tell(Leave())
        await self._update()
        return True

    async def _update(self) -> None:
        """Tell the processes about each other, and which sockets no process accepts from."""
        self._write_list()
        present = [slot for slot in self._slots if slot.current is not None]
        if not present or not BALANCES_CONNECTIONS:
            return
        missing = [slot.number for slot in self._slots if slot.current is None]
        for place, slot in enumerate(present):
            assert slot.current is not None
            await slot.current.tell(Listen(tuple(missing[place :: len(present)])))

    def _write_list(self) -> None:
        slots = {slot.number: slot for slot in self._slots}
        listed = tuple(
            ServerProcess(
                number=each.number,
                instance=each.instance,
                process_id=each.process_id,
                started_at=each.started_at,
                state="leaving" if each.is_leaving else "ready" if each.is_ready else "starting",
                restarts=slots[each.number].restarts,
            )
            for each in sorted(self._members, key=lambda each: (each.number, each.started_at))
        )
        path = self._folder / LIST_FILE
        written = path.with_suffix(".new")
        with suppress(FileNotFoundError):  # the group is being closed
            written.write_bytes(msgspec.json.encode(listed))
            written.replace(path)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


@contextmanager
def handle_hangup(restart: Callable[[], None], stop: Stop) -> Generator[None]:
    """Call `restart` at SIGHUP during the block. To a command at a terminal, the signal says that the terminal is
    gone, and it ends."""
    loop = asyncio.get_running_loop()
    is_at_terminal = any(map(os.isatty, (0, 1, 2)))
    loop.add_signal_handler(signal.SIGHUP, partial(stop.leave, signal.SIGHUP) if is_at_terminal else restart)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


def _explain(member: MemberProcess) -> str:
    return "" if member.failure is None else f": {member.failure.message.rstrip('.')}"


def _explain_end(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"


def _list_search_path() -> tuple[str, ...]:

    return tuple(os.path.abspath(entry) for entry in sys.path if entry)
