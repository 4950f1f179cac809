"""A run as `treadle runs show` prints it."""

import sys
from collections.abc import Sequence

import msgspec

from treadle.operations.runs import RunDetail
from treadle.surfaces.cli.output import amount, print_fields
from treadle.surfaces.cli.terminal import inert
from treadle.surfaces.cli.tree_view import cost_of

HIDDEN_FIELDS = ("result", "agent_id", "wake_at", "owner")
"""Fields that only `--json` prints; the result is printed below the others."""


def print_run(view: RunDetail, waits: Sequence[str]) -> None:
    """Print the fields of a run, what it waits for, its usage and its answer."""
    result = view.result
    fields = msgspec.structs.asdict(view).items()
    print_fields((name, value) for name, value in fields if name not in HIDDEN_FIELDS)
    print_fields(("waits for", line) for line in waits)
    if result is None:
        return
    metrics = result.metrics
    used = (
        f"{metrics.steps} steps, {metrics.model_calls} model calls, {metrics.actions} tool calls, "
        f"{metrics.input_tokens} tokens in, {metrics.output_tokens} out, {metrics.duration_ms / 1000:.1f} s"
    )
    cost = f"{cost_of(metrics)}, {amount(metrics.credits)} credits"
    reasons = f": {result.score_reasons}" if result.score_reasons else ""
    score = "" if result.score is None else f"{result.score:.2f}{reasons}"
    print_fields(
        (
            *(("reason", result.reason), ("next", result.next), ("used", used), ("cost", cost)),
            *(("score", score), ("diagnosis", result.diagnosis)),
        )
    )
    if result.text:
        print(f"\n{inert(result.text) if sys.stdout.isatty() else result.text}")
