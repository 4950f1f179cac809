"""Reads what waits for the user: approvals and questions of a run and its child runs."""

from treadle.domain.ids import RunId
from treadle.operations import approvals, runs
from treadle.operations.local_admin import AGENT
from treadle.operations.run_tree import list_members
from treadle.surfaces.home_access.home_link import HomeLink
from treadle.surfaces.tui.chat_state import Pending, PendingApproval, PendingQuestion


async def find_pending(link: HomeLink, run_id: RunId) -> list[Pending]:
    """Return the open approvals and questions of a run and its child runs."""
    members = {member.run.run_id: member.run for member in await list_members(link, run_id, unfinished=True)}
    found: list[Pending] = []
    for view in (await link.call(approvals.LIST, approvals.ListApprovals())).items:
        if view.run_id in members:
            agent = await link.call(AGENT, runs.OneRun(view.run_id))
            found.append(PendingApproval(agent.name, view, link.home.workspace_path(agent)))
    for member, run in members.items():
        if run.waiting_for == "answer":
            page = await link.call(runs.QUESTIONS, runs.OneRun(member))
            found.extend(PendingQuestion(member, run.agent, question) for question in page.items)
    return found
