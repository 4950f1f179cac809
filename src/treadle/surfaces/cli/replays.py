"""`treadle runs replay`: an old run through the code of today."""

import os
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from treadle.bootstrap.replay import open_service_with_tools_readonly
from treadle.config.home import Home
from treadle.domain.ids import RunId
from treadle.operations.replays import Replayed
from treadle.surfaces.cli.terminal import columns, cut, likes_colour, one_line, print_json

SAME, DIFFERENT, UNKNOWN = 0, 1, 3
GONE, COME = "31", "32"


async def replay_run(run_id: str, json: bool) -> int:
    async with open_service_with_tools_readonly(Home.from_environment(os.environ)) as service:
        replayed = await service.replay(RunId(run_id))
    if json:
        print_json(replayed)
    else:
        for line in _lines(replayed):
            print(line)
    return DIFFERENT if replayed.divergence else UNKNOWN if replayed.cannot else SAME


def _lines(replayed: Replayed) -> Iterator[str]:
    run_id, parted = replayed.run_id, replayed.divergence
    if parted is None:
        count = f"{replayed.same} of {replayed.events} events are the same today"
        yield f"{run_id}: {count}" + (
            f". The rest cannot be replayed: {replayed.cannot}" if replayed.cannot else ""
        )
        return
    yield f"{run_id} parts from its record at event {parted.sequence}; the {replayed.same} before it are the same"
    if parted.type != parted.today_type:
        yield from _pair(f"{parted.type} {_json(parted.recorded)}", f"{parted.today_type} {_json(parted.today)}")
    else:
        yield f"  {parted.type}"
        for each in parted.differences:
            yield f"  {each.path}"
            yield from _pair(_json(each.recorded), _json(each.today))
    if parted.request_differs is not None:
        told = ", ".join(parted.request_differs)
        yield f"  of the request itself would differ: {told}" if told else "  the request itself would be the same"


def _json(value: Any) -> str:
    return "" if value is None else msgspec.json.encode(value).decode()


def _pair(recorded: str, today: str) -> Iterator[str]:
    yield coloured(f"  - recorded  {one_line(recorded)}", GONE)
    yield coloured(f"  + today     {one_line(today)}", COME)


def coloured(line: str, colour: str) -> str:
    """A line for the terminal, cut at its width and in a colour, where it is one and likes that."""
    shown = cut(line, columns() if sys.stdout.isatty() else None)
    return f"\x1b[{colour}m{shown}\x1b[0m" if likes_colour(sys.stdout) else shown
