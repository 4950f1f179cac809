"""The service under load: `python -m bench.service streams|throughput|latency|kill`. Each prints its result and
whether the bar is met, and exits with 1 if it is not."""

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from bench.contest import INSTRUCTIONS
from bench.endpoint import serve_endpoint
from bench.serving import ECHO, PLUGIN, SERVER

ROOT = Path(__file__).parents[1]
PACKAGES = "packages"
"""Folder of the installed package. No run can write there."""
MODEL = "steps-10-tokens-20"
AGENT = f"""
name: NAME
model: fake/MODEL
persona: "{INSTRUCTIONS}"
tools: [lookup]
limits: {{max_steps: 1000, context_window: 10000000}}
memory: {{recall: 0, remember: false}}
APPROVALS
"""
MOST_MEGABYTES, MOST_IDLE_CPU = 400, 0.03
LEAST_SHARE, MOST_TIMES_ECHO = 0.40, 3.0
IDLE_SECONDS = 10.0
STREAMS_PER_TOKEN = 100_000
"""More streams than any measurement opens with its one token."""
Client = aiohttp.ClientSession


def make_home(folder: Path, model_url: str) -> Path:
    """Create a home with the agents of the bars, whose tool is an installed package."""
    home = folder / "home"
    plugin = folder / PACKAGES / "lookup-1.0.dist-info"
    plugin.mkdir(parents=True)
    (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: lookup\nVersion: 1.0\n")
    (plugin / "entry_points.txt").write_text("[treadle.tools]\nlookup = lookup_plugin:lookup\n")
    (plugin.parent / "lookup_plugin.py").write_text(PLUGIN)
    for name, model, approvals in (("a", MODEL, ""), ("asking", "steps-1-tokens-4", "default: ask, via: api")):
        (home / "agents" / name).mkdir(parents=True)
        text = AGENT.replace("NAME", name).replace("MODEL", model)
        told = f"approvals: {{{approvals}}}" if approvals else ""
        (home / "agents" / name / "config.yaml").write_text(text.replace("APPROVALS", told))
    provider = f"{{base_url: '{model_url}', api_mode: chat_completions, api_key: x}}"
    (home / "config.yaml").write_text(
        f"providers: {{fake: {provider}}}\nserver: {{streams_per_token: {STREAMS_PER_TOKEN}}}\n"
    )
    return home


def make_environment(folder: Path) -> dict[str, str]:
    """Return the environment of a command on the home in this folder. Start it there: Treadle imports nothing from
    the folder in which it is started."""
    return os.environ | {"TREADLE_HOME": str(folder / "home"), "PYTHONPATH": f"{folder / PACKAGES}:{ROOT}"}


class Server:
    """`treadle serve` on a home of its own, with the tool of the contest. It can be killed and restarted."""

    def __init__(self, folder: Path, model_url: str) -> None:
        self._folder = folder
        self._home = make_home(folder, model_url)
        self.port, self.token = 0, ""
        self.process: subprocess.Popen[str] | None = None

    def start(self, *command: str) -> None:
        treadle = str(Path(sys.executable).with_name("treadle"))
        self.process = subprocess.Popen(
            command or [treadle, "serve", "--json", "--port", str(self.port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=self._home,
            env=make_environment(self._folder),
        )
        assert self.process.stdout is not None
        told = json.loads(self.process.stdout.readline())
        self.port = int(told["url"].rpartition(":")[2])
        self.token = told["token"] or self.token

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def megabytes(self) -> float:
        """Return its current memory."""
        return int(self._proc("status").split("VmRSS:")[1].split()[0]) / 1024

    def cpu_seconds(self) -> float:
        """Return its CPU seconds so far."""
        user, system = self._proc("stat").rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def _proc(self, name: str) -> str:
        assert self.process is not None
        return Path(f"/proc/{self.process.pid}/{name}").read_text()

    @asynccontextmanager
    async def client(self) -> AsyncGenerator[Client, None]:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
        url = f"http://127.0.0.1:{self.port}"
        async with Client(url, headers=headers, connector=connector, timeout=timeout) as client:
            yield client


@contextmanager
def serve_echo() -> Generator[int, None, None]:
    """Run a bare server, and yield its port."""
    command = [sys.executable, "-c", ECHO]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


@contextmanager
def open_server(*command: str) -> Generator[Server, None, None]:
    with tempfile.TemporaryDirectory() as folder, serve_endpoint() as url:
        server = Server(Path(folder), url)
        server.start(*command)
        try:
            yield server
        finally:
            server.kill()


async def submit(client: Client, agent: str = "a", key: str | None = None) -> str:
    headers = {} if key is None else {"Idempotency-Key": key}
    async with client.post(f"/v1/agents/{agent}/runs", data=b'{"message": "go"}', headers=headers) as response:
        if response.status != 202:
            raise RuntimeError(await response.text())
        return json.loads(await response.read())["run_id"]


StreamReader = Callable[[bytes, int], None]
"""Handles a piece of a stream, given the time when the stream was opened."""


async def follow(client: Client, run_id: str, heard: StreamReader = lambda _piece, _since: None) -> None:
    """Read a run to its end, which must be successful."""
    last = b""
    async with client.get(f"/v1/runs/{run_id}/events") as response:
        since = time.monotonic_ns()
        async for piece in response.content.iter_any():
            heard(piece, since)
            last = (last + piece)[-4000:]
    if b'"type":"run_end"' not in last or b'"outcome":"completed"' not in last:
        raise RuntimeError(f"{run_id} did not end well: {last[-500:]!r}")


async def run_concurrently(work: Callable[[], Awaitable[None]], times: int, concurrency: int) -> None:
    waiting = iter(range(times))

    async def one_after_another() -> None:
        for _ in waiting:
            await work()

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(one_after_another())


# ── The bars ───────────────────────────────────────────────────────────────────────────────────────


async def measure_streams(options: argparse.Namespace) -> bool:
    """Open a stream on each of many runs that wait for an approval."""
    with open_server() as server:
        async with server.client() as client:
            ids: list[str] = []

            async def one() -> None:
                ids.append(await submit(client, "asking"))

            await run_concurrently(one, options.count, 50)
            opened = [await client.get(f"/v1/runs/{run_id}/events") for run_id in ids]
            for response in opened:
                seen = b""
                while b'"type":"run_waiting"' not in seen:
                    seen += await response.content.readany()
            await asyncio.sleep(1)
            cpu, begun = server.cpu_seconds(), time.perf_counter()
            await asyncio.sleep(IDLE_SECONDS)
            share = (server.cpu_seconds() - cpu) / (time.perf_counter() - begun)
            megabytes = server.megabytes()
            for response in opened:
                response.close()
    print(
        f"{options.count} streams, {options.count} runs that wait: {megabytes:.0f} MB, {share:.2%} of a core idle"
    )
    return megabytes < MOST_MEGABYTES and share < MOST_IDLE_CPU


async def measure_throughput(options: argparse.Namespace) -> bool:
    """Submit runs over HTTP and follow them over SSE, compared with the floor measured at the same time."""
    floors, services = list[float](), list[float]()
    for _ in range(options.rounds):
        with serve_endpoint() as url:
            command = [sys.executable, "-m", "bench.contestants.floor", url, "--model", MODEL]
            command += ["--runs", str(options.runs), "--concurrency", str(options.concurrency)]
            done = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, capture_output=True, check=True)
            floors.append(options.runs / json.loads(done.stdout.splitlines()[-1])["wall"])
        with open_server() as server:
            async with server.client() as client:

                async def one() -> None:
                    await follow(client, await submit(client))

                await run_concurrently(one, options.concurrency, options.concurrency)  # warm-up
                begun = time.perf_counter()
                await run_concurrently(one, options.runs, options.concurrency)
                services.append(options.runs / (time.perf_counter() - begun))
    floor, service = statistics.median(floors), statistics.median(services)
    print(f"{service:.1f} runs/s over HTTP and SSE, the floor {floor:.1f}: {service / floor:.0%} of it")
    return service / floor >= LEAST_SHARE


async def measure_latency(options: argparse.Namespace) -> bool:
    """Measure from the commit of an event to its reader, compared with an event that a bare server only sends. A
    run starts every `pace` milliseconds, which leaves the server idle time."""
    with open_server(sys.executable, "-c", SERVER) as server:
        async with server.client() as client:
            heard: dict[bytes, tuple[int, int]] = {}

            def hear(piece: bytes, since: int) -> None:
                now = time.monotonic_ns()
                for part in piece.split(b'"event_id":"')[1:]:
                    heard.setdefault(part[:36], (since, now))

            async def one() -> None:
                await follow(client, await submit(client), hear)

            await run_concurrently(one, 2 * options.concurrency, options.concurrency)  # warm-up
            heard.clear()
            async with asyncio.TaskGroup() as group:
                for _ in range(options.runs):
                    group.create_task(one())
                    await asyncio.sleep(options.pace / 1000)
            async with client.get("/commits") as response:
                commits: dict[str, int] = json.loads(await response.read())
    met = [(at, *heard[key.encode()]) for key, at in commits.items() if key.encode() in heard]
    # Events committed before their reader connected had to wait for it.
    ours = sorted((now - at) / 1e6 for at, since, now in met if at > since)
    bare = await _measure_echo(options.concurrency, len(ours))
    p99, theirs = ours[int(len(ours) * 0.99)], bare[int(len(bare) * 0.99)]
    print(
        f"p99 from commit to reader {p99:.2f} ms (median {statistics.median(ours):.2f}) over {len(ours)} events; "
        f"a bare echo {theirs:.2f} ms (median {statistics.median(bare):.2f}): {p99 / theirs:.1f} times that"
    )
    return p99 <= MOST_TIMES_ECHO * theirs


async def _measure_echo(readers: int, events: int) -> list[float]:
    """Measure a server that does nothing but send, in the same way."""
    taken: list[float] = []
    with serve_echo() as port:

        async def read(client: Client) -> None:
            async with client.get(f"http://127.0.0.1:{port}/?events={events // readers}") as response:
                async for piece in response.content.iter_any():
                    now = time.monotonic_ns()
                    taken.extend((now - int(part.split(b"\n")[0])) / 1e6 for part in piece.split(b"data: ")[1:])

        async with Client() as client:
            await asyncio.gather(*(read(client) for _ in range(readers)))
    return sorted(taken)


async def measure_kills(options: argparse.Namespace) -> bool:
    """Kill the server repeatedly under load: everything acknowledged must exist once, and end."""
    chance, acknowledged, done = random.Random(options.times), dict[str, str](), asyncio.Event()
    with open_server() as server:

        async def keep_asking(client: Client, name: int) -> None:
            number = 0
            while not done.is_set():
                key = f"{name}-{number}"
                try:
                    acknowledged[key] = await submit(client, key=key)
                    number += 1
                except (aiohttp.ClientError, OSError, RuntimeError):
                    await asyncio.sleep(0.05)

        async with server.client() as client:
            asking = [asyncio.create_task(keep_asking(client, name)) for name in range(options.concurrency)]
            for _ in range(options.times):
                await asyncio.sleep(chance.uniform(0.2, 1.0))
                server.kill()
                await asyncio.to_thread(server.start)
            done.set()
            await asyncio.gather(*asking)
            lost = 0
            for run_id in acknowledged.values():
                async with client.get(f"/v1/runs/{run_id}?wait=60") as response:
                    found: dict[str, Any] = json.loads(await response.read())
                    lost += found.get("outcome") != "completed"
    twice = len(acknowledged) - len(set(acknowledged.values()))
    print(f"killed {options.times} times: {len(acknowledged)} runs acknowledged, {lost} lost, {twice} doubled")
    return not lost and not twice and bool(acknowledged)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.service", description=__doc__)
    commands = parser.add_subparsers(required=True)
    for name, work, options in (
        ("streams", measure_streams, {"count": 1000}),
        ("throughput", measure_throughput, {"runs": 400, "concurrency": 100, "rounds": 3}),
        ("latency", measure_latency, {"runs": 200, "pace": 50, "concurrency": 10}),
        ("kill", measure_kills, {"times": 20, "concurrency": 20}),
    ):
        command = commands.add_parser(name, help=work.__doc__)
        command.set_defaults(work=work)
        for option, value in options.items():
            command.add_argument(f"--{option}", type=int, default=value)
    chosen = parser.parse_args()
    met = asyncio.run(chosen.work(chosen))
    print("the bar is met" if met else "the bar is NOT met")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
