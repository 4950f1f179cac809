"""CPU time, key latency and memory of the terminal UI, with the engine in the same process.

    python -m bench.tui [--seconds 20]

The UI runs in a terminal of 120 columns and 40 lines. A fake endpoint in another process streams 200 tokens a
second. CPU time is that of the whole UI process. The last row compares the start of `treadle --help`."""

import argparse
import asyncio
import contextlib
import fcntl
import json
import multiprocessing
import os
import pty
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.bars import Row, judge

TREADLE = str(Path(sys.executable).with_name("treadle"))
COLUMNS, LINES = 120, 40
TOKENS_PER_SECOND = 200
TICKS = os.sysconf("SC_CLK_TCK")
STREAM_BAR, IDLE_BAR, OPEN_BAR, ECHO_BAR, MEMORY_BAR = 25.0, 0.3, 0.4, 50.0, 150.0
PROSE = (
    "The engine keeps **every** step in its journal, so `resume` continues where it stopped. "
    "A worker claims the run, and its lease is renewed while it works.\n\n"
    "- the first point, with some words after it\n- the second point\n\n"
)
CODE = "    value_{0} = compute(value_{1}, 'text', limit={0})  # line {0}\n"
KEYS = "ⓐⓑⓒⓓⓔⓕⓖⓗⓘⓙⓚⓛⓜⓝⓞⓟⓠⓡⓢⓣⓤⓥⓦⓧⓨⓩ"


# ── The endpoint ───────────────────────────────────────────────────────────────────────────────────


def _delta(finish: str | None = None, **fields: Any) -> bytes:
    chunk = {"id": "c", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def _text_of(model: str) -> str:
    if model == "code":
        lines = "".join(CODE.format(number, number - 1) for number in range(1, 2001))
        return f"Here it is:\n\n```python\n{lines}```\n\nDone.\n"
    return PROSE * 300


async def _serve(request: Any) -> Any:
    from aiohttp import web

    model = (await request.json())["model"]
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    text, began, sent = _text_of(model), time.monotonic(), 0
    if model == "short":
        await response.write(_delta(content=f"{PROSE}```python\nprint('hello')\n```\n"))
    else:
        for place in range(0, len(text), 4):
            try:
                await response.write(_delta(content=text[place : place + 4]))
            except ConnectionError:
                return response  # the UI was closed
            sent += 1
            if (early := sent / TOKENS_PER_SECOND - (time.monotonic() - began)) > 0:
                await asyncio.sleep(early)
    await response.write(_delta(finish="stop") + b"data: [DONE]\n\n")
    return response


def _run_endpoint(port: "multiprocessing.Queue[int]") -> None:
    from aiohttp import web

    async def serve() -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", _serve)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port.put(runner.addresses[0][1])
        await asyncio.Event().wait()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve())


@contextmanager
def _endpoint() -> Generator[str]:
    context = multiprocessing.get_context("spawn")
    ports: multiprocessing.Queue[int] = context.Queue()
    process = context.Process(target=_run_endpoint, args=(ports,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ports.get(timeout=60)}/v1"
    finally:
        process.terminate()


# ── The UI in a terminal ───────────────────────────────────────────────────────────────────────────


class Ui:
    """The terminal UI in a terminal of its own, whose output is read and counted."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        environment = {
            "PATH": os.environ["PATH"], "HOME": str(home), "TREADLE_HOME": str(home / "home"),
            "TERM": "xterm-256color", "LANG": "C.UTF-8", "COLORFGBG": "15;0",
        }  # fmt: skip
        self.process = subprocess.Popen(
            [TREADLE, "chat", *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=home,
            start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self.output = b""
        self._changed = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._ours, 65536)
            except OSError:
                data = b""
            if not data:
                return
            with self._changed:
                self.output = (self.output + data)[-1_000_000:]
                self._changed.notify_all()

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def forget(self) -> None:
        with self._changed:
            self.output = b""

    def wait_for(self, text: str, seconds: float = 60) -> float:
        """Wait until the output contains a text, and return how long that took."""
        began, wanted = time.monotonic(), text.encode()
        with self._changed:
            while wanted not in self.output:
                if not self._changed.wait(max(0.0, began + seconds - time.monotonic())):
                    raise SystemExit(f"no {text!r} within {seconds} s; the screen:\n{self.output[-3000:]!r}")
        return time.monotonic() - began

    @property
    def cpu(self) -> float:
        """Return the CPU seconds of the process."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    @property
    def core_wait(self) -> float:
        """Return how many seconds the main thread has waited for a core."""
        return int(Path(f"/proc/{self.process.pid}/schedstat").read_text().split()[1]) / 1e9

    @property
    def megabytes(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024

    def close(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        os.close(self._ours)


@contextmanager
def _open(home: Path, *arguments: str, ready: str = "ready") -> Generator[Ui]:
    ui = Ui(home, *arguments)
    try:
        ui.wait_for(ready)
        time.sleep(1.5)
        yield ui
    finally:
        ui.close()


def _share(ui: Ui, seconds: float) -> float:
    """Return the share of a core that the UI uses, in percent."""
    before, began = ui.cpu, time.monotonic()
    time.sleep(seconds)
    return 100 * (ui.cpu - before) / (time.monotonic() - began)


def _make_home(folder: Path, url: str, model: str) -> Path:
    home = folder / "home"
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.yaml").write_text(
        f"providers: {{fake: {{base_url: '{url}'}}}}\ndefaults: {{model: fake/{model}}}\n"
    )
    return folder


def _fill_session(folder: Path, name: str, messages: int) -> None:
    """Write a session with this many messages."""
    from treadle.api.agent import Agent
    from treadle.api.engine import create_engine
    from treadle.config.home import Home
    from treadle.testing.models import FunctionModel, ScriptedReply

    async def fill() -> None:
        engine = create_engine(home=Home(folder / "home"))
        text = f"{PROSE}```python\nprint('hello')\n```\n"
        engine.add_model("scripted", FunctionModel(lambda request: ScriptedReply(text)))
        async with engine:
            agent = Agent(name="default", model="scripted/m")
            for number in range(messages // 2):
                await engine.run(agent, f"question {number} about something", session=name)

    asyncio.run(fill())


# ── The measurements ───────────────────────────────────────────────────────────────────────────────


def _measure_stream(folder: Path, url: str, model: str, seconds: float) -> list[Row]:
    with _open(_make_home(folder / model, url, model)) as ui:
        ui.type("go\r")
        ui.wait_for("answering")
        time.sleep(2)
        share = _share(ui, seconds)
        rows = [Row(f"streaming {model}, 200 tokens a second", share, STREAM_BAR, "% of a core")]
        if model == "prose":
            rows.append(Row("key echo while streaming, 99th percentile", _measure_echo(ui), ECHO_BAR, "ms"))
        else:
            share = _share(ui, seconds)
            rows.append(Row(f"streaming {model}, later", share, STREAM_BAR, "% of a core"))
        return rows


def _measure_echo(ui: Ui) -> float:
    """Type rare characters while the answer streams, and return how long their echo takes. Time in which the UI
    could run and had no core, because other processes had them all, does not count."""
    taken: list[float] = []
    elapsed: list[float] = []
    for _ in range(8):
        for key in KEYS:
            ui.forget()
            began, waited = time.monotonic(), ui.core_wait
            ui.type(key)
            ui.wait_for(key)
            elapsed.append(1000 * (time.monotonic() - began))
            taken.append(max(0.0, elapsed[-1] - 1000 * (ui.core_wait - waited)))
            time.sleep(0.05)
        ui.type("\x03")  # clear the message
        time.sleep(0.2)
    print(
        f"key echo on this machine now: median {statistics.median(elapsed):.0f} ms, 99th percentile "
        f"{statistics.quantiles(elapsed, n=100)[98]:.0f} ms; load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores",
        file=sys.stderr,
    )
    return statistics.quantiles(taken, n=100)[98]


def _measure_idle(folder: Path, url: str, seconds: float) -> list[Row]:
    with _open(_make_home(folder / "idle", url, "short")) as ui:
        ui.type("go\r")
        ui.wait_for("hello")
        time.sleep(8)
        return [Row("idle", _share(ui, max(30.0, seconds)), IDLE_BAR, "% of a core")]


def _measure_open(folder: Path, url: str) -> list[Row]:
    home = _make_home(folder / "long", url, "short")
    _fill_session(home, "long", 2000)
    _fill_session(home, "medium", 500)
    _fill_session(home, "short", 2)
    costs: dict[str, list[float]] = {"short": [], "long": []}
    for _ in range(5):
        for name, found in costs.items():
            with _open(home, "--session", name) as ui:
                found.append(ui.cpu)
    more = statistics.median(costs["long"]) - statistics.median(costs["short"])
    with _open(home, "--session", "medium") as ui:
        for _ in range(400):
            ui.type("\x1b[5~")  # Page Up, to the beginning
            time.sleep(0.02)
        time.sleep(3)
        memory = ui.megabytes
    return [
        Row("opening 2,000 messages, more than opening 2", more, OPEN_BAR, "s"),
        Row("memory after reading 500 messages", memory, MEMORY_BAR, "MB"),
    ]


def _measure_help() -> list[Row]:
    """Return how long `treadle --help` takes, in starts of Python with asyncio; the bar is of bench.startup."""

    def cost(words: list[str]) -> float:
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
        return used.ru_utime + used.ru_stime

    pairs = [(cost([TREADLE, "--help"]), cost([sys.executable, "-c", "import asyncio"])) for _ in range(15)]
    ratio = statistics.median(first for first, _ in pairs) / statistics.median(second for _, second in pairs)
    return [Row("treadle --help, in starts of Python with asyncio", ratio, 1.5, "times")]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tui", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each share of a core is measured")
    parser.add_argument("--only", help="part of the name of a measurement")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as name, _endpoint() as url:
        folder = Path(name)
        measurements: dict[str, Callable[[], list[Row]]] = {
            "prose": lambda: _measure_stream(folder, url, "prose", options.seconds),
            "code": lambda: _measure_stream(folder, url, "code", options.seconds),
            "idle": lambda: _measure_idle(folder, url, options.seconds),
            "open": lambda: _measure_open(folder, url),
            "help": _measure_help,
        }
        wanted = (measure for key, measure in measurements.items() if not options.only or options.only in key)
        return judge(row for measure in wanted for row in measure())


if __name__ == "__main__":
    sys.exit(main())
