"""Files of a workspace that agents send on channels, with the rights that the agent has to read them."""

import asyncio
import mimetypes
import os

import msgspec

from treadle.config.database_url import list_database_files
from treadle.config.home import Home
from treadle.core.tools.permissions import apply_rules
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import TreadleError
from treadle.domain.permissions import Verdict
from treadle.ports.channel import FileRefused, OutgoingFile
from treadle.ports.tool import InvalidArguments, ToolError
from treadle.tools.files.private_files import find_listed_places
from treadle.tools.files.workspace import open_workspace
from treadle.tools.toolbox import ToolRegistry
from treadle.vault.vault import HomeVault

READ_TOOL = "read_file"


class SendableFiles:
    """Implements `ports.channel.FileSource`. An agent sends only what its tool `read_file` may read: a file never
    leaves by a message that could not leave by a tool call."""

    def __init__(self, tools: ToolRegistry, home: Home, vault: HomeVault, database: str | None = None) -> None:
        self._tools = tools
        self._home = home
        self._vault = vault
        self._hidden = (home.path, *list_database_files(database or home.database_url))

    def judge(self, agent: AgentSpec, path: str) -> Verdict:
        tool = next((each for each in self._tools.select(agent.tools, agent) if each.spec.name == READ_TOOL), None)
        if tool is None:
            return "deny"
        try:
            subjects = tool.subjects(tool.parse(msgspec.json.encode({"path": path}).decode()))
        except (InvalidArguments, ValueError):
            return "deny"
        return apply_rules(agent.approvals, tool.spec, subjects).verdict

    async def read(self, agent: AgentSpec, path: str, max_bytes: int) -> OutgoingFile:
        if self.judge(agent, path) == "deny":
            raise FileRefused(f"the agent may not read it with `{READ_TOOL}`")
        try:
            data = await asyncio.to_thread(self._load, agent, path, max_bytes)
        except (ToolError, TreadleError) as error:
            raise FileRefused(str(error)) from None
        if self._vault.redactor.redact(data.decode("utf-8", "replace")).names:
            raise FileRefused("it contains the value of a secret")
        name = "".join(each for each in path.rpartition("/")[2] if each.isprintable())[-100:] or "file"
        return OutgoingFile(name, mimetypes.guess_type(name)[0] or "application/octet-stream", data)

    def _load(self, agent: AgentSpec, path: str, max_bytes: int) -> bytes:
        allowed = find_listed_places(agent.confinement)
        with (
            open_workspace(self._home.workspace(agent), self._hidden, allowed) as workspace,
            workspace.locate(path) as place,
            os.fdopen(place.open(), "rb") as file,
        ):
            data = file.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise FileRefused(f"it has more than {max_bytes} bytes")
        if not data:
            raise FileRefused("it is empty")
        return data
