"""Measures what channels cost while nothing happens, and what unknown senders cost.

    python -m bench.channel_idle --conversations 1000 --seconds 4

A server with many conversations is compared with the same server without them: the share of a core that each uses
while idle. Then unknown senders write, and the calls of the model are counted."""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from aiohttp import web
from msgspec.structs import replace

from bench.channel_platforms import BenchPlatform, serve_platform
from bench.channels import ANSWER, Killer, admit, answer, open_store, write_config
from bench.pgserver import read_cpu_seconds
from treadle.domain.ids import RunId, SessionId
from treadle.ports.channel import Incoming, Outgoing
from treadle.ports.channel_store import ChannelConversation
from treadle.stores.channels import ChannelTables

PLATFORMS = ("telegram", "slack")
MAX_ADDED_SHARE = 0.5
"""Percent of a core. A timer for each conversation would cost more."""
WAIT_SECONDS = 120.0


class CountedModel:
    """A model that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    async def reply(self, request: web.Request) -> web.StreamResponse:
        self.calls += 1
        return await answer(request)

    async def serve(self, stack: AsyncExitStack) -> str:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self.reply)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        stack.push_async_callback(runner.cleanup)
        return f"http://127.0.0.1:{runner.addresses[0][1]}/v1"


async def fill(store: ChannelTables, platform: str, sender: str, number: int) -> None:
    """Store a person with a conversation in which one message was answered."""
    now, run_id = time.time(), RunId(f"run_idle{number}")
    place = f"idle{number}"
    await store.save_conversation(ChannelConversation(platform, place, SessionId(f"ses_{place}"), sender, True))
    await store.receive(platform, [Incoming(f"{place}/1", place, sender, text="hello")], None, now)
    await store.start(platform, f"{place}/1", run_id)
    await store.finish(platform, [Outgoing(f"{place}/a", place, "hi")], now, run_id=run_id)
    [item] = await store.outbox(platform, place)
    await store.settle(replace(item, state="sent", message_id=f"{number}"), platform)


async def wait_for(condition: Any) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():  # noqa: ASYNC110 -- several servers
            await asyncio.sleep(0.02)


async def measure_idle(
    home: Path, platforms: Sequence[BenchPlatform], conversations: int, seconds: float, model: CountedModel
) -> dict[str, float]:
    """Start a server, let it answer one person on each platform, and return the share of a core that it uses when
    nothing happens, in percent. Then let unknown senders write, and return how often the model was called."""
    async with open_store(home, None) as store:
        await admit(store, platforms, 1)
        for platform in platforms:
            for number in range(conversations // len(platforms)):
                await fill(store, platform.name, f"idle{number}", number)
    killer = Killer(home, 1)
    process = await killer.start()
    try:
        for platform in platforms:
            await platform.write(1, "warm")
            await wait_for(lambda platform=platform: f"{ANSWER}warm" in platform.texts(1))
        await asyncio.sleep(1)  # the end of the last run is recorded
        used, began = read_cpu_seconds(process.pid), time.monotonic()
        await asyncio.sleep(seconds)
        share = 100 * (read_cpu_seconds(process.pid) - used) / (time.monotonic() - began)
        calls = model.calls
        for platform in platforms:
            for number in range(1000, 1050):
                await platform.write(number, "let me in")
            await platform.write(1, "last")
            await wait_for(lambda platform=platform: f"{ANSWER}last" in platform.texts(1))
        return {"share": share, "calls": model.calls - calls - len(platforms)}
    finally:
        await killer.stop()


async def measure(conversations: int, seconds: float, folder: Path) -> dict[str, Any]:
    found: dict[int, dict[str, float]] = {}
    for number in (0, conversations):
        async with AsyncExitStack() as stack:
            model, home = CountedModel(), folder / str(number) / "home"
            opened = [await stack.enter_async_context(serve_platform(name, 1)) for name in PLATFORMS]
            write_config(home, await model.serve(stack), opened, False)
            found[number] = await measure_idle(home, opened, number, seconds, model)
    return {
        "conversations": conversations,
        "percent of a core without them": round(found[0]["share"], 2),
        "percent of a core with them": round(found[conversations]["share"], 2),
        "model calls for unknown senders": int(found[0]["calls"] + found[conversations]["calls"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversations", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=4.0, help="seconds of each measurement")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(measure(given.conversations, given.seconds, Path(folder)))
    print(json.dumps(found, indent=1))
    added = found["percent of a core with them"] - found["percent of a core without them"]
    if added > MAX_ADDED_SHARE or found["model calls for unknown senders"]:
        sys.exit("faults: idle conversations cost CPU, or unknown senders cost model calls")


if __name__ == "__main__":
    main()
