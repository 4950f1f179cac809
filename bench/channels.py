"""Kills servers while people write on channels: every message is answered once, in order.

    python -m bench.channels --kills 100 --people 20
    python -m bench.channels --platforms matrix,email
    python -m bench.channels --servers 2 --database postgresql://...

The platforms are in this process and outlive the servers. Telegram does not deduplicate: a message that was sent
just before a kill may appear twice there, and the report counts these."""

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from bench.channel_platforms import BenchPlatform, serve_platform
from treadle.config.database_url import sqlite_path
from treadle.config.home import Home
from treadle.domain.channels import Person
from treadle.stores.channels import ChannelTables
from treadle.stores.sqlite.channels import SqliteChannels
from treadle.stores.sqlite.connection import open_database
from treadle.stores.sqlite.writer import InlineWriter
from treadle.vault.store import VaultStore

AGENT = "name: hero\nmodel: bench/x\nmemory: {recall: 0, remember: false}\n"
ANSWER = "answer to "
PLATFORMS = ("telegram", "slack")
FINISH_SECONDS = 600.0
STOP_SECONDS = 60.0
"""How long a server may need to start or to stop."""


async def answer(request: web.Request) -> web.StreamResponse:
    """Answer as a model that repeats the last line of the message."""
    body = await request.json()
    content = body["messages"][-1]["content"]
    text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    pieces = [f"{ANSWER}{text.splitlines()[-1]}", ""]
    for number, piece in enumerate(pieces):
        choice = {"index": 0, "delta": {"content": piece}, "finish_reason": "stop" if number else None}
        chunk = {"id": "c", "object": "chat.completion.chunk", "model": "x", "choices": [choice]}
        await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
        await asyncio.sleep(random.random() * 0.05)
    await response.write(b"data: [DONE]\n\n")
    return response


# ── The home ──


def write_config(home: Path, model: str, platforms: Sequence[BenchPlatform], streaming: bool) -> None:
    (home / "agents" / "hero").mkdir(parents=True)
    (home / "agents" / "hero" / "config.yaml").write_text(AGENT)
    limits = {"messages_per_minute": 100_000}
    common = {"agent": "hero", "mode": "queue", "streaming": streaming, "limits": limits}
    config = {
        "providers": {"bench": {"base_url": model, "api_mode": "chat_completions", "needs_key": False}},
        "channels": {platform.name: {**common, "settings": platform.settings} for platform in platforms},
    }
    (home / "config.yaml").write_bytes(msgspec.yaml.encode(config))
    vault = VaultStore(home, {})
    for platform in platforms:
        for name, value in platform.secrets.items():
            vault.put(name, value)
    vault.close()


async def admit(store: ChannelTables, platforms: Sequence[BenchPlatform], people: int) -> None:
    for platform in platforms:
        for number in range(1, people + 1):
            user = f"{platform.name}{number}"
            person = Person(
                channel=platform.name,
                sender=platform.sender(number),
                name=f"p{number}",
                user=user,
                grants=("direct",),
                added_at=0.0,
            )
            await store.save_person(person)


@asynccontextmanager
async def open_store(home: Path, database: str | None) -> AsyncGenerator[ChannelTables, None]:
    if database is None:
        writer = InlineWriter(open_database(sqlite_path(Home(home).database_url)))
        yield SqliteChannels(writer)
        await writer.close()
    else:
        from treadle.stores.postgres.channels import PostgresChannels
        from treadle.stores.postgres.database import open_database as open_postgres

        opened = await open_postgres(database)
        yield PostgresChannels(opened)
        await opened.close()


# ── Servers ──


class Killer:
    """Starts servers again and again, and kills them."""

    def __init__(self, home: Path, seed: int, database: str | None = None) -> None:
        self._home = home
        self._random = random.Random(seed)
        self._log = home.parent / "server.log"
        self._database = database
        self._processes: list[asyncio.subprocess.Process] = []

    async def start(self, port: int = 0) -> asyncio.subprocess.Process:
        environment = {**os.environ, "TREADLE_HOME": str(self._home)}
        if self._database is not None:
            environment["TREADLE_DATABASE_URL"] = self._database
        command = (str(Path(sys.executable).with_name("treadle")), "serve", "--port", str(port), "--json")
        with self._log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=log
            )
        self._processes.append(process)
        assert process.stdout is not None
        async with asyncio.timeout(STOP_SECONDS):
            started = await process.stdout.readline()
        if not started:
            raise RuntimeError(f"the server did not start: {self._log}")
        return process

    async def kill(self, times: int) -> None:
        """Start a server and kill it, again and again. Others of this home go on meanwhile."""
        for _ in range(times):
            process = await self.start()
            await asyncio.sleep(self._random.random() * 1.5)
            process.send_signal(signal.SIGKILL)
            await process.wait()

    async def stop(self) -> None:
        """Stop all servers. One that does not stop is killed, and reported."""
        for process in self._processes:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.terminate()
                try:
                    async with asyncio.timeout(STOP_SECONDS):
                        await process.wait()
                except TimeoutError:
                    process.kill()
                    raise RuntimeError(f"the server did not stop within {STOP_SECONDS:.0f} s") from None


# ── What people have seen ──


def judge(people: int, messages: int, platforms: Sequence[BenchPlatform]) -> dict[str, Any]:
    """Return what is wrong with what people have seen."""
    found: Counter[str] = Counter()
    for platform in platforms:
        for number in range(1, people + 1):
            name, texts = platform.name, platform.texts(number)
            wanted = [f"{ANSWER}p{number} m{count}" for count in range(messages)]
            answers = [text for text in texts if text.startswith(ANSWER)]
            reports = [text for text in texts if not text.startswith(ANSWER)]
            found[f"{name} reported"] += len(reports)
            found[f"{name} answered"] += len(set(answers) & set(wanted))
            found[f"{name} twice"] += len(answers) - len(set(answers))
            found[f"{name} lost"] += max(0, len(set(wanted) - set(answers)) - len(reports))
            order = list(dict.fromkeys(answers))
            found[f"{name} out of order"] += order != [text for text in wanted if text in order]
    return dict(found)


def find_faults(found: dict[str, Any], platforms: Sequence[str]) -> list[str]:
    """Return the counts that must be 0 and are not."""
    names = [f"{name} {what}" for name in platforms for what in ("lost", "out of order")]
    return [
        name for name in (*names, *(f"{each} twice" for each in platforms if each != "telegram")) if found[name]
    ]


def is_complete(people: int, messages: int, platforms: Sequence[BenchPlatform]) -> bool:
    numbers = range(1, people + 1)
    return all(len(set(each.texts(number))) >= messages for each in platforms for number in numbers)


async def serve_model(stack: AsyncExitStack) -> str:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    stack.push_async_callback(runner.cleanup)
    return f"http://127.0.0.1:{runner.addresses[0][1]}/v1"


async def measure(
    kills: int,
    people: int,
    messages: int,
    seed: int,
    folder: Path,
    streaming: bool,
    platforms: Sequence[str] = PLATFORMS,
    database: str | None = None,
    servers: int = 1,
    finish_seconds: float = FINISH_SECONDS,
) -> dict[str, Any]:
    """Kill one of several servers while people write, and count what they have seen in the end."""
    home, began = folder / "home", time.monotonic()
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(serve_platform(name, people)) for name in platforms]
        await asyncio.to_thread(write_config, home, await serve_model(stack), opened, streaming)
        killer = Killer(home, seed, database)
        stack.push_async_callback(killer.stop)
        async with open_store(home, database) as store:
            await admit(store, opened, people)
            async with asyncio.timeout(finish_seconds):
                await prime(killer, store, opened)
        lanes = [asyncio.create_task(killer.kill(kills // servers)) for _ in range(servers)]
        killing = asyncio.gather(*lanes)

        async def write(number: int) -> None:
            for count in range(messages):
                for platform in opened:
                    await platform.write(number, f"p{number} m{count}")
                pause = random.random() * 2 * kills * 3 / messages / servers
                await asyncio.wait(lanes, timeout=pause)

        await asyncio.gather(killing, *(write(number) for number in range(1, people + 1)))
        await killer.start()
        with suppress(TimeoutError):
            async with asyncio.timeout(finish_seconds):
                while not is_complete(people, messages, opened):  # noqa: ASYNC110 -- several servers
                    await asyncio.sleep(0.2)
        found = judge(people, messages, opened)
    sent = len(platforms) * people * messages
    return {"kills": kills, "people": people, "messages": sent, "seconds": round(time.monotonic() - began), **found}


async def prime(killer: Killer, store: ChannelTables, platforms: Sequence[BenchPlatform]) -> None:
    """Let a server read how far each platform is: what was there before its first start is not answered."""
    process = await killer.start()
    for name in [platform.name for platform in platforms if platform.name in ("matrix", "email")]:
        while await store.cursor(name) is None:  # noqa: ASYNC110 -- a row of a database
            await asyncio.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    await process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--people", type=int, default=20)
    parser.add_argument("--messages", type=int, default=10, help="messages of each person on each channel")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--streaming", action="store_true", help="show answers while they are written")
    parser.add_argument("--platforms", default=",".join(PLATFORMS), help="of telegram, slack, matrix and email")
    parser.add_argument("--database", help="the URL of a PostgreSQL database; default: SQLite")
    parser.add_argument("--servers", type=int, default=1, help="more than one needs PostgreSQL")
    given = parser.parse_args()
    platforms = given.platforms.split(",")
    with tempfile.TemporaryDirectory() as folder:
        counts = (given.kills, given.people, given.messages, given.seed)
        more = (platforms, given.database, given.servers)
        found = asyncio.run(measure(*counts, Path(folder), given.streaming, *more))
        print(json.dumps(found, indent=1))
        if wrong := find_faults(found, platforms):
            sys.exit(f"faults: {', '.join(wrong)}\n" + (Path(folder) / "server.log").read_text()[-3000:])


if __name__ == "__main__":
    main()
