"""Runs as `treadle runs list` and `treadle runs show` print them."""

import sys
from collections.abc import Sequence

from treadle.domain.durations import format_duration
from treadle.domain.labels import format_metadata
from treadle.domain.money import format_amount
from treadle.domain.runs import Metrics
from treadle.domain.users import LOCAL_USER
from treadle.operations.operation import Caller
from treadle.operations.runs import SHOW, RunDetail, RunView, ShowRun
from treadle.surfaces.cli.tree_view import cost_of
from treadle.surfaces.terminal.output import (
    Column,
    format_count,
    local_time,
    print_fields,
    print_table,
    short_ids,
    when,
)
from treadle.surfaces.terminal.text import inert

MESSAGE_COLUMN = Column("MESSAGE", shrinks_to=20)


def print_run(view: RunDetail, waits: Sequence[str]) -> None:
    """Print the fields of a run, what it waits for, its usage and its answer."""
    print_fields(
        (
            *(("run", view.run_id), ("session", view.session_id), ("agent", name_agent(view))),
            *(("parent run", view.parent_run_id), ("user", "" if view.owner == LOCAL_USER else view.owner)),
            *(("state", state_of(view)), ("created", f"{local_time(view.created_at)}, {when(view.created_at)}")),
            *(("tags", " ".join(view.tags)), ("metadata", ", ".join(format_metadata(view.metadata)))),
            ("message", view.message),
        )
    )
    print_fields(("waits for", line) for line in waits)
    result = view.result
    if result is None:
        return
    metrics = result.metrics
    cost = f"{cost_of(metrics)}, {format_amount(metrics.credits)} credits"
    reasons = f": {result.score_reasons}" if result.score_reasons else ""
    score = "" if result.score is None else f"{result.score:.2f}{reasons}"
    print_fields(
        (
            *(("reason", result.reason), ("next", result.next)),
            *(("used", f"{describe_usage(metrics)}, {describe_time(metrics.duration_ms)}"), ("cost", cost)),
            *(("score", score), ("diagnosis", result.diagnosis)),
        )
    )
    if result.text:
        print(f"\n{inert(result.text) if sys.stdout.isatty() else result.text}")


def name_agent(view: RunDetail) -> str:
    """Return the agent of a run with its version, if it has one."""
    return view.agent if view.version is None else f"{view.agent}, version {view.version}"


def print_runs(views: Sequence[RunView], messages: Sequence[str]) -> None:
    """Print a table of runs with the first line of their messages."""
    names = short_ids([view.run_id for view in views])
    rows = [
        (name, when(view.created_at), state_of(view), view.agent, message)
        for name, view, message in zip(names, views, messages, strict=True)
    ]
    print_table(("RUN", "CREATED", "STATE", Column("AGENT", shrinks_to=8), MESSAGE_COLUMN), rows)


async def read_messages(caller: Caller, views: Sequence[RunView]) -> list[str]:
    """Return the message of each run, or the command that it carries out, which its summary does not hold."""
    return [view.summary or (await caller.call(SHOW, ShowRun(view.run_id))).message for view in views]


def state_of(run: RunView) -> str:
    """Return the outcome of a run that has ended, what it waits for, or its status."""
    return run.outcome or (f"waiting: {run.waiting_for}" if run.waiting_for else run.status)


def describe_usage(metrics: Metrics) -> str:
    """Return the steps, calls and tokens of a run."""
    counts = (
        *(format_count(metrics.steps, "step"), format_count(metrics.model_calls, "model call")),
        *(format_count(metrics.actions, "tool call"), f"{format_count(metrics.input_tokens, 'token')} in"),
    )
    return f"{', '.join(counts)}, {metrics.output_tokens:,} out"


def describe_time(milliseconds: int) -> str:
    """Return a time as people write it: `40 ms`, `2.5 s` or `12 min`."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    return f"{milliseconds / 1000:.1f} s" if milliseconds < 60_000 else format_duration(milliseconds / 1000)
