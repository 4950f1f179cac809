"""`python -m bench.chaos`: workers and servers on one PostgreSQL, killed with -9 every two seconds under load. One
worker is stopped past its lease, and the database is restarted twice, once by a crash. Prints the results and
whether the bar is met, and exits with 1 if it is not."""

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.chaos import checks, model
from bench.chaos.clients import Clients, open_clients
from bench.chaos.cluster import Cluster, Restart, open_cluster, open_postgres

STOP_SECONDS = 15.0
REPORT_INTERVAL_SECONDS = 5.0
CHECK_INTERVAL_SECONDS = 0.3
SLOTS_TAKEN = """
SELECT count(*) FROM runs JOIN agents USING (agent_id) WHERE name = 'few' AND worker IS NOT NULL AND outcome IS NULL
"""
FEED_TIMEOUT_SECONDS = 2.0
"""How long the feed may take to show the last events after all runs have ended."""
REPEATED_KEY_INTERVAL = 10
"""One of this many runs is submitted again with its key."""


def print_progress(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)


class ChaosRun:
    """One chaos run: the load, and the faults of the processes meanwhile."""

    def __init__(self, options: argparse.Namespace, members: Cluster, asked: Clients, restart: Restart) -> None:
        self._options = options
        self._members = members
        self._clients = asked
        self._restart = restart
        self._chance = random.Random(options.seed)
        self._ended = 0
        self._waiting: list[tuple[float, asyncio.Event]] = []
        """Faults that are due when a number of runs have ended."""
        self.most_places = 0
        """The most slots ever taken of the agent that has few."""
        self.troubles: list[str] = []
        """Faults that ended before the runs did."""

    async def run(self) -> bool:
        """Return whether all runs ended in time, as seen by their readers."""
        troubles = [
            asyncio.create_task(self._when(share, name, work))
            for share, name, work in (
                (0.2, "PostgreSQL restarted", lambda: self._members.restart_database(self._restart, "fast")),
                (0.4, "a worker stopped", lambda: self._members.stop_one(self._chance, STOP_SECONDS)),
                (0.7, "PostgreSQL crashed", lambda: self._members.restart_database(self._restart, "immediate")),
            )
        ]
        beside = [
            asyncio.create_task(work)
            for work in (
                self._clients.approve_forever(),
                self._clients.read_all_forever(),
                self._kill_forever(),
                self._replace_forever(),
                self._look_forever(),
                self._say_forever(),
            )
        ]
        try:
            async with asyncio.timeout(self._options.patience):
                await self._load()
                await asyncio.gather(*troubles)
        except TimeoutError:
            return False
        else:
            for task in beside[2:]:  # no more faults
                task.cancel()
            await asyncio.sleep(FEED_TIMEOUT_SECONDS)
            return True
        finally:
            for task in (*troubles, *beside):
                task.cancel()
            await asyncio.wait((*troubles, *beside))

    async def _load(self) -> None:
        chance, waiting = random.Random(self._options.seed), iter(range(self._options.runs))

        async def one_after_another() -> None:
            for number in waiting:
                wish = model.make_requested_run(number, self._options.steps, chance)
                await self._clients.submit_and_follow(f"key-{number}", wish, number % REPEATED_KEY_INTERVAL == 0)
                self._ended += 1
                for many, event in self._waiting:
                    if self._ended >= many:
                        event.set()

        async with asyncio.TaskGroup() as group:
            for _ in range(self._options.at_once):
                group.create_task(one_after_another())

    async def _when(self, share: float, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do this when a share of the runs has ended."""
        come = asyncio.Event()
        self._waiting.append((share * self._options.runs, come))
        await come.wait()
        print_progress(f"{name}: now")
        began = time.monotonic()
        await work()
        self.troubles.append(name)
        print_progress(f"{name}: done, {time.monotonic() - began:.1f} s")

    async def _kill_forever(self) -> None:
        while True:
            await asyncio.sleep(self._options.kill_every)
            self._members.kill_one(self._chance)

    async def _replace_forever(self) -> None:
        while True:
            await asyncio.sleep(self._options.replace_every)
            self._members.tell_one_to_stop(self._chance)

    async def _look_forever(self) -> None:
        while True:
            [(taken,)] = await self._members.ask(SLOTS_TAKEN)
            self.most_places = max(self.most_places, taken)
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)

    async def _say_forever(self) -> None:
        while True:
            await asyncio.sleep(REPORT_INTERVAL_SECONDS)
            acknowledged, kills = len(self._clients.acknowledged), len(self._members.kills)
            print_progress(f"{acknowledged} runs acknowledged, {self._ended} ended; {kills} processes killed")


async def run_chaos(options: argparse.Namespace, folder: Path, url: str, restart: Restart) -> checks.ChaosVerdict:
    async with model.serve_model(options.pace / 1000) as model_url:
        environment = model.install(folder, model_url)
        async with open_cluster(url, environment, folder) as members:
            await members.start(options.workers, options.servers, options.concurrency)
            print_progress(f"{options.workers} workers and {options.servers} servers are up, on {url}")
            async with open_clients(members.doors, members.token) as asked:
                chaos, began = ChaosRun(options, members, asked, restart), time.monotonic()
                in_time = await chaos.run()
                seconds = time.monotonic() - began
                verdict = checks.judge(await checks.gather(members, asked, folder))
    verdict.note("seconds", f"{seconds:.0f}")
    verdict.none("out of time", [] if in_time else [f"{options.patience:.0f} s were not enough"])
    verdict.at_most("slots taken of an agent with few", chaos.most_places, model.FEW_SLOTS)
    verdict.at_least("faults besides kills", len(chaos.troubles), 3)
    verdict.note("processes killed", len(members.kills))
    verdict.note("processes told to stop", len(members.told_to_stop))
    verdict.none("of these, ended badly", [said for each in members.members for said in each.badly])
    verdict.none("two runs under one key", asked.doubled)
    verdict.none("unexpected responses", [f"{what}: {times} times" for what, times in asked.refusals.items()])
    verdict.none("unexpected errors", members.unforeseen())
    verdict.note("processes that ended on their own", sum(len(each.by_itself) for each in members.members))
    for said in [said for each in members.members for said in each.by_itself]:
        print_progress(said)
    return verdict


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.chaos", description=__doc__)
    for name, value, text in (
        ("runs", 300, "runs to submit"),
        ("steps", 10, "steps of each"),
        ("at-once", 60, "runs that are submitted and followed at a time"),
        ("workers", 3, "worker processes"),
        ("servers", 2, "server processes"),
        ("concurrency", 40, "runs that a worker executes at once"),
        ("kill-every", 2.0, "seconds between two kills"),
        ("replace-every", 5.0, "seconds between two stop requests, as for an upgrade"),
        ("pace", 200.0, "milliseconds that the model takes to answer"),
        ("patience", 900.0, "seconds after which a run that has not ended is stuck"),
        ("seed", 1, "seed of the random generator"),
    ):
        parser.add_argument(f"--{name}", type=type(value), default=value, help=f"{text} ({value})")
    parser.add_argument("--keep", action="store_true", help="keep the logs even if the bar is met")
    options = parser.parse_args()
    folder, keep = Path(tempfile.mkdtemp(prefix="chaos")), True
    try:
        with open_postgres() as (url, restart):
            verdict = asyncio.run(run_chaos(options, folder, url, restart))
        keep = options.keep or not verdict.met
    finally:
        if keep:
            print_progress(f"the logs are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    for what, value, held in verdict.rows:
        print(f"{what:44}{value:>20}{'' if held else '   <- NOT met'}")
    for fault in verdict.faults:
        print(fault)
    print("the bar is met" if verdict.met else "the bar is NOT met")
    return 0 if verdict.met else 1


if __name__ == "__main__":
    sys.exit(main())
