"""The steps of a run as `treadle runs steps` prints them."""

import sys
from collections.abc import Iterator

from treadle.domain.money import format_amount
from treadle.operations.run_records import CallRecord, RunSteps, StepRecord, SummaryRecord
from treadle.surfaces.cli.run_view import describe_time, describe_usage
from treadle.surfaces.terminal.output import note
from treadle.surfaces.terminal.text import columns, cut, one_line


def print_steps(records: RunSteps) -> None:
    """Print the steps of a run, with time and tokens of each."""
    if not records.steps and not records.summaries:
        note("No steps yet.")
        return
    width = columns() if sys.stdout.isatty() else None
    for line in _lines(records):
        print(cut(line, width))


def _lines(records: RunSteps) -> Iterator[str]:
    left = list(records.summaries)
    for step in records.steps:
        while left and left[0].before_step <= step.number:
            yield _summary(left.pop(0))
        yield from _step(step)
    yield from map(_summary, left)
    used = records.metrics
    rate = f", {records.cache_hit_rate:.0%} of the input from the cache" if used.cache_read_tokens else ""
    yield f"{describe_usage(used)}{rate}"
    cost = f", ${format_amount(used.cost)}" if used.cost else ""
    times = (
        f"{describe_time(used.model_ms)} in the model",
        f"{describe_time(used.tool_ms)} in tools",
        f"{describe_time(records.overhead_ms)} elsewhere",
    )
    yield f"{describe_time(used.duration_ms)}: {', '.join(times)}{cost}"


def _step(step: StepRecord) -> Iterator[str]:
    used = step.used
    attempts = f", {step.attempts} attempts" if step.attempts > 1 else ""
    first = f", first token after {describe_time(step.first_token_ms)}" if step.first_token_ms is not None else ""
    going = "" if step.is_over else ", in progress"
    yield (
        f"step {step.number}  {one_line(f'{step.provider}/{step.model}')}  {describe_time(step.duration_ms)}"
        f"{attempts}{first}  {used.input_tokens} in, {used.output_tokens} out{going}"
    )
    for failure in step.failures:
        yield f"    attempt {failure.attempt} failed ({failure.kind}): {one_line(failure.message)}"
    if step.reasoning:
        yield f"    reasoning: {one_line(step.reasoning)}"
    if step.text:
        yield f"    text: {one_line(step.text)}"
    yield from map(_call, step.calls)


def _call(call: CallRecord) -> str:
    output = f" → {one_line(call.output)}" if call.output else ""
    return (
        f"    {one_line(call.tool)} {one_line(call.input)}  {call.status} {describe_time(call.duration_ms)}{output}"
    )


def _summary(summary: SummaryRecord) -> str:
    ended = "" if summary.is_done else ", failed"
    used = summary.used
    return (
        f"summary  {one_line(f'{summary.provider}/{summary.model}')}  {describe_time(used.model_ms)}  "
        f"{used.input_tokens} in, {used.output_tokens} out{ended}"
    )
