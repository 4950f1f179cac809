"""A run with its child runs, as `treadle runs tree` prints them."""

from msgspec import Struct

from treadle.domain.ids import RunId
from treadle.domain.runs import Metrics
from treadle.operations import runs
from treadle.operations.operation import Caller
from treadle.operations.run_tree import Member, family
from treadle.surfaces.cli.output import Column, amount, count_of, print_json, print_table, short_id

HEAD = ("RUN", Column("AGENT", shrinks_to=8), "STATE", "STEPS", "TOKENS", "COST")


class Branch(Struct, frozen=True):
    """A run of the tree."""

    run_id: str
    parent_run_id: str | None
    depth: int
    agent: str
    status: str
    outcome: str | None
    waiting_for: str | None
    metrics: Metrics


async def print_tree(caller: Caller, run_id: RunId, json: bool) -> None:
    """Print a run and its child runs with what each has used, and the sums."""
    members = await family(caller, run_id)
    branches = [await _branch(caller, member) for member in members]
    if json:
        for branch in branches:
            print_json(branch)
        return
    rows = [_row(branch) for branch in branches]
    if len(rows) > 1:
        rows.append(_sum(branches))
    print_table(HEAD, rows, _leads(members))


async def _branch(caller: Caller, member: Member) -> Branch:
    run = member.run
    metrics = (await caller.call(runs.STEPS, runs.OneRun(run.run_id))).metrics
    return Branch(
        run.run_id,
        run.parent_run_id,
        member.depth,
        run.agent,
        run.status,
        run.outcome,
        run.waiting_for,
        metrics,
    )


def _leads(members: list[Member]) -> list[str]:
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


def _row(branch: Branch) -> tuple[str, ...]:
    used = branch.metrics
    state = branch.outcome or (f"waiting: {branch.waiting_for}" if branch.status == "waiting" else branch.status)
    return (short_id(branch.run_id), branch.agent, state, f"{used.steps}", _tokens(used), cost_of(used))


def _sum(branches: list[Branch]) -> tuple[str, ...]:
    used = [branch.metrics for branch in branches]
    total = Metrics(
        steps=sum(each.steps for each in used),
        input_tokens=sum(each.input_tokens for each in used),
        output_tokens=sum(each.output_tokens for each in used),
        cost=sum(each.cost for each in used),
        unpriced_calls=sum(each.unpriced_calls for each in used),
    )
    return (count_of(len(branches), "run"), "", "", f"{total.steps}", _tokens(total), cost_of(total))


def _tokens(used: Metrics) -> str:
    return f"{used.input_tokens + used.output_tokens}"


def cost_of(used: Metrics) -> str:
    """Return the cost in dollars, as far as prices are known."""
    if used.unpriced_calls and not used.cost:
        return "unknown"
    return f"${amount(used.cost)}{' and more' if used.unpriced_calls else ''}"
