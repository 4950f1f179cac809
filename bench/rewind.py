"""Recording of files: what a command costs in a folder with 20,000 files, and how long the event loop is kept from
other work meanwhile. Processor time decides: other programs of the machine do not change it.

Run: python -m bench.rewind"""

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

from treadle.domain.file_versions import ChangingCall
from treadle.domain.ids import RunId
from treadle.file_versions.home_store import HomeFileVersions
from treadle.system.clock import SystemClock

FILES, FOLDERS = 20_000, 400
COMMANDS = 20
MAX_COMMAND_SECONDS = 0.25
MAX_STALL_SECONDS = 0.05
RUN = RunId("run_bench")


def fill(folder: Path) -> None:
    for number in range(FOLDERS):
        below = folder / f"package{number % 20}" / f"module{number}"
        below.mkdir(parents=True)
        for file in range(FILES // FOLDERS):
            (below / f"file{file}.py").write_text(f"value = {number * file}\n" * 40)


async def watch_loop(stalls: list[float]) -> None:
    """Record how late the event loop wakes a task."""
    while True:
        before = time.perf_counter()
        await asyncio.sleep(0.001)
        stalls.append(time.perf_counter() - before - 0.001)


async def measure(place: Path) -> bool:
    folder, home = place / "project", place / "home"
    fill(folder)
    store = HomeFileVersions(home / "file_versions", (home,), SystemClock())
    started = time.perf_counter()
    async with store.watch(ChangingCall(RUN, RUN, "first", str(folder), 0.0)):
        pass
    print(f"first scan, which stores {FILES:,} files: {time.perf_counter() - started:.1f} s")
    stalls: list[float] = []
    watcher = asyncio.create_task(watch_loop(stalls))
    times: list[float] = []
    used = time.process_time()
    for number in range(COMMANDS):
        started = time.perf_counter()
        async with store.watch(ChangingCall(RUN, RUN, f"call_{number}", str(folder), float(number))):
            began = time.perf_counter()
            (folder / "package0" / "module0" / "file0.py").write_text(f"changed = {number}\n")
            own = time.perf_counter() - began
        times.append(time.perf_counter() - started - own)
    used = (time.process_time() - used) / COMMANDS
    watcher.cancel()
    found = await store.read([RUN])
    await store.close()
    median, stall = statistics.median(times), sorted(stalls)[int(len(stalls) * 0.99)]
    print(
        f"per command: {used * 1000:.0f} ms of processor time; until it could begin and after it had ended: "
        f"median {median * 1000:.0f} ms, worst {max(times) * 1000:.0f} ms"
    )
    print(f"the event loop was late by {stall * 1000:.1f} ms (99th percentile)")
    print(f"changes found: {len(found.changes)} of {COMMANDS}")
    is_met = used <= MAX_COMMAND_SECONDS and stall <= MAX_STALL_SECONDS and len(found.changes) == COMMANDS
    print(f"bar, at most {MAX_COMMAND_SECONDS * 1000:.0f} ms of processor time: {'met' if is_met else 'MISSED'}")
    return is_met


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as place:
        return 0 if asyncio.run(measure(Path(place).resolve())) else 1


if __name__ == "__main__":
    sys.exit(main())
