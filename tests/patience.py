"""Time limits after which tests report a hang, and helpers that wait for a condition."""

import asyncio
import gc
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

HANG_SECONDS = 120.0
"""Only a hang takes this long: it is generous because the machine may be busy with other things."""


async def until(seen: Callable[[], bool]) -> None:
    """Return as soon as the condition holds. Raise TimeoutError after HANG_SECONDS."""
    async with asyncio.timeout(HANG_SECONDS):
        while not seen():  # noqa: ASYNC110 -- nothing announces it
            await asyncio.sleep(0.01)


@contextmanager
def without_garbage_collection() -> Generator[None]:
    """Disable garbage collection: it would visit the objects of earlier tests and count as work."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def cpu_seconds(work: Callable[[], object], times: int = 5) -> float:
    """Return the CPU time of this thread for the cheapest of several tries: other processes do not count."""
    best = float("inf")
    with without_garbage_collection():
        for _ in range(times):
            began = time.thread_time()
            work()
            best = min(best, time.thread_time() - began)
    return best


LINEAR = 9.0
"""More than this is not linear growth, whatever else the machine does."""


def growth(work: Callable[[int], object], size: int, times: int = 6) -> float:
    """Return how many times as much CPU time work of four times the size takes: about 4 where it is linear, about
    16 where it is quadratic. It is tried again only if it does not look linear: then the cheapest of several tries
    counts, and the tries of both sizes take turns."""
    small, large = float("inf"), float("inf")
    for _ in range(times):
        small = min(small, cpu_seconds(lambda: work(size), 1))
        large = min(large, cpu_seconds(lambda: work(4 * size), 1))
        if large < 0.8 * LINEAR * small:
            break
    return large / small


def processor_seconds(times: int = 5) -> float:
    """Return the CPU time that this processor takes for a fixed piece of work, as a unit for other work: about 5 ms
    in 2020."""
    return cpu_seconds(lambda: sum(number * number % 7 for number in range(60_000)), times)
