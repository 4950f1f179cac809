"""The prompt context of the agents of a home: its rules, its skills, and the notes of the workspaces."""

from collections.abc import Sequence

from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.domain.tools import ToolSpec
from treadle.ports.skills import Skill
from treadle.skills.agents_md import make_workspace_notes
from treadle.skills.catalog import render_catalog
from treadle.skills.run_skills import FolderSkills
from treadle.tools.files.folder_overview import make_folder_overview

READING_TOOLS = ("read_file", "@files", "@small", "*")
"""An agent with one of these is told what its folder contains."""
NO_INVENTION = "Never make up what a tool returns. When a call fails, say so or try another way."


class HomeAgentContext:
    """Implements `ports.agent_context.AgentContext`."""

    def __init__(self, home: Home, rules: str = "") -> None:
        self._home = home
        self._rules = rules.strip()
        self._skills = FolderSkills(home.path)

    def set_rules(self, rules: str) -> None:
        self._rules = rules.strip()

    def rules(self) -> str:
        return self._rules

    def skills(self, agent: AgentSpec) -> Sequence[Skill]:
        return self._skills.list_offered(agent.skills, self._home.workspace(agent))

    def catalog(self, skills: Sequence[Skill]) -> str:
        return render_catalog(skills)

    def workspace(self, agent: AgentSpec) -> str:
        return str(self._home.workspace_path(agent))

    def notes(self, agent: AgentSpec) -> str:
        path = self._home.workspace_path(agent)
        if agent.workspace is None and not path.is_dir():
            return ""  # a workspace of the home that no tool has used yet
        overview = ""
        if agent.workspace is not None and any(tool in READING_TOOLS for tool in agent.tools):
            overview = make_folder_overview(path, (self._home.path,))
        return "\n\n".join(filter(None, (overview, make_workspace_notes(path))))

    def guidance(self, agent: AgentSpec, tools: Sequence[ToolSpec]) -> str:
        if not tools:
            return ""
        parts: list[str] = []
        if any("workspace" in tool.needs for tool in tools):
            parts.append(f"Your working folder is {self._home.workspace_path(agent)}.")
        if agent.agents and any(tool.delegates is not None for tool in tools):
            parts.append(f"Agents that you can give tasks to: {', '.join(agent.agents)}.")
        return " ".join((*parts, NO_INVENTION))

    def load(self, agent: AgentSpec, name: str, file: str | None = None) -> str:
        return self._skills.load(name, agent.skills, self._home.workspace(agent), file)
