"""`treadle usage`: what was used, by agent, model, day, token, user or tag."""

from datetime import UTC
from typing import Annotated, Literal

from treadle.bootstrap.callers import open_readonly_caller
from treadle.domain.money import format_amount
from treadle.operations.usage import UsageLine, UsageQuery, compute_usage, total
from treadle.surfaces.cli.command_line import Group, Option
from treadle.surfaces.cli.shared_options import Json, OnlyTags, OnlyUser
from treadle.surfaces.terminal.output import Column, format_count, note, parse_since, print_list

NO_KEY = "-"
group = Group()


@group.command("usage")
async def show_usage(
    agent: Annotated[
        list[str] | None, Option("-a", "--agent", metavar="NAME", help="Only this agent. Repeatable.")
    ] = None,
    since: Annotated[
        str | None, Option(metavar="TIME", help="The days (UTC) since 2h or 7d ago, or since 2026-03-01.")
    ] = None,
    by: Annotated[
        Literal["agent", "model", "day", "token", "user", "tag"],
        Option(help="Group by agent, model, day, token, user or tag. A run with two tags counts for both."),
    ] = "agent",
    tag: OnlyTags = None,
    user: OnlyUser = None,
    json: Json = False,
) -> int:
    """Show runs, calls, tokens, cost and credits."""
    agents = tuple(agent or ()) or None
    first_day = None if since is None else parse_since(since).astimezone(UTC).date().isoformat()
    async with open_readonly_caller() as caller:
        owners = None if user is None else caller.context.visible_owners(user)
        query = UsageQuery(by=by, agents=agents, since=first_day, owners=owners, tags=tuple(tag or ()))
        lines = await compute_usage(caller.context.service.accounts, query)
    # lines of tags overlap
    shown = [*lines, total(lines)] if len(lines) > 1 and by != "tag" and not json else lines
    is_filtered = any((since, agents, tag, user))
    empty = "No usage matches." if is_filtered else "No usage yet."
    head = (
        Column(by.upper(), shrinks_to=12),
        *(Column(name, is_number=True) for name in ("RUNS", "CALLS", "IN")),
        Column("CACHED", is_optional=True, is_number=True),
        *(Column(name, is_number=True) for name in ("OUT", "TOOLS", "COST")),
        Column("CREDITS", is_optional=True, is_number=True),
    )
    print_list(shown, head, _row, json=json, empty=empty)
    unpriced = sum(line.unpriced_calls for line in lines)
    if unpriced and not json:
        note(
            f"The cost of {format_count(unpriced, 'call')} is unknown: add the prices of the models to config.yaml."
        )
    return 0


def _row(line: UsageLine) -> tuple[str, ...]:
    return (
        line.key or NO_KEY,
        f"{line.runs:,}",
        f"{line.model_calls:,}",
        f"{line.input_tokens:,}",
        f"{line.cache_read_tokens:,}",
        f"{line.output_tokens:,}",
        f"{line.tool_calls:,}",
        _cost(line),
        format_amount(line.credits),
    )


def _cost(line: UsageLine) -> str:
    """Return the cost in dollars, as far as prices are known."""
    return "unknown" if line.unpriced_calls and not line.cost else f"${format_amount(line.cost)}"
