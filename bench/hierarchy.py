"""Runs that start child runs.

`storm`: a model that only starts child runs, and where that ends. `ceiling`: eight child runs that spend at the
same time, repeatedly, against the one ceiling of their tree."""

import argparse
import asyncio
import resource
import sqlite3
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import treadle
from treadle.api.engine import HostedEngine, create_engine
from treadle.config.home import Home
from treadle.domain.envelope import decode_data
from treadle.domain.events import BudgetReserved, LlmError, LlmResponse
from treadle.domain.runs import Usage
from treadle.ports.model import ModelRequest
from treadle.testing.models import FunctionModel, ScriptedFailure, ScriptStep, ask, call

ROOTS = 10
TREE = 32
"""The most runs under a root: the default limit of an agent."""
MEMORY_BAR = 100.0
"""Megabytes."""
ENDINGS = {"stuck", "cancelled"}
"""How the runs of a storm may end. The guard against stuck runs ends some, and they end their child runs."""
CHILDREN = 8
CEILING = 1.0
"""Dollars."""
ROUNDS = 200
AT_ONCE = 20
PRICES = "models: {scripted/x: {prices: {input: 100, output: 1000}, max_output: 1000}}"


def open_engine(folder: Path, model: FunctionModel) -> HostedEngine:
    engine = create_engine(f"sqlite:///{folder}/t.db", home=Home(folder / "home"))
    engine.add_model("scripted", model)
    return engine


# ── A storm ────────────────────────────────────────────────────────────────────────────────────────


async def run_storm(folder: Path, roots: int) -> Counter[str]:
    """Run a few roots whose runs only start four more each, and return the results."""
    numbers = count()
    model = FunctionModel(lambda _: ask(*(call("agent_spawn", message=f"go on {next(numbers)}") for _ in range(4))))
    async with open_engine(folder, model) as engine:
        hero = treadle.Agent(name="storm", model="scripted/x", tools=["agent_spawn"])
        await asyncio.gather(*(engine.run(hero, "begin") for _ in range(roots)))
        found = await engine.service.runs(limit=10 * roots * (TREE + 1))
        return Counter(str(record.outcome) for record in found)


def storm_report(roots: int) -> bool:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        outcomes = asyncio.run(run_storm(Path(folder), roots))
    seconds, peak = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    runs, allowed = outcomes.total(), roots * (TREE + 1)
    ended = ", ".join(f"{number} {outcome}" for outcome, number in sorted(outcomes.items()))
    print(
        f"a storm: {roots} runs that only begin others came to {runs} runs in {seconds:.1f} s "
        f"(bar {allowed}), which ended {ended}"
    )
    print(f"resident at most: {peak:.0f} MB (bar {MEMORY_BAR:.0f})")
    return runs <= allowed and set(outcomes) <= ENDINGS and peak < MEMORY_BAR


# ── A ceiling ──────────────────────────────────────────────────────────────────────────────────────


def make_spender() -> FunctionModel:
    """Return a model for eight child runs that call repeatedly. Every ninth attempt breaks off, and is charged all
    the same."""
    attempts, used = count(1), Usage(500, 40)

    async def answer(request: ModelRequest) -> ScriptStep:
        messages = request.conversation.messages
        if messages[0].text == "begin" and len(messages) == 1:
            return ask(*(call("agent_spawn", message=f"part {n}") for n in range(CHILDREN)), usage=used)
        await asyncio.sleep(0.001)
        number = next(attempts)
        if number % 9 == 0:
            return ScriptedFailure(text="half a")
        return ask(call("look", at=str(number)), usage=used)

    return FunctionModel(answer)


@treadle.tool(effect="read")
async def look(at: str) -> str:
    """Look."""
    return f"saw {at}"


async def run_spenders(folder: Path, rounds: int) -> None:
    """Let many trees reach their ceiling."""
    (folder / "home").mkdir()
    (folder / "home" / "config.yaml").write_text(PRICES)
    async with open_engine(folder, make_spender()) as engine:
        hero = treadle.Agent(
            name="spender",
            model="scripted/x",
            tools=["agent_spawn", look],
            limits={"cost": CEILING, "max_steps": 1000},
            model_settings={"max_tokens": 60},
            retry={"attempts": 3, "base_ms": 1},
        )
        for first in range(0, rounds, AT_ONCE):
            await asyncio.gather(*(engine.run(hero, "begin") for _ in range(first, min(rounds, first + AT_ONCE))))


def read_commits(folder: Path) -> Iterator[tuple[str, object]]:
    """Return the events of all runs in the order of commits: the run, and the event."""
    with closing(sqlite3.connect(folder / "t.db")) as database:
        rows = database.execute(
            "SELECT run_id, events.type, data FROM events JOIN runs ON runs.id = run "
            "WHERE events.type IN ('budget_reserved', 'llm_response', 'llm_error') ORDER BY position"
        )
        for run_id, type_, raw in rows:
            yield str(run_id), decode_data(str(type_), raw)


def find_most_used(folder: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Return what each tree spent in the end, and the most that it had spent and reserved at any commit."""
    spent, most = defaultdict[str, float](float), dict[str, float]()
    reserved: dict[str, dict[str, float]] = {}
    held: dict[str, BudgetReserved] = {}
    for run_id, data in read_commits(folder):
        match data:
            case BudgetReserved(accounts=accounts, cost=cost):
                held[run_id] = data
                for account in accounts:
                    reserved.setdefault(account, {})[run_id] = cost
                    together = spent[account] + sum(reserved[account].values())
                    most[account] = max(most.get(account, 0.0), together)
            case LlmResponse(cost=cost) | LlmError(cost=cost) if run_id in held:
                for account in held.pop(run_id).accounts:
                    del reserved[account][run_id]
                    spent[account] += cost or 0.0
            case _:
                pass
    return spent, most


def ceiling_report(rounds: int) -> bool:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run_spenders(Path(folder), rounds))
        spent, most = find_most_used(Path(folder))
    highest, mean = max(most.values()), sum(spent.values()) / len(spent)
    print(
        f"a ceiling of {CEILING:.2f} dollars over {CHILDREN} children at once, {len(most)} trees in "
        f"{time.monotonic() - began:.1f} s: spent {mean:.3f} on average, spent and reserved together at most "
        f"{highest:.6f} (bar {CEILING:.6f})"
    )
    return len(most) == rounds and highest <= CEILING * (1 + 1e-9)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.hierarchy", description=__doc__)
    parser.add_argument("which", choices=("all", "storm", "ceiling"), nargs="?", default="all")
    parser.add_argument("--roots", type=int, default=ROOTS, help="runs that a storm starts with")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="trees that reach their ceiling")
    options = parser.parse_args()
    good: list[bool] = []
    if options.which != "ceiling":
        good.append(storm_report(options.roots))
    if options.which != "storm":
        good.append(ceiling_report(options.rounds))
    print("all bars hold" if all(good) else "a bar does not hold")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
