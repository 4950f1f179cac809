"""`python -m bench.tools`: the CPU cost of a tool call in the engine.

A no-op tool is called many times in one turn, and the cost of the turn without it is subtracted. Then once more
with everything on: a hook, approval rules that allow the call, and a vault of twenty secrets whose redactor checks
every result."""

import asyncio
import statistics
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import treadle
from treadle.config.home import Home
from treadle.domain.messages import ToolUse
from treadle.testing.models import ScriptedModel, ScriptStep, ask, call, say
from treadle.vault.store import SecretGrant, VaultStore

STEPS = 40
CALLS = 10
ROUNDS = 5
BAR_MS = 0.3


@treadle.tool(effect="none", repeatable=True)
async def no_op(number: int) -> str:
    """Do nothing."""
    return f"nothing {number}"


class PassingHook(treadle.Hook):
    """A hook that lets everything pass."""


def make_script(calls: int) -> list[ScriptStep]:
    """Return calls that all have different arguments, so that no guard interferes."""
    steps: list[ScriptStep] = []
    for step in range(STEPS):
        uses: list[ToolUse] = [call("no_op", f"c{step}_{n}", number=step * CALLS + n) for n in range(calls)]
        steps.append(ask(*uses))
    return [*steps, say("done")]


async def measure_seconds(folder: Path, calls: int, everything: bool) -> float:
    """Return the CPU seconds of one run."""
    rules = [{"tool": "no_op", "do": "auto"}, {"tool": "bash", "match": "rm *", "do": "deny"}] if everything else []
    agent = treadle.Agent(
        name="bench",
        model="scripted/x",
        tools=[no_op],
        limits={"max_steps": None, "stuck_steps": 10**6},
        approvals={"default": "ask", "rules": rules} if everything else None,
    )
    engine = treadle.Engine(f"sqlite:///{folder}/t.db", home=Home(folder))
    engine.add_model("scripted", ScriptedModel(*make_script(calls)))
    if everything:
        engine.add_hooks(PassingHook())
    async with engine:
        began = time.process_time()
        result = await engine.run(agent, "go")
        spent = time.process_time() - began
    assert (result.outcome, result.metrics.actions) == ("completed", STEPS * calls), result
    return spent


def measure_call(everything: bool) -> float:
    """Return the CPU milliseconds of one call: the median of several rounds."""
    samples: list[float] = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            if everything:
                with closing(VaultStore(folder, {})) as vault:
                    for number in range(20):
                        vault.put(f"SECRET_{number}", f"value-of-secret-{number}", (SecretGrant("bench"),))
            one = asyncio.run(measure_seconds(folder, 1, everything))
            many = asyncio.run(measure_seconds(folder, CALLS, everything))
            samples.append((many - one) / (STEPS * (CALLS - 1)) * 1000)
    return statistics.median(samples)


def main() -> int:
    plain, whole = measure_call(everything=False), measure_call(everything=True)
    print(f"a no-op call:                                   {plain:.3f} ms of CPU")
    print(f"with a hook, rules and a vault of 20 secrets:   {whole:.3f} ms of CPU")
    print(f"the bar:                                        {BAR_MS} ms")
    return 0 if max(plain, whole) <= BAR_MS else 1


if __name__ == "__main__":
    sys.exit(main())
