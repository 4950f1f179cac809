"""`treadle usage`: what was used, by agent, model, day or token."""

from collections.abc import Sequence

from treadle.bootstrap.callers import open_readonly_caller
from treadle.operations.usage import UsageLine, UsageQuery, total
from treadle.ports.accounts import UsageKey
from treadle.surfaces.cli.event_output import note
from treadle.surfaces.cli.tables import print_table
from treadle.surfaces.cli.terminal import amount, print_json

NONE = "-"


async def show_usage(agents: tuple[str, ...] | None, since: str | None, by: UsageKey, json: bool) -> int:
    async with open_readonly_caller() as caller:
        lines = await caller.context.service.usage(UsageQuery(by, agents, since))
    if json:
        for line in lines:
            print_json(line)
    elif lines:
        _print(lines, by)
    else:
        note("nothing was used yet" if since is None and agents is None else "nothing was used there")
    return 0


def _print(lines: Sequence[UsageLine], by: UsageKey) -> None:
    head = (by.upper(), "RUNS", "CALLS", "IN", "CACHED", "OUT", "TOOLS", "COST", "CREDITS")
    summed = (*lines, total(lines)) if len(lines) > 1 else lines
    print_table(head, [_row(line) for line in summed])
    unpriced = sum(line.unpriced_calls for line in lines)
    if unpriced:
        note(f"what {unpriced} calls cost is not known: give the prices of their models in config.yaml")


def _row(line: UsageLine) -> tuple[str, ...]:
    return (
        line.key or NONE,
        f"{line.runs:,}",
        f"{line.model_calls:,}",
        f"{line.input_tokens:,}",
        f"{line.cache_read_tokens:,}",
        f"{line.output_tokens:,}",
        f"{line.tool_calls:,}",
        f"${amount(line.cost)}",
        amount(line.credits),
    )
