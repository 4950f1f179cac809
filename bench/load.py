"""Load one server with what hostile or careless peers send: floods of calls, stalled readers, large attachments.

    python -m bench.load [--calls 20000] [--readers 300] [--attachment-mb 200]

The bars: a reply with 20,000 calls costs less than 1 s of CPU, blocks the event loop for at most 50 ms (the best of
three attempts, because other programs use the machine too) and leaves one `calls_dropped` event. Stalled readers
hold no more than `server.stream_memory` together, and the process grows by at most twice that and 100 MB. A large
attachment is refused without being read."""

import argparse
import asyncio
import resource
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

import treadle
from treadle.api.agent import make_attachment
from treadle.api.engine import HostedEngine, create_engine
from treadle.config.home import Home
from treadle.domain.errors import SizeLimitExceeded
from treadle.domain.events import CallsDropped
from treadle.ports.access import CreateToken
from treadle.surfaces.http.engine_server import make_application, serve_over_tcp
from treadle.surfaces.http.server import bind_socket, raise_file_limit

MAX_CPU_SECONDS, MAX_BLOCKED_SECONDS = 1.0, 0.05
STREAM_MEMORY = 64 * 2**20
MAX_GROWTH_MB = 2 * STREAM_MEMORY / 2**20 + 100
FLOOD_ATTEMPTS = 3
TICK_SECONDS = 0.001
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def make_event(**fields: object) -> bytes:
    return b"data: " + msgspec.json.encode(fields) + b"\n\n"


def make_end(reason: str) -> bytes:
    choice: dict[str, object] = {"index": 0, "delta": {}, "finish_reason": reason}
    return make_event(choices=[choice])


def make_flood(count: int) -> list[bytes]:
    calls = [
        {"index": n, "id": f"c{n}", "function": {"name": "look", "arguments": f'{{"number":{n}}}'}}
        for n in range(count)
    ]
    events = [make_event(choices=[{"index": 0, "delta": {"tool_calls": [call]}}]) for call in calls]
    return [*events, make_end("tool_calls")]


def make_text(words: int) -> list[bytes]:
    events = [make_event(choices=[{"index": 0, "delta": {"content": "x" * 2000}}])] * words
    return [*events, make_end("stop")]


@asynccontextmanager
async def serve_model(*replies: list[bytes]) -> AsyncGenerator[str, None]:
    """Serve one reply after another, and then the last one again."""
    waiting = list(replies)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n")[0] or 0))
                events = waiting.pop(0) if len(waiting) > 1 else waiting[0]
                writer.write(HEAD)
                for at in range(0, len(events), 100):
                    body = b"".join(events[at : at + 100])
                    writer.write(b"%x\r\n%b\r\n" % (len(body), body))
                    await writer.drain()
                body = b"data: [DONE]\n\n"
                writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def open_home(folder: Path, url: str) -> AsyncGenerator[HostedEngine, None]:
    home = Home(folder)
    home.ensure()
    providers = f"providers: {{local: {{base_url: '{url}', api_key: x}}}}\n"
    (home.path / "config.yaml").write_text(providers)
    (home.path / "agents" / "talker").mkdir(parents=True, exist_ok=True)
    (home.path / "agents" / "talker" / "config.yaml").write_text("model: local/m\n")
    async with create_engine(home=home) as engine:
        yield engine


class BlockedTime:
    """Measures the longest time for which the event loop did nothing else."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def watch(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(TICK_SECONDS)
            self.longest = max(self.longest, time.perf_counter() - began - TICK_SECONDS)


@treadle.tool(effect="read")
async def look(number: int) -> str:
    """Look at something."""
    return f"seen {number}"


async def flood(folder: Path, calls: int) -> bool:
    """Try until the bars are met."""
    for attempt in range(FLOOD_ATTEMPTS):
        if await _flood_once(folder / str(attempt), calls):
            return True
    return False


async def _flood_once(folder: Path, calls: int) -> bool:
    """Run an agent on a reply with this many calls. The CPU time includes the model's server."""
    done = [make_event(choices=[{"index": 0, "delta": {"content": "Done."}, "finish_reason": "stop"}])]
    async with serve_model(done, make_flood(calls), done) as url, open_home(folder, url) as engine:
        agent = treadle.Agent(name="looker", model="local/m", tools=[look])
        await engine.run(agent, "Warm up.")
        blocked, began = BlockedTime(), time.process_time()
        watching = asyncio.create_task(blocked.watch())
        result = await engine.run(agent, "Go.")
        watching.cancel()
        seconds = time.process_time() - began
        dropped = [event async for event in engine.events(result.run_id) if isinstance(event.data, CallsDropped)]
    print(
        f"flood        {calls:,} calls: {seconds:.2f} s CPU, event loop blocked for at most "
        f"{blocked.longest * 1000:.0f} ms, {len(dropped)} calls_dropped event"
    )
    return seconds < MAX_CPU_SECONDS and blocked.longest <= MAX_BLOCKED_SECONDS and len(dropped) == 1


async def stall(folder: Path, readers: int) -> bool:
    """Let readers open the stream of a run that writes 12 MB, and read nothing."""
    raise_file_limit()
    async with serve_model(make_text(6000)) as url, open_home(folder, url) as engine:
        app, listener = make_application(engine), bind_socket("127.0.0.1", 0)
        token = await engine.context.access.create(CreateToken("bench", ("read", "run")))
        async with serve_over_tcp(app, listener, (), (), None, STREAM_MEMORY) as streams:
            agent = treadle.Agent(name="talker", model="local/m")
            await engine.run(agent, "Go.")  # what the run needs without readers is not counted
            run = await engine.submit(agent, "Go.")
            head = f"GET /v1/runs/{run}/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token.secret}"
            before, most, growth = _resident_mb(), 0, 0.0
            writers: list[asyncio.StreamWriter] = []
            for _ in range(readers):
                _, writer = await asyncio.open_connection("127.0.0.1", listener.getsockname()[1], limit=1024)
                writer.write(f"{head}\r\n\r\n".encode())
                writers.append(writer)
                growth = max(growth, _resident_mb() - before)
            waiting = asyncio.ensure_future(engine.wait(run))
            while not waiting.done():
                most, growth = max(most, streams.memory.held), max(growth, _resident_mb() - before)
                await asyncio.sleep(0.02)
            print(
                f"stalled      {readers} readers: at most {most / 2**20:.0f} MB held of "
                f"{STREAM_MEMORY / 2**20:.0f} MB, "
                f"{streams.memory.disconnected} disconnected, at most {growth:.0f} MB more resident of "
                f"{MAX_GROWTH_MB:.0f} MB"
            )
            for writer in writers:
                writer.transport.abort()
            while len(streams):  # noqa: ASYNC110 -- the server notices the end of a connection later
                await asyncio.sleep(0.02)
            print(f"             {streams.memory.held} bytes held after they left")
            return most <= STREAM_MEMORY and growth <= MAX_GROWTH_MB and streams.memory.held == 0


def attach(folder: Path, megabytes: int) -> bool:
    """Attach a large image."""
    path = folder / "large.png"
    with path.open("wb") as file:
        file.truncate(megabytes * 2**20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = False
    try:
        make_attachment(path)
    except SizeLimitExceeded as error:
        refused = "limits.max_attachment_bytes" in str(error)
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"attachment   {megabytes} MB: {'refused' if refused else 'ACCEPTED'}, {more:.0f} MB more memory")
    return refused and more < 10


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--readers", type=int, default=300)
    parser.add_argument("--attachment-mb", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        held = [
            attach(place, options.attachment_mb),
            await flood(place / "flood", options.calls),
            await stall(place / "stall", options.readers),
        ]
    return 0 if all(held) else 1


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
