"""A run with its child runs, as `treadle runs tree` prints them."""

from collections.abc import Sequence

from treadle.domain.money import format_cost
from treadle.domain.runs import Metrics
from treadle.operations.run_inspection import RunTree, TreeMember
from treadle.surfaces.terminal.output import Column, format_count, print_json, print_table, short_id

HEAD = (
    *("RUN", Column("AGENT", shrinks_to=8), "STATE", Column("STEPS", is_number=True)),
    *(Column("TOKENS", is_number=True), Column("COST", is_number=True)),
)


def print_tree(tree: RunTree, *, json: bool) -> None:
    """Print a run and its child runs with what each has used, and the sums."""
    if json:
        print_json(tree)
        return
    rows = [_row(member) for member in tree.members]
    if len(rows) > 1:
        rows.append(_sum(tree))
    print_table(HEAD, rows, _leads(tree.members))


def _leads(members: Sequence[TreeMember]) -> list[str]:
    """Return the lines before each run that show its place in the tree."""
    open_above: list[bool] = []
    leads: list[str] = []
    for member in members:
        if member.depth == 0:
            leads.append("")
            continue
        del open_above[member.depth - 1 :]
        above = "".join("│  " if goes_on else "   " for goes_on in open_above)
        leads.append(f"{above}{'└─ ' if member.is_last else '├─ '}")
        open_above.append(not member.is_last)
    return leads


def _row(member: TreeMember) -> tuple[str, ...]:
    run, used = member.run, member.metrics
    state = run.outcome or (f"waiting: {run.waiting_for}" if run.status == "waiting" else run.status)
    return (short_id(run.run_id), run.agent, state, f"{used.steps}", _tokens(used), cost_of(used))


def _sum(tree: RunTree) -> tuple[str, ...]:
    total = tree.total
    return (format_count(len(tree.members), "run"), "", "", f"{total.steps}", _tokens(total), cost_of(total))


def _tokens(used: Metrics) -> str:
    return f"{used.input_tokens + used.output_tokens:,}"


def cost_of(used: Metrics) -> str:
    """Return the cost in dollars, as far as prices are known."""
    return format_cost(used.cost, used.unpriced_calls)
