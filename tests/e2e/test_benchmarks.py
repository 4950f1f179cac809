"""Every benchmark that a page names runs, here at a small size. Its figures are not judged: the machine is busy."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import HANG_SECONDS

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
NAMED = re.compile(r"python -m (bench(?:\.[a-z_]+)?)(?: +([a-z]+))?")
SMALL = {
    "bench.channel_idle": "--conversations 10 --seconds 0.5",
    "bench.channels": "--kills 1 --people 2 --messages 2 --platforms matrix",
    "bench.chaos": "--runs 6 --workers 1 --servers 1 --at-once 6 --steps 2",
    "bench.client_tools": "--calls 20 --rounds 1 --waiting 10",
    "bench.command_start": "",
    "bench.compaction": "--compactions 2 --embedded 0",
    "bench.dashboard": "--runs 2000",
    "bench.dashboard_heap": "--minutes 0.2",
    "bench.fork": "--steps 10 --rounds 1",
    "bench.growth": "--runs 1000 --store sqlite",
    "bench.hierarchy": "--roots 2 --rounds 1",
    "bench.http_client": "--calls 10 --tokens 10",
    "bench.isolation": "--kills 4 --runs 4",
    "bench.load": "--calls 200 --readers 10 --attachment-mb 2",
    "bench.mixed_load": "--kills 1 --at-once 4",
    "bench.postgres": "--rounds 1 --seconds 0.1 --runs 20",
    "bench.postgres throughput": "--rounds 1 --runs 10 --concurrency 5 --workers 1",
    "bench.processes": "--runs 10 --rounds 1 --concurrency 5",
    "bench.recall cost": "",
    "bench.recall questions": "",
    "bench.scale simulate": "--seconds 1",
    "bench.service kill": "--times 1 --concurrency 2",
    "bench.service latency": "--runs 5 --pace 20 --concurrency 2",
    "bench.service streams": "--count 70",
    "bench.service throughput": "--runs 10 --concurrency 70 --rounds 1",
    "bench.startup": "--rounds 1",
    "bench.tokens": "",
    "bench.tools": "",
    "bench.tui": "--only help",
}
"""The options for a small size."""
LARGE = {
    "bench": "needs the environments of the peers from the package index",
    "bench.context": "has a fixed session of 1,000 steps",
    "bench.evaluations": "its smallest part has hundreds of simulated runs",
    "bench.rewind": "writes 20,000 files",
    "bench.first_calls": "has fixed messages to the embedded model, for minutes",
    "bench.first_success": "has ten fixed commands with the embedded model",
    "bench.instructions": "counts instructions under valgrind, for minutes",
    "bench.recall": "`questions` and `cost` are its parts; the third fills a memory with 100,000 entries",
    "bench.recovery": "has fixed calls of 3 s, for minutes",
    "bench.scale": "fills a database for minutes",
}
"""Benchmarks without a small size, and why."""


def list_named() -> set[str]:
    """Return the benchmarks that pages name, with the word that chooses a part."""
    known = {*SMALL, *LARGE}
    found = set[str]()
    for page in PAGES:
        for module, part in NAMED.findall(page.read_text()):
            found.add(f"{module} {part}" if f"{module} {part}" in known else module)
    return found


def test_every_benchmark_that_a_page_names_is_listed_here() -> None:
    assert list_named() - {*SMALL, *LARGE, "bench.service"} == set()


@pytest.mark.parametrize("name", SMALL)
def test_a_benchmark_runs(name: str) -> None:
    command = [sys.executable, "-m", *name.split(), *SMALL[name].split()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=2 * HANG_SECONDS, check=False)
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert done.stdout
