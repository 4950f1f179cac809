"""A session that an editor has open, with its settings and the commands that it offers."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acp.helpers import update_available_commands, update_current_mode
from acp.schema import AvailableCommand, AvailableCommandInput, McpServerStdio, UnstructuredCommandInput
from msgspec.structs import replace

from treadle.config.home import Home
from treadle.domain.errors import UsageError
from treadle.domain.ids import SessionId
from treadle.domain.modes import ApprovalMode
from treadle.domain.workspaces import is_same_place
from treadle.surfaces.acp.client import EditorClient
from treadle.surfaces.acp.settings import SessionSettings, find_mode_id, make_spec
from treadle.system.workspace_identity import find_workspace

if TYPE_CHECKING:
    from treadle.surfaces.home_access.home_link import HomeLink

COMMANDS = {
    "compact": ("Summarise the conversation to free context.", "what to keep"),
    "memory": ("Show what the agent remembers.", "text to look for"),
    "pin": ("Keep a message through every compaction.", "the message"),
    "reset": ("Continue with an empty conversation.", ""),
    "undo": ("Undo the latest compaction or reset.", ""),
    "usage": ("Show what the session has used.", ""),
}


class OpenSession:
    """A session that the editor has open, with its settings."""

    def __init__(
        self,
        home: Home,
        link: "HomeLink",
        client: EditorClient,
        session_id: SessionId,
        folder: Path,
        settings: SessionSettings,
    ) -> None:
        from treadle.surfaces.acp.session import (
            EditorSession,
        )  # with the operations, which initialize does not need

        self.settings = settings
        self.notice = ""
        """What to tell the user with the next answer."""
        self._client = client
        self.session = EditorSession(
            link,
            client,
            session_id,
            folder,
            lambda: make_spec(home, self.settings, folder),
            lambda: self.settings.mode,
            self.show_mode,
        )

    async def show_mode(self, mode: ApprovalMode | None) -> None:
        """Show the mode that any surface has chosen."""
        if mode != self.settings.mode:
            self.settings = replace(self.settings, mode=mode)
            await self._client.update(self.session.session_id, update_current_mode(find_mode_id(mode)))

    async def begin(self) -> None:
        """Show the commands and follow the session, after the editor knows its id."""
        commands = [
            AvailableCommand(
                name=name,
                description=description,
                input=AvailableCommandInput(UnstructuredCommandInput(hint=hint)) if hint else None,
            )
            for name, (description, hint) in COMMANDS.items()
        ]
        await self._client.update(self.session.session_id, update_available_commands(commands))
        self.session.spawn(self.session.sync())

    async def send_notice(self) -> None:
        if self.notice:
            text, self.notice = self.notice, ""
            await self._client.send_text(
                self.session.session_id, "agent_message_chunk", f"notice:{self.session.session_id}", f"{text}\n\n"
            )


def check_folder(cwd: str, others: list[str] | None) -> Path:
    """Return the folder of a session. Raise UsageError if it cannot be one."""
    folder = Path(cwd)
    if not folder.is_absolute():
        raise UsageError(f"cwd must be an absolute path, found `{cwd}`. Send the whole path of the folder.")
    try:
        is_folder = folder.is_dir()
    except (OSError, ValueError):
        is_folder = False
    if not is_folder:
        raise UsageError(f"The folder {cwd} does not exist. Open an existing folder.")
    if others:
        raise UsageError("additionalDirectories is not supported. Open the folder that contains all of them.")
    return folder


def describe_refused_servers(servers: list[Any]) -> str:
    """Return what to tell the user about MCP servers of the editor; empty if there are none.

    They are not started: a program runs only after its tools were approved in Treadle."""
    if not servers:
        return ""
    lines = [
        "*The MCP servers of the editor are not used: Treadle starts only servers that you have approved. Add one:*"
    ]
    for server in servers:
        if isinstance(server, McpServerStdio):
            command = shlex.join([server.command, *server.args])
            lines.append(f"- `treadle mcp add {shlex.quote(server.name)} -- {command}`")
        else:
            lines.append(f"- `treadle mcp add {shlex.quote(server.name)} --url {getattr(server, 'url', 'URL')}`")
    return "\n".join(lines)


async def refuse_other_workspace(link: "HomeLink", session_id: SessionId, folder: Path) -> None:
    """Raise UsageError if a session works in another workspace: what was allowed there is not allowed here."""
    from treadle.operations import sessions

    there = (await link.call(sessions.SHOW, sessions.ShowSession(session_id))).workspace
    if there is not None and not is_same_place(there, find_workspace(folder)):
        raise UsageError(
            f"The session {session_id} works in {there.folder}, not in {folder}. Open that folder, or move the "
            f"session here: `treadle chat --session {session_id} --here`."
        )
