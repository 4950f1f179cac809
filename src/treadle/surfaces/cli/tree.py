"""`treadle runs tree`: a run and all under it, with what each has used."""

from msgspec import Struct

from treadle.bootstrap.callers import open_readonly_caller
from treadle.domain.ids import RunId
from treadle.domain.runs import Metrics
from treadle.operations import runs
from treadle.operations.operation import Caller
from treadle.operations.run_tree import Member, family
from treadle.surfaces.cli.tables import print_table
from treadle.surfaces.cli.terminal import amount, print_json

HEAD = ("RUN", "AGENT", "STATUS", "STEPS", "TOKENS", "COST")


class Branch(Struct, frozen=True):
    """A run of the tree, as it is printed."""

    run_id: str
    parent_run_id: str | None
    depth: int
    agent: str
    status: str
    outcome: str | None
    waiting_for: str | None
    metrics: Metrics


async def show_tree(run_id: str, json: bool) -> int:
    async with open_readonly_caller() as client:
        members = await family(client, RunId(run_id))
        branches = [await _branch(client, member) for member in members]
    if json:
        for branch in branches:
            print_json(branch)
        return 0
    rows = [_row(branch) for branch in branches]
    if len(rows) > 1:
        rows.append(_sum(branches))
    print_table(HEAD, rows, _leads(members))
    return 0


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
    """The lines before each run that show where it hangs."""
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
    state = branch.outcome or (f"waits: {branch.waiting_for}" if branch.status == "waiting" else branch.status)
    return (branch.run_id, branch.agent, state, f"{used.steps}", _tokens(used), cost_of(used))


def _sum(branches: list[Branch]) -> tuple[str, ...]:
    used = [branch.metrics for branch in branches]
    total = Metrics(
        steps=sum(each.steps for each in used),
        input_tokens=sum(each.input_tokens for each in used),
        output_tokens=sum(each.output_tokens for each in used),
        cost=sum(each.cost for each in used),
        unpriced_calls=sum(each.unpriced_calls for each in used),
    )
    return (f"{len(branches)} runs", "", "", f"{total.steps}", _tokens(total), cost_of(total))


def _tokens(used: Metrics) -> str:
    return f"{used.input_tokens + used.output_tokens}"


def cost_of(used: Metrics) -> str:
    """In dollars, as far as prices are known."""
    if used.unpriced_calls and not used.cost:
        return "unknown"
    return f"${amount(used.cost)}{' and more' if used.unpriced_calls else ''}"
