"""`treadle serve`, killed with kill -9 and restarted on the same port while clients read and submit."""

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from tests.fake_endpoint import FakeEndpoint
from tests.surfaces.http.process import Serving
from tests.surfaces.http.served_home import write_home
from tests.surfaces.http.sse import Sent, Wire
from tests.surfaces.http.test_streams import steps_and_words
from tests.surfaces.shell import Shell

Done = Callable[[list[Sent]], bool]
KILLS = 5
BUSY = "name: busy\nmodel: fake/m\ntools: [glob]\nretry: {attempts: 3, base_ms: 10}\n"


async def read_to_the_end(serving: Serving, path: str, is_done: Done) -> list[Sent]:
    """Read a stream for as long as it takes, over every server that comes: durable events alone."""
    sent: list[Sent] = []
    last: str | None = "0"
    while not is_done(sent):
        try:
            wire = await Wire.open(serving.port, path, serving.token, last)
            try:
                async for each in wire.events():
                    if each.id is not None:
                        sent.append(each)
                        last = each.id
                    if is_done(sent):
                        break
            finally:
                wire.writer.transport.abort()
        except (OSError, asyncio.IncompleteReadError, ValueError):
            await asyncio.sleep(0.05)  # it is not there just now
    return sent


async def submit(serving: Serving, number: int, accepted: dict[str, str]) -> None:
    """Ask for a run until it is taken: with a key, so that asking again asks for nothing more."""
    key = f"message-{number}"
    headers = {"Authorization": f"Bearer {serving.token}", "Idempotency-Key": key}
    async with aiohttp.ClientSession(headers=headers) as http:
        while key not in accepted:
            try:
                url = f"{serving.url}/v1/agents/busy/runs"
                async with http.post(url, json={"message": f"Message {number}."}) as response:
                    if response.status == 202:
                        accepted[key] = json.loads(await response.read())["run_id"]
            except (aiohttp.ClientError, OSError):
                await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_nothing_that_was_acknowledged_is_lost(tmp_path: Path) -> None:
    """Runs are submitted while the server dies repeatedly. Each exists once, ends, and its stream and the feed
    show every event once and in order."""
    chance = random.Random(11)
    runs = 12

    async with FakeEndpoint(policy=steps_and_words) as endpoint:
        home = tmp_path / "home"
        write_home(home, endpoint.url)
        (home / "agents" / "busy").mkdir()
        (home / "agents" / "busy" / "config.yaml").write_text(BUSY)
        serving = Serving(Shell(home))
        await asyncio.to_thread(serving.start)
        accepted: dict[str, str] = {}
        feed = asyncio.create_task(read_to_the_end(serving, "/v1/events", ends(runs)))
        submitting = [asyncio.create_task(submit(serving, number, accepted)) for number in range(runs)]
        followed: dict[str, asyncio.Task[list[Sent]]] = {}
        for _ in range(KILLS):
            await asyncio.sleep(chance.uniform(0.1, 0.6))
            serving.kill()
            follow(serving, accepted, followed)
            await asyncio.to_thread(serving.start)
        await asyncio.gather(*submitting)
        follow(serving, accepted, followed)
        assert len(accepted) == len(set(accepted.values())) == runs
        for run_id, reading in followed.items():
            sent = await reading
            assert [int(each.id or 0) for each in sent] == list(range(1, len(sent) + 1))
            assert sent[-1].data["data"]["outcome"] == "completed", (run_id, sent[-1])
        told = await feed
        positions = [int(each.id or 0) for each in told]
        assert positions == sorted(set(positions))
        assert {each.data["run_id"] for each in told} == set(accepted.values())
        for run_id, reading in followed.items():
            sequences = [each.data["sequence"] for each in told if each.data["run_id"] == run_id]
            assert sequences == list(range(1, len(reading.result()) + 1))
        assert serving.token not in await asyncio.to_thread(serving.stop)
        for log in (home / "logs").iterdir():
            assert serving.token not in log.read_text()


def follow(serving: Serving, accepted: dict[str, str], followed: dict[str, "asyncio.Task[list[Sent]]"]) -> None:
    """Read the stream of every run that was taken and is not read yet."""
    for run_id in accepted.values():
        if run_id not in followed:
            path = f"/v1/runs/{run_id}/events"
            followed[run_id] = asyncio.create_task(read_to_the_end(serving, path, ends(1)))


def ends(count: int) -> Done:
    """Return whether this many runs have ended in the stream."""

    def done(sent: list[Sent]) -> bool:
        return sum(each.type == "run_end" for each in sent) >= count

    return done
