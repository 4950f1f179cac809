"""What a run waits for, and the command that continues it."""

import shlex

from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import ConfigError
from treadle.domain.ids import RunId
from treadle.operations import approvals, runs, transcripts
from treadle.operations.local_admin import AGENT
from treadle.operations.operation import Caller, OperationClient
from treadle.operations.run_tree import list_members
from treadle.surfaces.terminal.call_view import summarize_call
from treadle.surfaces.terminal.text import one_line, reveal_line

PARKED = ("interrupted", "unavailable", "approval", "answer")
"""Wait reasons that need the user."""
FOR_AN_ANSWER = ("approval", "answer")
MAX_CALL_CHARACTERS = 300


def endpoint_option(base_url: str | None) -> str:
    """Return the option that names an endpoint."""
    return "" if base_url is None else f" --base-url {shlex.quote(base_url)}"


def guess_endpoint_option(agent: AgentSpec, home: Home) -> str:
    """Return the option for a run of the journal, which has the name of its provider and not its address."""
    try:
        known = home.config().providers
    except ConfigError:  # the command that continues the run reports it
        return ""
    provider = agent.provider or ""
    is_address = ":" in provider or "." in provider  # the name of an endpoint that no setting has
    return " --base-url URL" if is_address and provider not in known else ""


async def list_questions(caller: Caller, run_id: RunId, options: str) -> list[str]:
    """Return a line for each approval and answer that a run waits for, with the command that gives it."""
    lines: list[str] = []
    for approval in (await caller.call(approvals.LIST, approvals.ListApprovals(run_id))).items:
        how = f"treadle approvals approve {approval.approval_id}{options} (or deny)"
        lines.append(
            f"an approval of `{approval.tool}` ({summarize_call(approval.arguments, MAX_CALL_CHARACTERS)}): {how}"
        )
    for question in (await caller.call(runs.QUESTIONS, runs.OneRun(run_id))).items:
        how = f'treadle runs answer {run_id} {question.call_id} "…"{options}'
        lines.append(f"an answer to “{reveal_line(question.question, MAX_CALL_CHARACTERS)}”: {how}")
    return lines


async def explain_wait(client: OperationClient, run: runs.RunView, home: Home) -> list[str]:
    """Return what a run waits for and the next step; nothing if it continues without the user."""
    run_id = run.run_id
    if run.outcome is not None or run.waiting_for is None:
        return []
    options = guess_endpoint_option(await client.call(AGENT, runs.OneRun(run_id)), home)
    if run.waiting_for in FOR_AN_ANSWER:
        return await list_questions(client, run_id, options)
    if run.waiting_for == "child":
        under = [member.run.run_id for member in await list_members(client, run_id, unfinished=True)]
        asked = [line for child in under for line in await list_questions(client, child, options)]
        return asked or [f"{await _detail(client, run_id)}. See all of it: treadle runs tree {run_id}"]
    detail = one_line(await _detail(client, run_id))
    if run.waiting_for not in PARKED:
        return [detail]
    return [f"{detail.rstrip('.')}. Resume it: treadle runs resume {run_id}{options}"]


async def _detail(client: OperationClient, run_id: RunId) -> str:
    page = await client.call(transcripts.RUN, transcripts.ReadRunTranscript(run_id, limit=1))
    return page.totals.detail
