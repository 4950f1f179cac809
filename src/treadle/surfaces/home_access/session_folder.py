"""The folder in which a session continues: the current one, or the session's own."""

import os
from pathlib import Path
from typing import Literal

import msgspec

from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import UnknownSession, UsageError
from treadle.domain.ids import SessionId
from treadle.domain.workspaces import Workspace, is_same_place
from treadle.operations import runs, sessions
from treadle.operations.operation import Caller
from treadle.surfaces.terminal.line_input import Prompt
from treadle.surfaces.terminal.process import Stop
from treadle.surfaces.terminal.text import one_line
from treadle.system.workspace_identity import find_workspace

FolderChoice = Literal["here", "there"]
"""`here`: the session moves to the current folder. `there`: it continues in its own."""

QUESTION = (
    "The session works in {there}, and you are in {here}.\n"
    "  h  work here; what was allowed for the session no longer applies\n"
    "  t  continue in {there}\n"
    "Work [h]ere or [t]here? Enter cancels:"
)
REFUSAL = (
    "The session {session} works in {there}, not in {here}. Add --there to continue in its own folder, or "
    "--here to work in this folder, which drops what was allowed for the session."
)
OWN_FOLDER = (
    "The session {session} works in {there}, and the agent `{agent}` always works in {here}. Add --here to "
    "continue in {here}, which drops what was allowed for the session."
)


def use_current_folder(agent: AgentSpec) -> AgentSpec:
    """Return an agent that works in the current folder, unless it has a folder of its own."""
    return use_folder(agent, "")


def use_folder(agent: AgentSpec, folder: str) -> AgentSpec:
    """Return an agent that works in a folder, or in the current one if it is empty, unless the agent has a folder
    of its own."""
    if agent.workspace is not None:
        return agent
    return msgspec.structs.replace(agent, workspace=folder or str(Path.cwd()))


def find_stored_agent(home: Home, name: str) -> AgentSpec:
    """Return an agent of the home. One without a file, such as the default agent before it has a model, works in
    the current folder."""
    return home.agent(name) if name in home.agents() else AgentSpec(name)


async def find_agent_of_session(caller: Caller, home: Home, session_id: SessionId, default: str) -> AgentSpec:
    """Return the agent that continues a session: that of its latest run, or the default if it no longer exists."""
    latest = (await caller.call(runs.LIST, runs.ListRuns(session_id=session_id, limit=1))).items
    known = home.agents()
    return find_stored_agent(home, latest[0].agent if latest and latest[0].agent in known else default)


def find_agent_folder(agent: AgentSpec) -> str:
    """Return the folder in which an agent would work when it is called here."""
    return str(Path(use_current_folder(agent).workspace or ".").expanduser().absolute())


def has_folder(workspace: Workspace) -> bool:
    """Return whether the folder of a workspace still exists."""
    return os.path.isdir(workspace.folder)


async def find_other_workspace(caller: Caller, session_id: SessionId, agent: AgentSpec) -> Workspace | None:
    """Return the workspace of a session if the agent would work in another one; None otherwise, and for a session
    that does not exist or whose workspace is not known."""
    try:
        there = (await caller.call(sessions.SHOW, sessions.ShowSession(session_id))).workspace
    except UnknownSession:
        return None
    here = find_workspace(find_agent_folder(agent))
    return None if there is None or is_same_place(there, here) else there


async def choose_folder(
    caller: Caller, session_id: SessionId, agent: AgentSpec, choice: FolderChoice | None
) -> AgentSpec:
    """Return the agent with the folder in which it continues a session. Ask at the terminal if the session works
    elsewhere. Raise UsageError if there is no terminal and no choice, or if the user cancels."""
    there = await find_other_workspace(caller, session_id, agent)
    if there is None:
        return use_current_folder(agent)
    places = {"session": session_id, "there": one_line(there.folder), "here": one_line(find_agent_folder(agent))}
    if agent.workspace is not None:
        if choice != "here":
            raise UsageError(OWN_FOLDER.format(agent=agent.name, **places))
        return agent
    if (choice or await _ask(places)) == "here":
        return use_current_folder(agent)
    if not has_folder(there):
        raise UsageError(
            f"The folder {there.folder} of the session {session_id} no longer exists. Add --here to work in this "
            "folder, or create it."
        )
    return use_folder(agent, there.folder)


async def _ask(places: dict[str, str]) -> FolderChoice:
    if not Prompt.is_possible():
        raise UsageError(REFUSAL.format(**places))
    with Stop() as stop:
        typed = (await Prompt(stop).ask(QUESTION.format(**places)) or "").lower()
        if stop.is_requested:
            raise KeyboardInterrupt
    if typed in ("h", "here"):
        return "here"
    if typed in ("t", "there"):
        return "there"
    raise UsageError("Nothing was opened. Type h or t, or add --here or --there.")
