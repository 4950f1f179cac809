"""Workers and servers on one PostgreSQL, in real processes that are killed with -9 while they work: small versions
of `python -m bench.chaos`, with short leases, and of `python -m bench.channels`."""

import asyncio
import random
import sys
from pathlib import Path

from bench.channels import find_faults, measure
from bench.chaos import checks, model
from bench.chaos.clients import Clients, open_clients
from bench.chaos.cluster import Cluster, open_cluster

from tests.patience import HANG_SECONDS
from tests.stores.postgres.servers import shared

RUNS, STEPS, WORKERS = 12, 4, 2
SECOND = 2
"""Of these have another in their session."""
QUICK = """
import treadle.ports.journal as journal

journal.LEASE_SECONDS, journal.RENEW_SECONDS = 3.0, 0.5
from treadle.surfaces.cli import main

main()
"""
"""The command with shorter leases, so that another worker takes over sooner."""
STARVED = ("taken over without a blow", "outcome unknown without a blow")
"""A machine that runs the whole suite at once may well keep a worker from renewing so short a lease."""


async def wait_for_effects(many: int, folder: Path) -> None:
    """Wait until there were so many effects."""
    while len(model.read_effects(folder)) < many:  # noqa: ASYNC110 -- other processes write
        await asyncio.sleep(0.01)


async def kill_some(members: Cluster, folder: Path) -> None:
    for many, member in zip((2, 8, 12), (members.workers[0], members.servers[0], members.workers[1]), strict=True):
        await wait_for_effects(many, folder)
        members.kill(member)


async def wait_until_all_shown(asked: Clients, found: checks.Observations) -> None:
    """Wait until the reader of all runs has seen as many events as there are."""
    many = sum(map(len, found.events.values()))
    while sum(seen.last for seen in asked.of_feed.values()) < many:  # noqa: ASYNC110 -- another process sends them
        await asyncio.sleep(0.01)


async def run_chaos(url: str, folder: Path) -> checks.ChaosVerdict:
    chance, command = random.Random(8), (sys.executable, "-c", QUICK)
    async with (
        model.serve_model(0.1) as model_url,
        open_cluster(url, model.install(folder, model_url), folder, command) as members,
    ):
        await members.start(WORKERS, 1, RUNS)
        async with open_clients(members.doors, members.token) as asked, asyncio.timeout(HANG_SECONDS):
            beside = [asyncio.create_task(work) for work in (asked.approve_forever(), asked.read_all_forever())]
            following = [
                asked.submit_and_follow(str(number), model.make_requested_run(number, STEPS, chance), number == 0)
                for number in range(RUNS)
            ]
            await asyncio.gather(kill_some(members, folder), *following)
            found = await checks.gather(members, asked, folder)
            await wait_until_all_shown(asked, found)
            for task in beside:
                task.cancel()
    assert len(members.kills) == 3
    assert any(blow.held for blow in members.blows), "nothing was under way when workers were killed"
    assert asked.doubled == []
    assert not asked.refusals
    return checks.judge(found)


def test_runs_of_killed_processes_are_taken_over_with_nothing_lost_or_repeated(
    testrun_uid: str, tmp_path: Path
) -> None:
    with shared(testrun_uid).one() as url:
        verdict = asyncio.run(run_chaos(url, tmp_path))
    assert [fault for fault in verdict.faults if not fault.startswith(STARVED)] == []
    rows = {what: value for what, value, _ in verdict.rows}
    assert rows["runs acknowledged"] == str(RUNS + SECOND)
    assert int(rows["runs in the database, with children"]) > RUNS + SECOND
    assert int(rows["approvals decided"]) > 0


def test_two_servers_that_are_killed_answer_every_message_once_and_in_order(
    testrun_uid: str, tmp_path: Path
) -> None:
    platforms = ("matrix", "email")
    with shared(testrun_uid).one() as url:
        found = asyncio.run(measure(4, 2, 3, 1, tmp_path, True, platforms, url, servers=2))
    assert find_faults(found, platforms) == [], found
    assert all(found[f"{name} answered"] + found[f"{name} reported"] == 6 for name in platforms), found
