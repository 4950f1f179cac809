"""What a run waits for, and what to type so that it goes on."""

import shlex

from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import ConfigError
from treadle.domain.events import RunWaiting
from treadle.domain.ids import RunId
from treadle.operations import approvals, runs
from treadle.operations.local_admin import AGENT
from treadle.operations.operation import Caller, EventSource, OperationClient
from treadle.operations.run_tree import family
from treadle.surfaces.cli.call_view import in_words
from treadle.surfaces.cli.terminal import one_line, revealed_line

PARKED = ("interrupted", "unavailable", "approval", "answer")
"""What a run waits for that does not come by itself."""
FOR_AN_ANSWER = ("approval", "answer")
MOST = 300
"""How many characters of a call are shown with it."""


def endpoint_option(base_url: str | None) -> str:
    """What a command must be given to speak to the endpoint of a run."""
    return "" if base_url is None else f" --base-url {shlex.quote(base_url)}"


def likely_option(agent: AgentSpec, home: Home) -> str:
    """The same for a run that was seen in the journal only, which has the name of its provider and no address."""
    try:
        known = home.config().providers
    except ConfigError:  # the command that goes on will say so
        return ""
    provider = agent.provider or ""
    is_address = ":" in provider or "." in provider  # as an endpoint is called that no setting names
    return " --base-url URL" if is_address and provider not in known else ""


async def questions_of(caller: Caller, run_id: RunId, options: str) -> list[str]:
    """A line for each approval and each answer that a run waits for, with how to give it."""
    lines: list[str] = []
    for approval in (await caller.call(approvals.LIST, approvals.ListApprovals(run_id))).items:
        how = f"treadle approvals approve {approval.approval_id}{options} (or deny)"
        lines.append(f"an approval of `{approval.tool}` ({in_words(approval.arguments, MOST)}): {how}")
    for question in (await caller.call(runs.QUESTIONS, runs.OneRun(run_id))).items:
        how = f'treadle runs answer {run_id} {question.call_id} "…"{options}'
        lines.append(f"an answer to “{revealed_line(question.question, MOST)}”: {how}")
    return lines


async def explained(client: OperationClient, run: runs.RunView, home: Home) -> list[str]:
    """What a run that has not ended waits for, and the next step; nothing where it goes on by itself."""
    run_id = run.run_id
    if run.outcome is not None or run.waiting_for is None:
        return []
    options = likely_option(await client.call(AGENT, runs.OneRun(run_id)), home)
    if run.waiting_for in FOR_AN_ANSWER:
        return await questions_of(client, run_id, options)
    if run.waiting_for == "child":
        under = [member.run.run_id for member in await family(client, run_id, unfinished=True)]
        asked = [line for child in under for line in await questions_of(client, child, options)]
        return asked or [f"{await _detail(client, run_id)}. See it all with: treadle runs tree {run_id}"]
    detail = one_line(await _detail(client, run_id))
    if run.waiting_for not in PARKED:
        return [detail]
    return [f"{detail.rstrip('.')}. Go on with: treadle runs resume {run_id}{options}"]


async def _detail(source: EventSource, run_id: RunId) -> str:
    detail = ""
    async for event in source.stored(run_id):
        if isinstance(event.data, RunWaiting):
            detail = event.data.detail
    return detail
