"""Measures the dashboard in a browser: `python -m bench.dashboard [--runs N] [--heap MINUTES]`. It needs chromium
and `make web`.

Measures the size of the first load, a run of 10,000 events, the time from commit to screen with 50 runs, and pages
of a list of 100,000 runs with filters and in every order. Counts complaints of the browser and requests to other
origins. `--heap 30` measures only the memory of a page that shows a run with 50 tokens a second for 30 minutes.
Ends with status 1 if a bar is missed."""

import argparse
import asyncio
import gzip
import json
import math
import re
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from playwright.sync_api import Browser, Request
from tests.e2e.dashboard import Board, Visitor, open_browser
from tests.fake_endpoint import DONE, delta, fragment, usage

from bench.bars import Row, judge
from treadle.surfaces.http.assets import FOLDER

EVENTS = 10_000
ACTIVE_RUNS = 50
TOKENS_PER_SECOND = 5
SECONDS = 30
BUNDLE_BAR, OPEN_BAR, NODES_BAR, TASK_BAR, LIST_BAR, LATENCY_BAR = 120.0, 1.5, 1500, 50.0, 300.0, 300.0
FILTERS = (
    "",
    "agent=default",
    "status=completed",
    "status=failed",
    "outcome=completed",
    "outcome=stuck",
    "since=hour",
    "since=month",
    "text=99999",
    "text=nothing",
    "cost=9.5",
    "cost=100",
    "agent=default&status=completed&since=month&cost=1",
    "outcome=completed&text=release&since=week",
    "outcome=stuck&text=nothing&cost=1",
)
ORDERS = tuple(
    f"order={order}{ascending}"
    for order in ("cost", "tokens", "steps", "duration", "score")
    for ascending in ("", "&ascending=true")
)
SORT_BAR = 1000.0
HEAP_BAR = 80.0
HEAP_TOKENS_PER_SECOND = 50
HEAP_REPLY_SECONDS = 30
FOLLOWED = ("", "status=completed", "text=release", "cost=1")
"""Filters of which the following pages are measured too."""
FOLLOWING_PAGES = 3
QUESTION = "Question {} about the release notes of the project"


def bundle_bytes() -> int:
    """Return the gzipped size of what the first page loads: the page, its scripts and its styles."""
    page = (FOLDER / "index.html").read_text()
    files = re.findall(r'(?:src|href)="(/assets/[^"]+)"', page)
    return len(gzip.compress(page.encode())) + sum(
        len(gzip.compress((FOLDER / name[1:]).read_bytes(), 9)) for name in files
    )


def copy_events(database: Path, run_id: str, wanted: int) -> None:
    """Make the journal of a run longer, by repeating its steps before its end."""
    with sqlite3.connect(database) as db:
        (run,) = db.execute("SELECT id FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        rows = db.execute(
            "SELECT event_id, timestamp, type, version, data FROM events WHERE run = ? ORDER BY sequence", (run,)
        ).fetchall()
        head, steps, end = rows[:4], rows[4:-1], rows[-1]
        made = [*head]
        while len(made) < wanted - 1:
            made += steps
        made = [*made[: wanted - 1], end]
        (position,) = db.execute("SELECT max(position) FROM events").fetchone()
        db.execute("DELETE FROM events WHERE run = ?", (run,))
        begin = rows[0][1]
        for number, (event_id, _, type_, version, data) in enumerate(made, 1):
            values = (
                position + number,
                run,
                number,
                f"{event_id}_{number}",
                begin + number / 100,
                type_,
                version,
                data,
            )
            db.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)


def describe_message(number: int) -> bytes:
    """Return the data of the event with the message of a run."""
    message = {"role": "user", "parts": [{"kind": "text", "text": QUESTION.format(number)}]}
    return json.dumps({"message": message}).encode()


def add_runs(database: Path, wanted: int) -> None:
    """Add ended runs to the list, each with a message and a cost."""
    with sqlite3.connect(database) as db:
        (agent,) = db.execute("SELECT agent_id FROM runs LIMIT 1").fetchone()
        (last,) = db.execute("SELECT max(id) FROM runs").fetchone()
        now = time.time()
        db.executemany(
            "INSERT INTO runs (id, run_id, session_id, agent_id, created_at, status, outcome, epoch, owner) "
            "VALUES (?, ?, ?, ?, ?, 'completed', 'completed', 1, 'local')",
            ((last + n, f"run_{n:032x}", f"ses_{n:032x}", agent, now - wanted + n) for n in range(1, wanted + 1)),
        )
        db.executemany(
            "INSERT INTO run_summaries (run, message, cost, tokens, steps, duration_ms) VALUES (?, ?, ?, ?, ?, ?)",
            ((last + n, QUESTION.format(n), n % 1000 / 100, n, 3, n) for n in range(1, wanted + 1)),
        )
        (position,) = db.execute("SELECT max(position) FROM events").fetchone()
        db.executemany(
            "INSERT INTO events VALUES (?, ?, 1, ?, ?, 'user_message', 1, ?)",
            ((position + n, last + n, f"evt_{n:032x}", now, describe_message(n)) for n in range(1, wanted + 1)),
        )


def measure_run(visitor: Visitor, board: Board, run_id: str) -> Iterator[Row]:
    page = visitor.page
    began = time.perf_counter()
    page.goto(f"{board.url}/runs/{run_id}?tab=events")
    page.get_by_text(f"{EVENTS:,} of {EVENTS:,} events").wait_for()
    opened = time.perf_counter() - began
    nodes = page.evaluate("document.getElementsByTagName('*').length")
    longest = page.evaluate(
        """async () => {
            let longest = 0;
            new PerformanceObserver((list) => {
                for (const entry of list.getEntries()) longest = Math.max(longest, entry.duration);
            }).observe({ entryTypes: ['longtask'] });
            const scroller = document.querySelector('.scroller');
            for (let at = 0; at < 120; at++) {
                scroller.scrollTop += 600;
                await new Promise(requestAnimationFrame);
            }
            await new Promise((done) => setTimeout(done, 300));
            return longest;
        }"""
    )
    most = page.evaluate("document.getElementsByTagName('*').length")
    name = f"run of {EVENTS:,} events"
    yield Row(f"{name}: opens", opened, OPEN_BAR, "s")
    yield Row(f"{name}: nodes", max(nodes, most), NODES_BAR, "nodes")
    yield Row(f"{name}: longest task (0: none above 50)", longest, TASK_BAR, "ms")


def measure_lists(visitor: Visitor, board: Board, runs: int) -> Iterator[Row]:
    """Measure pages of the list from the request to the last byte of the response."""
    page = visitor.page

    def is_list(request: Request) -> bool:
        return "/v1/runs?" in request.url

    for query in FILTERS:
        with page.expect_request_finished(is_list) as waited:
            page.goto(f"{board.url}/runs?{query}")
        yield Row(f"{runs:,} runs: {query or 'all'}"[:49], _duration(waited.value), LIST_BAR, "ms")
    for query in ORDERS:
        with page.expect_request_finished(is_list) as waited:
            page.goto(f"{board.url}/runs?{query}")
        yield Row(f"{runs:,} runs: {query}"[:49], _duration(waited.value), SORT_BAR, "ms")
    for query in FOLLOWED:
        with page.expect_request_finished(is_list):
            page.goto(f"{board.url}/runs?{query}")
        for number in range(2, FOLLOWING_PAGES + 2):
            with page.expect_request_finished(is_list) as waited:
                page.get_by_role("button", name="Older").click()
            yield Row(f"page {number}: {query or 'all'}", _duration(waited.value), LIST_BAR, "ms")


def _duration(request: Request) -> float:
    return request.timing["responseEnd"] - request.timing["requestStart"]


def measure_latency(visitor: Visitor, board: Board) -> Iterator[Row]:
    """Start runs that write tokens, and measure from the arrival at the server until the page has drawn them."""
    for number in range(ACTIVE_RUNS - 1):
        board.run(f"stream {number}", wait=0)
    watched = board.run("stream watched", wait=0)
    page = visitor.see(f"/runs/{watched['run_id']}")
    delays = page.evaluate(
        """async (seconds) => {
            const delays = [];
            const seen = new Set();
            const look = () => {
                const text = document.querySelector('[data-live]')?.textContent ?? '';
                for (const found of text.matchAll(/t(\\d+)e/g)) {
                    if (seen.has(found[1])) continue;
                    seen.add(found[1]);
                    delays.push(Date.now() - Number(found[1]));
                }
            };
            look();
            delays.length = 0; // what was written before the page was open
            const all = { childList: true, subtree: true, characterData: true };
            new MutationObserver(look).observe(document.body, all);
            const end = performance.now() + seconds * 1000;
            while (performance.now() < end) await new Promise((done) => setTimeout(done, 100));
            return delays;
        }""",
        SECONDS,
    )
    counted = sorted(delays)
    p50 = counted[len(counted) // 2] if counted else math.inf
    p99 = counted[min(len(counted) - 1, int(len(counted) * 0.99))] if counted else math.inf
    name = f"{ACTIVE_RUNS} runs, {TOKENS_PER_SECOND} tokens/s: model to screen"
    yield Row(f"{name}, p50", p50, LATENCY_BAR, "ms")
    yield Row(f"{name}, p99", p99, LATENCY_BAR, "ms")


class TimedModel:
    """An endpoint that writes tokens with the time of their sending, at a steady pace. Replies end with a tool call
    until a number of seconds has passed."""

    def __init__(
        self, tokens_per_second: int = TOKENS_PER_SECOND, reply_seconds: int = SECONDS + 20, call_seconds: float = 0
    ) -> None:
        self._pace = tokens_per_second
        self._tokens = tokens_per_second * reply_seconds
        self._calls_until = time.monotonic() + call_seconds
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop
        ).result()
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            await reader.readexactly(int(length[1]) if length else 0)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            for _ in range(self._tokens):
                writer.write(delta(content=f"t{time.time() * 1000:.0f}e "))
                await writer.drain()
                await asyncio.sleep(1 / self._pace)
            if time.monotonic() < self._calls_until:
                command = json.dumps({"command": f"echo {time.time()}"})
                call = fragment(0, f"call_{time.time_ns()}", "bash", command)
                writer.write(delta(tool_calls=[call]) + delta("tool_calls") + usage() + DONE)
            else:
                writer.write(delta("stop") + usage() + DONE)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def measure(browser: Browser, folder: Path, runs: int) -> Iterator[Row]:
    """Measure everything, on a server with a long run and a long list."""
    yield Row("first load, gzipped", bundle_bytes() / 1000, BUNDLE_BAR, "kB")
    board = Board(folder)
    run_id = board.run("Which module is the longest? use a tool")["run_id"]
    board.server.stop()
    database = board.shell.home / "treadle.db"
    copy_events(database, run_id, EVENTS)
    add_runs(database, runs)
    timed = TimedModel()
    text = (board.shell.home / "config.yaml").read_text()
    (board.shell.home / "config.yaml").write_text(text.replace(board.model.endpoint.url, timed.url))
    board.server.start()
    try:
        visitor = Visitor(browser.new_context(viewport={"width": 1280, "height": 800}), board)
        visitor.sign_in()
        yield from measure_run(visitor, board, run_id)
        yield from measure_lists(visitor, board, runs)
        yield from measure_latency(visitor, board)
        yield Row("complaints of the browser", len(visitor.complaints), 0, "messages")
        yield Row("requests to other origins", len(visitor.foreign_requests()), 0, "requests")
    finally:
        board.server.kill()
        board.model.close()


def measure_heap(browser: Browser, folder: Path, minutes: float) -> Iterator[Row]:
    """Measure the heap of a page that shows a run which writes all the time."""
    timed = TimedModel(HEAP_TOKENS_PER_SECOND, HEAP_REPLY_SECONDS, minutes * 60)
    board = Board(folder)
    board.server.stop()
    config = board.shell.home / "config.yaml"
    config.write_text(config.read_text().replace(board.model.endpoint.url, timed.url))
    board.server.start()
    try:
        visitor = Visitor(browser.new_context(viewport={"width": 1280, "height": 800}), board)
        visitor.sign_in()
        run = board.run("stream", wait=0, overrides={"limits": {"max_steps": 10_000}})
        page = visitor.see(f"/runs/{run['run_id']}")
        tools = cast("Any", page.context.new_cdp_session(page))
        tools.send("Performance.enable")
        most, end = 0.0, time.monotonic() + minutes * 60
        while time.monotonic() < end:
            page.wait_for_timeout(min(20_000, minutes * 20_000))
            tools.send("HeapProfiler.collectGarbage")
            found = {each["name"]: each["value"] for each in tools.send("Performance.getMetrics")["metrics"]}
            most = max(most, found["JSHeapUsedSize"] / 1_000_000)
        written = page.locator("[data-live]").inner_text()
        yield Row(f"heap in {minutes:g} min, {HEAP_TOKENS_PER_SECOND} tokens/s", most, HEAP_BAR, "MB")
        yield Row("the run writes until the end (0: yes)", 0.0 if written else 1.0, 0, "")
        yield Row("complaints of the browser", len(visitor.complaints), 0, "messages")
    finally:
        board.server.kill()
        board.model.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.dashboard", description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--heap", type=float, metavar="MINUTES", help="measure only the memory of an open page")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, open_browser() as browser:
        if options.heap:
            return judge(measure_heap(browser, Path(folder), options.heap))
        return judge(measure(browser, Path(folder), options.runs))


if __name__ == "__main__":
    sys.exit(main())
