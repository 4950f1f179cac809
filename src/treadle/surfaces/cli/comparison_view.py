"""Differences between runs: a replay against its record, and two runs against each other."""

import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from treadle.domain.runs import Metrics
from treadle.operations.replays import Replayed
from treadle.operations.run_diff import Differs, RunDiff
from treadle.surfaces.cli.run_view import describe_time
from treadle.surfaces.cli.tree_view import cost_of
from treadle.surfaces.terminal.output import Column, print_table, short_ids
from treadle.surfaces.terminal.text import columns, cut, one_line, supports_colour

REMOVED, ADDED = "31", "32"
"""Colours."""
MAX_TEXT = 60
"""Characters of a text in the table."""


# ── Replay ──


def describe_replay(replayed: Replayed) -> Iterator[str]:
    """Yield the result of a replay: how many events are the same, and the first that differs."""
    run_id, divergence = replayed.run_id, replayed.divergence
    if divergence is None:
        count = f"{replayed.same} of {replayed.events} events are the same"
        yield f"{run_id}: {count}" + (
            f". The rest cannot be replayed: {replayed.cannot}" if replayed.cannot else ""
        )
        yield from _describe_wording(replayed)
        return
    yield f"{run_id} differs at event {divergence.sequence}; the {replayed.same} events before it are the same"
    if divergence.type != divergence.today_type:
        yield from _recorded_and_now(
            f"{divergence.type} {_json(divergence.recorded)}", f"{divergence.today_type} {_json(divergence.today)}"
        )
    else:
        yield f"  {divergence.type}"
        for each in divergence.differences:
            yield f"  {each.path}"
            yield from _recorded_and_now(_json(each.recorded), _json(each.today))
    if divergence.request_differs is not None:
        parts = ", ".join(divergence.request_differs)
        yield f"  the request differs in: {parts}" if parts else "  the request is the same"


def _json(value: Any) -> str:
    return "" if value is None else msgspec.json.encode(value).decode()


def _recorded_and_now(recorded: str, today: str) -> Iterator[str]:
    yield colour_line(f"  - recorded  {one_line(recorded)}", REMOVED)
    yield colour_line(f"  + now       {one_line(today)}", ADDED)


def _describe_wording(replayed: Replayed) -> Iterator[str]:
    """Yield the events whose texts differ while their facts are the same."""
    for each in replayed.wording:
        fields = ", ".join(difference.path for difference in each.differences)
        yield f"  wording differs at event {each.sequence} ({each.type}): {fields}"


def colour_line(line: str, colour: str) -> str:
    """Return a line for the terminal, truncated to its width and coloured if it has colours."""
    shown = cut(line, columns() if sys.stdout.isatty() else None)
    return f"\x1b[{colour}m{shown}\x1b[0m" if supports_colour(sys.stdout) else shown


# ── Diff ──


def print_diff(found: RunDiff) -> None:
    """Print two runs next to each other, and where they first differ."""
    print_table(("", Column("A", shrinks_to=20), Column("B", shrinks_to=20)), list(_rows(found)))
    for line in _diff_lines(found):
        print(line)


def _rows(found: RunDiff) -> Iterator[tuple[str, str, str]]:
    a, b = found.a, found.b
    first, second = short_ids((a.run_id, b.run_id))
    yield "run", first, second
    yield "agent", a.agent, b.agent
    yield "model", a.model, b.model
    yield "message", one_line(a.message, MAX_TEXT), one_line(b.message, MAX_TEXT)
    yield "outcome", a.outcome or "not ended", b.outcome or "not ended"
    yield from zip(USAGE_NAMES, _usage(a.metrics), _usage(b.metrics), strict=True)


USAGE_NAMES = ("steps", "model calls", "tool calls", "tokens in", "tokens out", "cost", "duration")


def _usage(used: Metrics) -> tuple[str, ...]:
    numbers = (used.steps, used.model_calls, used.actions, used.input_tokens, used.output_tokens)
    return (*map(str, numbers), cost_of(used), describe_time(used.duration_ms))


def _diff_lines(found: RunDiff) -> Iterator[str]:
    if found.forked:
        yield ""
        yield found.forked
    if found.agent:
        yield ""
        yield "the agents differ:"
        yield from _pairs(found.agent)
    yield ""
    if not found.steps:
        count = found.same_steps
        yield f"all {count} steps are the same" if count != 1 else "the only step is the same"
    for number, step in enumerate(found.steps):
        a, b = ["no such step" if each is None else f"step {each}" for each in (step.a, step.b)]
        same = f"; {_count_same(found.same_steps)}" if found.same_steps and not number else ""
        yield f"{'next' if number else 'first'} difference at {a} of A, {b} of B{same}:"
        yield from _pairs(step.differs)
    if found.outcome:
        yield ""
        yield "the outcomes differ:"
        yield from _pairs(found.outcome)


def _count_same(steps: int) -> str:
    return "the step before is the same" if steps == 1 else f"the {steps} steps before are the same"


def _pairs(differs: tuple[Differs, ...]) -> Iterator[str]:
    for each in differs:
        yield f"  {each.what}"
        yield colour_line(f"  - {_value(each.a)}", REMOVED)
        yield colour_line(f"  + {_value(each.b)}", ADDED)


def _value(value: Any) -> str:
    if value is None:
        return "(none)"
    return one_line(value if isinstance(value, str) else msgspec.json.encode(value).decode())
