"""Measures the memory of a page that stays open: `python -m bench.dashboard_heap [--minutes 30]`. It needs chromium
and `make web`.

A run writes 50 tokens per second and calls a tool every half minute while its page is open. Prints the heap of the
page after garbage collection as it grows. Ends with status 1 if it is above the bar at any time."""

import argparse
import asyncio
import itertools
import math
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from playwright.sync_api import CDPSession
from tests.e2e.dashboard import Board, Visitor, open_browser
from tests.fake_endpoint import DONE, delta, fragment, usage

from bench.bars import Row, judge
from bench.dashboard import TimedModel

TOKENS_PER_SECOND = 50
REPLY_SECONDS = 30.0
"""How long each reply takes."""
MEASUREMENTS = 30
HEAP_BAR_MB = 80.0


class SteadyModel(TimedModel):
    """An endpoint that writes tokens for a number of minutes, in replies with a tool call each, and one without."""

    def __init__(self, minutes: float) -> None:
        self._replies = math.ceil(minutes * 60 / REPLY_SECONDS)
        self._numbers = itertools.count(1)
        super().__init__()

    async def write_reply(self, writer: asyncio.StreamWriter) -> None:
        number = next(self._numbers)
        for word in range(int(REPLY_SECONDS * TOKENS_PER_SECOND)):
            writer.write(
                delta(content=f"w{word} " if word % 60 else f"\n\n## Part {number}.{word}\n\n- **w{word}** ")
            )
            await writer.drain()
            await asyncio.sleep(1 / TOKENS_PER_SECOND)
        if number < self._replies:
            calls = [fragment(0, f"c{number}", "glob", f'{{"pattern": "*{number}"}}')]
            writer.write(delta(tool_calls=calls) + delta("tool_calls") + usage() + DONE)
        else:
            writer.write(delta("stop") + usage() + DONE)


def measure(folder: Path, minutes: float) -> Iterator[Row]:
    board, model = Board(folder), SteadyModel(minutes)
    config = board.shell.home / "config.yaml"
    try:
        config.write_text(config.read_text().replace(board.model.endpoint.url, model.url))
        with open_browser() as browser:
            visitor = Visitor(browser.new_context(viewport={"width": 1280, "height": 800}), board)
            visitor.sign_in()
            limits = {"max_steps": None, "deadline": None, "stuck_steps": 0}
            run = board.run("Write for a while.", wait=0, overrides={"limits": limits})
            visitor.see(f"/runs/{run['run_id']}")
            visitor.page.get_by_text("Part 1.0").first.wait_for()
            session = visitor.context.new_cdp_session(visitor.page)
            began = time.monotonic()
            for number in range(1, MEASUREMENTS + 1):
                pause = began + minutes * 60 * number / MEASUREMENTS - time.monotonic()
                visitor.page.wait_for_timeout(max(0.0, pause) * 1000)
                yield Row(
                    f"heap after {minutes * number / MEASUREMENTS:.1f} min", read_heap(session), HEAP_BAR_MB, "MB"
                )
                found = board.call("GET", f"/v1/runs/{run['run_id']}")
                if found["outcome"] not in (None, "completed"):
                    raise SystemExit(f"The run ended as {found['outcome']}: {found['result']['reason']}")
            nodes = visitor.page.evaluate("document.getElementsByTagName('*').length")
            yield Row("nodes of the page", nodes, math.inf, "nodes")
            yield Row("complaints of the browser", len(visitor.complaints), 0, "messages")
    finally:
        board.server.kill()
        board.model.close()


def read_heap(session: CDPSession) -> float:
    """Return the size of what a page holds, in MB."""
    untyped = cast("Any", session)  # the library does not type its answers
    untyped.send("HeapProfiler.collectGarbage")
    return float(untyped.send("Runtime.getHeapUsage")["usedSize"]) / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.dashboard_heap", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return judge(measure(Path(folder), options.minutes))


if __name__ == "__main__":
    sys.exit(main())
