"""The list of sessions: open, fork, rename and delete them."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Literal

from treadle.domain.agents import AgentSpec
from treadle.domain.errors import TreadleError, UsageError
from treadle.domain.ids import SessionId
from treadle.operations import sessions
from treadle.operations.operation import list_items
from treadle.surfaces.home_access.session_folder import (
    find_agent_folder,
    find_agent_of_session,
    find_other_workspace,
    find_stored_agent,
    has_folder,
)
from treadle.surfaces.terminal.output import when
from treadle.surfaces.terminal.text import one_line
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.controlled_app import ControlledApp
from treadle.system.workspace_identity import find_workspace

if TYPE_CHECKING:
    from treadle.surfaces.tui.picker_screen import Picked, PickerRow

MAX_LISTED_SESSIONS = 500


class SessionPicker:
    """Shows the sessions of the current workspace, and those of all folders on request."""

    def __init__(self, app: ControlledApp, fork: Callable[[SessionId, str], Awaitable[None]]) -> None:
        self._app = app
        self._fork = fork
        self.lists_all = False

    async def choose(self, query: str) -> None:
        """Show the list of sessions and do what the user chooses."""
        from treadle.surfaces.tui.picker_screen import PickerScreen

        app, notice, highlighted = self._app, "", ""
        self.lists_all = False
        while True:
            picked = await app.ask(
                PickerScreen(
                    app.palette,
                    app.key_map,
                    texts.ALL_SESSIONS_TITLE if self.lists_all else texts.SESSIONS_TITLE,
                    texts.SESSIONS_HINT,
                    self.list_rows,
                    search=self._search,
                    edits=True,
                    query=query,
                    notice=notice,
                    highlighted=highlighted,
                )
            )
            if picked is None:
                return
            session_id, query = SessionId(picked.key), picked.query
            match picked.action:
                case "open" | "fork":
                    if await self._continue(session_id, picked.action):
                        return
                    notice, highlighted = texts.NOT_OPENED, picked.key
                case "all":
                    self.lists_all, notice, highlighted = not self.lists_all, "", picked.key
                case "rename" | "delete":
                    notice, highlighted = await self._change(session_id, picked), picked.key

    async def list_rows(self) -> "list[PickerRow]":
        """Return the rows of the list."""
        here = None if self.lists_all else find_workspace(self._app.folder)
        wanted = sessions.make_list_request(here)
        found = await list_items(self._app.link, sessions.LIST, wanted, MAX_LISTED_SESSIONS)
        return [_make_row(each, shows_folder=self.lists_all) for each in found]

    async def rename(self, session_id: SessionId, title: str) -> str:
        """Give a session a title. Return what to tell the user."""
        if not title.strip():
            raise UsageError(texts.EMPTY_TITLE)
        view = await self._app.link.call(sessions.RENAME, sessions.RenameSession(session_id, title.strip()))
        if session_id == self._app.chat.session_id:
            self._app.chat.title = view.title
        return texts.RENAMED.format(title=view.title)

    async def _continue(self, session_id: SessionId, action: Literal["open", "fork"]) -> bool:
        """Open or fork a session. If it works in another folder, ask where it continues; return False if the user
        cancels."""
        app = self._app
        if action == "open":
            agent = await find_agent_of_session(app.link, app.link.home, session_id, app.chat.agent_name)
        else:
            agent = find_stored_agent(app.link.home, app.chat.agent_name)
        folder = await self._choose_folder(session_id, agent)
        if folder is None:
            return False
        if action == "fork":
            await self._fork(session_id, folder)
        else:
            await app.chat.open_session(session_id, folder=folder)
            app.view.follow_end()
        return True

    async def _choose_folder(self, session_id: SessionId, agent: AgentSpec) -> str | None:
        """Return the folder in which an agent continues a session; empty: the current one. Return None if the user
        cancels."""
        from treadle.surfaces.tui.choice_screen import ChoiceScreen

        app = self._app
        there = await find_other_workspace(app.link, session_id, agent)
        if there is None:
            return ""
        choices = [("h", "here", texts.WORK_HERE.format(folder=one_line(find_agent_folder(agent))))]
        if agent.workspace is None and has_folder(there):
            choices.append(("t", "there", texts.WORK_THERE.format(folder=one_line(there.folder))))
        title = texts.OTHER_FOLDER.format(folder=one_line(there.folder))
        chosen = await app.ask(ChoiceScreen(app.palette, title, choices))
        if chosen is None:
            return None
        return there.folder if chosen == "there" else ""

    async def _change(self, session_id: SessionId, picked: "Picked") -> str:
        """Rename or delete a session. Return what to tell the user in the list, which opens again."""
        try:
            if picked.action == "rename":
                return await self.rename(session_id, picked.text)
            return await self._delete(session_id)
        except TreadleError as error:
            return str(error)

    async def _delete(self, session_id: SessionId) -> str:
        if session_id == self._app.chat.session_id:
            return texts.DELETE_CURRENT
        await self._app.link.call(sessions.DELETE, sessions.DeleteSession(session_id))
        return texts.DELETED

    async def _search(self, query: str) -> "Sequence[PickerRow]":
        """Search the messages of all sessions."""
        from treadle.surfaces.tui.session_search import search_sessions

        return await search_sessions(self._app.link, query)


def _make_row(view: sessions.SessionView, *, shows_folder: bool) -> "PickerRow":
    from treadle.surfaces.tui.picker_screen import PickerRow

    noun = "run" if view.runs == 1 else "runs"
    detail = f"{view.agent} · {when(view.latest_at)} · {view.runs} {noun}"
    if shows_folder and view.workspace is not None:
        detail = f"{view.workspace.folder} · {detail}"
    return PickerRow(view.session_id, view.title or view.session_id, detail, "●" if view.unfinished else "")
