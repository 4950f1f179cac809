"""Kill a server on SQLite under a mixed load: approvals, child runs, schedules, steering, streams and commands.

    python -m bench.mixed_load [--kills 60] [--at-once 40] [--seed 1]

After the last kill all runs must end within 30 s, each stream must reach the end of its run, no effect may be lost
or repeated, and no command may hang. The exit code is 1 if a bar is missed."""

import argparse
import asyncio
import itertools
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp

from bench.chaos import model
from bench.chaos.clients import Clients, open_clients
from bench.chaos.cluster import TREADLE, Member
from bench.recovery import Report
from treadle.bootstrap.offline_service import open_service_readonly

STEPS = 8
PACE_SECONDS = 0.2
"""How long the model takes to answer."""
MIN_LIFE_SECONDS, MAX_LIFE_SECONDS = 0.2, 3.0
"""A server is killed at a random time in this range after it was ready."""
END_LIMIT_SECONDS = 30.0
COMMAND_LIMIT_SECONDS = 60.0
STEER_SECONDS, COMMAND_SECONDS = 0.5, 3.0
PATIENCE_SECONDS = 300.0


class MixedLoad:
    """Clients that keep submitting runs until they are told to stop."""

    def __init__(self, clients: Clients, url: str, token: str, seed: int) -> None:
        self._clients, self._url, self._chance = clients, url, random.Random(seed)
        self._headers = {"Authorization": f"Bearer {token}"}
        self.is_over = False
        self.ended = self.steered = 0

    async def submit_forever(self, numbers: Iterator[int]) -> None:
        while not self.is_over:
            number = next(numbers)
            wish = model.make_requested_run(number, STEPS, self._chance)
            await self._clients.submit_and_follow(f"key-{number}", wish, number % 10 == 0)
            self.ended += 1

    async def schedule(self) -> None:
        """Create a schedule that starts a run every 10 seconds."""
        body = {"agent": "worker", "every": "10s", "message": model.SUBTASK}
        if await self._post("/v1/schedules", body) not in (200, 201):
            raise RuntimeError("the schedule was not created")

    async def steer_forever(self) -> None:
        """Send messages to runs in progress."""
        while not self.is_over:
            waiting = [run for run, seen in self._clients.seen.items() if seen.outcome is None]
            if waiting:
                path = f"/v1/runs/{self._chance.choice(waiting)}/messages"
                self.steered += await self._post(path, {"message": "Go on."}) == 202
            await asyncio.sleep(STEER_SECONDS)

    async def _post(self, path: str, body: dict[str, Any]) -> int | None:
        timeout = aiohttp.ClientTimeout(total=10)
        with suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with (
                aiohttp.ClientSession(headers=self._headers, timeout=timeout) as http,
                http.post(self._url + path, json=body) as response,
            ):
                if response.status >= 400 and response.status not in (404, 409, 503):
                    print(f"  {path}: {response.status} {(await response.text())[:200]}")
                return response.status
        return None


async def run_commands(environment: dict[str, str], slowest: list[float], load: MixedLoad) -> None:
    """Run commands that attach to the server, while it is killed."""
    for command in itertools.cycle((("runs", "list"), ("sessions", "list"), ("approvals", "list"))):
        if load.is_over:
            return
        began = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            TREADLE,
            *command,
            env={**os.environ, **environment},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            await asyncio.wait_for(process.wait(), COMMAND_LIMIT_SECONDS)
        except TimeoutError:
            process.kill()
        slowest.append(time.monotonic() - began)
        await asyncio.sleep(COMMAND_SECONDS)


async def kill_server(server: Member, kills: int, chance: random.Random) -> None:
    for number in range(1, kills + 1):
        await server.is_up()
        await asyncio.sleep(chance.uniform(MIN_LIFE_SECONDS, MAX_LIFE_SECONDS))
        server.kill()
        while server.works:  # noqa: ASYNC110 -- its end is noticed in a moment
            await asyncio.sleep(0.01)
        if number % 10 == 0:
            print(f"  {number} kills", flush=True)


async def list_unfinished(database: str) -> list[str]:
    async with open_service_readonly(database) as service:
        return [each.origin.run_id for each in await service.runs(limit=100_000) if each.outcome is None]


async def measure(given: argparse.Namespace, folder: Path, report: Report) -> None:
    chance, numbers, slowest = random.Random(given.seed), itertools.count(), list[float]()
    async with model.serve_model(PACE_SECONDS) as model_url:
        environment = model.install(folder, model_url)
        command = [TREADLE, "serve", "--log-format", "json", "--json", "--port", "0"]
        server = Member("server", command, environment, folder, lambda: None)
        await server.start()
        url, token = server.told["url"], server.told["token"]
        command[-1] = url.rpartition(":")[2]
        async with open_clients([url], token) as clients:
            load = MixedLoad(clients, url, token, given.seed)
            await load.schedule()
            approving = asyncio.create_task(clients.approve_forever())
            tasks = [asyncio.create_task(load.submit_forever(numbers)) for _ in range(given.at_once)]
            others = [
                asyncio.create_task(load.steer_forever()),
                asyncio.create_task(run_commands(environment, slowest, load)),
            ]
            began = time.monotonic()
            await kill_server(server, given.kills, chance)
            load.is_over, last_kill = True, time.monotonic()
            _, late = await asyncio.wait(tasks, timeout=PATIENCE_SECONDS)
            seconds = time.monotonic() - last_kill
            approving.cancel()
            await asyncio.wait(others)
            print(
                f"  {load.ended} runs ended, {load.ended / (last_kill - began):.1f} per second under kills; ",
                end="",
            )
            print(f"{load.steered} were steered, {len(slowest)} commands")
            report.check("seconds from the last kill until all runs have ended", seconds, END_LIMIT_SECONDS)
            report.check("streams without their end", sum(not each.outcome for each in clients.seen.values()), 0)
            report.check("faults of streams", sum(len(each.faults) for each in clients.seen.values()), 0)
            report.check("seconds of the slowest command", max(slowest), END_LIMIT_SECONDS)
            outcomes = Counter(each.outcome for each in clients.seen.values())
            print(f"  outcomes: {dict(outcomes)}; clients that still wait: {len(late)}")
            report.check("other outcomes than completed", len(outcomes.keys() - {"completed"}), 0)
            for task in late:
                task.cancel()
        await server.end()
        effects = Counter(model.read_effects(folder))
        report.check("effects that happened twice", sum(count > 1 for count in effects.values()), 0)
        for error in server.by_itself[:5]:
            print(f"  {error}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--at-once", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    folder, report = Path(tempfile.mkdtemp(prefix="mixed")), Report()
    try:
        asyncio.run(measure(given, folder, report))
    finally:
        if report.failures:
            print(f"the logs are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
