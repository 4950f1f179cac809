"""`treadle runs diff`: two runs side by side, and where they part first."""

from collections.abc import Iterator
from typing import Any

import msgspec

from treadle.bootstrap.callers import open_readonly_caller
from treadle.domain.ids import RunId
from treadle.domain.runs import Metrics
from treadle.operations.run_diff import Differs, RunDiff, diff
from treadle.surfaces.cli.replays import COME, GONE, coloured
from treadle.surfaces.cli.tables import print_table
from treadle.surfaces.cli.terminal import one_line, print_json
from treadle.surfaces.cli.tree import cost_of

SHOWN = 60
"""Characters of a text in the table."""


async def diff_runs(a: str, b: str, json: bool) -> int:
    async with open_readonly_caller() as client:
        found = await diff(client, RunId(a), RunId(b))
    if json:
        print_json(found)
        return 0
    print_table(("", "A", "B"), list(_rows(found)))
    for line in _lines(found):
        print(line)
    return 0


def _rows(found: RunDiff) -> Iterator[tuple[str, str, str]]:
    a, b = found.a, found.b
    yield "run", a.run_id, b.run_id
    yield "agent", a.agent, b.agent
    yield "model", a.model, b.model
    yield "message", one_line(a.message, SHOWN), one_line(b.message, SHOWN)
    yield "outcome", a.outcome or "not ended", b.outcome or "not ended"
    yield from zip(_NAMES, _told(a.metrics), _told(b.metrics), strict=True)


_NAMES = ("steps", "model calls", "tool calls", "tokens in", "tokens out", "cost", "duration")


def _told(used: Metrics) -> tuple[str, ...]:
    numbers = (used.steps, used.model_calls, used.actions, used.input_tokens, used.output_tokens)
    return (*map(str, numbers), cost_of(used), f"{used.duration_ms / 1000:.1f} s")


def _lines(found: RunDiff) -> Iterator[str]:
    if found.forked:
        yield ""
        yield found.forked
    if found.agent:
        yield ""
        yield "the agents differ:"
        yield from _pairs(found.agent)
    yield ""
    if found.parting is None:
        count = found.same_steps
        yield f"all {count} steps are the same" if count != 1 else "the only step is the same"
    else:
        numbers = [
            "which has no such step" if step is None else f"step {step}"
            for step in (found.parting.a, found.parting.b)
        ]
        yield f"they part at {numbers[0]} of A, {numbers[1]} of B; {found.same_steps} steps before are the same:"
        yield from _pairs(found.parting.differs)
    if found.outcome:
        yield ""
        yield "what came of them differs:"
        yield from _pairs(found.outcome)


def _pairs(differs: tuple[Differs, ...]) -> Iterator[str]:
    for each in differs:
        yield f"  {each.what}"
        yield coloured(f"  - {_value(each.a)}", GONE)
        yield coloured(f"  + {_value(each.b)}", COME)


def _value(value: Any) -> str:
    if value is None:
        return "(not there)"
    return one_line(value if isinstance(value, str) else msgspec.json.encode(value).decode())
