"""The methods of the Agent Client Protocol: sessions, prompts, options and modes."""

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from acp import PROTOCOL_VERSION, RequestError
from acp.helpers import update_current_mode
from acp.schema import (
    AgentCapabilities,
    AuthenticateResponse,
    AuthMethodAgent,
    ClientCapabilities,
    CloseSessionResponse,
    ConfigOptionUpdate,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionInfo,
    SessionListCapabilities,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
    TerminalAuthMethod,
)
from msgspec.structs import replace

from treadle.config.home import DEFAULT_AGENT, Home
from treadle.domain.errors import InvalidState, TreadleError, UnknownSession, UsageError
from treadle.domain.ids import SessionId
from treadle.domain.version import VERSION
from treadle.home.agent_checks import find_unusable_models
from treadle.surfaces.acp.client import EditorClient
from treadle.surfaces.acp.errors import INVALID_REQUEST, report_errors
from treadle.surfaces.acp.home_opening import HomeOpening
from treadle.surfaces.acp.open_session import (
    OpenSession,
    check_folder,
    describe_refused_servers,
    refuse_other_workspace,
)
from treadle.surfaces.acp.prompt_blocks import PromptBlock, read_prompt
from treadle.surfaces.acp.settings import (
    SessionSettings,
    SettingsFolder,
    describe_modes,
    describe_options,
    find_mode_id,
    make_spec,
    read_mode,
)
from treadle.surfaces.acp.stdio import StdioTransport
from treadle.system.clock import TimeOrderedIds
from treadle.system.workspace_identity import find_workspace

if TYPE_CHECKING:
    from treadle.domain.modes import ApprovalMode
    from treadle.surfaces.home_access.home_link import HomeLink

SETUP = "setup"
PAGE = 50
log = logging.getLogger(__name__)


class EditorAgent:
    """Implements `acp` 's `Agent` for one editor."""

    def __init__(
        self, home: Home, transport: StdioTransport, make_link: "Callable[[], HomeLink]", agent: str
    ) -> None:
        self._home = home
        self._transport = transport
        self._client = EditorClient(transport)
        self._default = SessionSettings(agent)
        self._folder = SettingsFolder(home)
        self._ids = TimeOrderedIds()
        self._sessions: dict[str, OpenSession] = {}
        self.opening = HomeOpening(make_link, self._sessions)
        self._is_initialized = False
        self._models: tuple[SessionConfigSelectOption, ...] = ()

    # ── The connection ──

    @report_errors
    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: ClientCapabilities | None = None,
        client_info: Implementation | None = None,
        **kwargs: Any,
    ) -> InitializeResponse:
        """Agree on a version. An editor that asks for a later one is offered the latest that is supported."""
        self._is_initialized = True
        self._client.capabilities = client_capabilities or ClientCapabilities()
        log.info("Editor: %s, protocol %s", client_info, protocol_version)
        self._transport.after_response(self.opening.begin)
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=Implementation(name="treadle", title="Treadle", version=VERSION),
            auth_methods=[self._make_auth_method()],
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, audio=False, embedded_context=True),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities(),
                    resume=SessionResumeCapabilities(),
                    close=SessionCloseCapabilities(),
                ),
            ),
        )

    def _make_auth_method(self) -> TerminalAuthMethod | AuthMethodAgent:
        description = "Run `treadle` in a terminal: it lists the models that it finds, tests one and saves it."
        auth = self._client.capabilities.auth
        if auth is not None and getattr(auth, "terminal", False):
            return TerminalAuthMethod(
                id=SETUP, type="terminal", name="Choose a model", description=description, args=["--setup"]
            )
        return AuthMethodAgent(id=SETUP, name="Choose a model", description=description)

    @report_errors
    async def authenticate(self, method_id: str, **kwargs: Any) -> AuthenticateResponse:
        """Check that a model is set. There is nothing to sign in to: the home belongs to the user."""
        self._require_initialized()
        if method_id != SETUP:
            raise UsageError(f"There is no authentication method `{method_id}`. Use `{SETUP}`.")
        make_spec(self._home, self._default, Path("/"))
        return AuthenticateResponse()

    def _require_initialized(self) -> None:
        if not self._is_initialized:
            raise RequestError(INVALID_REQUEST, "The connection is not initialized. Send initialize first.")

    async def _require_link(self) -> "HomeLink":
        self._require_initialized()
        return await self.opening.wait()

    @property
    def open_runs(self) -> list[str]:
        """Return the runs of the sessions that are in progress, or wait."""
        found = (each.session.open_run for each in self._sessions.values())
        return [run_id for run_id in found if run_id is not None]

    async def leave(self) -> None:
        """Close all sessions and leave their runs as they are."""
        self.opening.stop()
        for each in self._sessions.values():
            await each.session.leave()

    # ── Sessions ──

    @report_errors
    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Any] | None = None,
        **kwargs: Any,
    ) -> NewSessionResponse:
        """Open a new session. It is stored with its first message."""
        link = await self._require_link()
        folder = check_folder(cwd, additional_directories)
        make_spec(self._home, self._default, folder)  # raises UnknownModel
        session_id = SessionId(self._ids("ses"))
        self._folder.prune()
        self._folder.write(session_id, self._default)
        opened = self._add(link, session_id, folder, self._default, mcp_servers)
        self._transport.after_response(opened.begin)
        return NewSessionResponse(
            session_id=session_id,
            modes=describe_modes(self._default.mode),
            config_options=cast("Any", await self._describe(opened)),
        )

    @report_errors
    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: list[Any] | None = None,
        additional_directories: list[str] | None = None,
        **kwargs: Any,
    ) -> LoadSessionResponse:
        """Open a session and show everything that has happened in it."""
        opened = await self._reopen(cwd, session_id, mcp_servers, additional_directories, is_shown=True)
        return LoadSessionResponse(
            modes=describe_modes(opened.settings.mode), config_options=cast("Any", await self._describe(opened))
        )

    @report_errors
    async def resume_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Any] | None = None,
        **kwargs: Any,
    ) -> ResumeSessionResponse:
        """Open a session that the editor shows already."""
        opened = await self._reopen(cwd, session_id, mcp_servers, additional_directories, is_shown=False)
        return ResumeSessionResponse(
            modes=describe_modes(opened.settings.mode), config_options=cast("Any", await self._describe(opened))
        )

    async def _reopen(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: list[Any] | None,
        additional_directories: list[str] | None,
        *,
        is_shown: bool,
    ) -> OpenSession:
        link = await self._require_link()
        folder = check_folder(cwd, additional_directories)
        stored, past = self._folder.read(session_id), await self._read_last_settings(link, session_id)
        if stored is None and past is None:
            raise UnknownSession(f"There is no session {session_id}. `treadle sessions list --all` shows them.")
        if past is not None:
            await refuse_other_workspace(link, SessionId(session_id), folder)
        settings = stored or past or self._default
        if past is not None:
            settings = replace(settings, mode=past.mode)
        known = self._sessions.get(session_id)
        if known is not None and known.session.has_prompt:
            raise InvalidState(
                f"A prompt of session {session_id} is in progress. Cancel it before you load it again."
            )
        if known is not None:
            await known.session.leave()
        opened = self._add(link, SessionId(session_id), folder, settings, mcp_servers)
        if past is not None:
            await opened.session.read_past(is_shown=is_shown)
        self._transport.after_response(opened.begin)
        return opened

    async def _read_last_settings(self, link: "HomeLink", session_id: str) -> SessionSettings | None:
        """Return what the last run of a session used; None if the session has no runs."""
        from treadle.operations import runs, sessions
        from treadle.operations.local_admin import AGENT

        wanted = runs.ListRuns(session_id=SessionId(session_id), limit=1)
        try:
            found = (await link.call(runs.LIST, wanted)).items
        except UnknownSession:
            return None
        if not found:
            return None
        shown = await link.call(sessions.SHOW, sessions.ShowSession(SessionId(session_id)))
        spec = await link.call(AGENT, runs.OneRun(found[0].run_id))
        name = spec.name if spec.name in (*self._home.agents(), DEFAULT_AGENT) else self._default.agent
        try:
            own = self._home.agent(name).model
        except TreadleError:
            own = ""
        return SessionSettings(name, None if spec.model == own else spec.model, shown.mode)

    def _add(
        self,
        link: "HomeLink",
        session_id: SessionId,
        folder: Path,
        settings: SessionSettings,
        servers: list[Any] | None,
    ) -> OpenSession:
        opened = OpenSession(self._home, link, self._client, session_id, folder, settings)
        opened.notice = describe_refused_servers(servers or [])
        self._sessions[session_id] = opened
        return opened

    @report_errors
    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **kwargs: Any
    ) -> ListSessionsResponse:
        """List sessions, the latest first, of all folders or of one workspace."""
        from treadle.operations import sessions

        link = await self._require_link()
        if cwd is not None and not Path(cwd).is_absolute():
            raise UsageError(f"cwd must be an absolute path, found `{cwd}`. Send the whole path of the folder.")
        here = None if cwd is None else find_workspace(cwd)
        page = await link.call(sessions.LIST, sessions.make_list_request(here, cursor, PAGE))
        found = [
            SessionInfo(
                session_id=view.session_id,
                cwd=view.workspace.folder,
                title=view.title or None,
                updated_at=view.latest_at.isoformat(),
            )
            for view in page.items
            if view.workspace is not None
        ]
        return ListSessionsResponse(sessions=found, next_cursor=page.next)

    @report_errors
    async def close_session(self, session_id: str, **kwargs: Any) -> CloseSessionResponse:
        """Cancel the prompt in progress and stop showing the session. The session stays stored."""
        opened = self._find(session_id)
        await opened.session.close()
        self._sessions.pop(session_id, None)
        return CloseSessionResponse()

    def _find(self, session_id: str) -> OpenSession:
        self._require_initialized()
        if session_id not in self._sessions:
            raise UnknownSession(
                f"The session {session_id} is not open on this connection. Open it with session/load."
            )
        return self._sessions[session_id]

    # ── Options ──

    @report_errors
    async def set_session_mode(self, session_id: str, mode_id: str, **kwargs: Any) -> SetSessionModeResponse:
        """Choose how much the agent may do without asking, from the next tool call on."""
        opened = self._find(session_id)
        await self._set_mode(opened, read_mode(mode_id))
        options = await self._describe(opened)
        update = ConfigOptionUpdate(session_update="config_option_update", config_options=cast("Any", options))
        await self._client.update(session_id, update)
        return SetSessionModeResponse()

    @report_errors
    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **kwargs: Any
    ) -> SetSessionConfigOptionResponse:
        """Choose the model or the agent, from the next prompt on, or the mode, from the next tool call on."""
        opened, chosen = self._find(session_id), str(value)
        match config_id:
            case "model":
                if not chosen.strip():
                    raise UsageError("The model is empty. Choose one of the options.")
                settings = replace(opened.settings, model=chosen)
            case "agent":
                self._home.agent(chosen)  # raises UnknownAgent
                settings = replace(opened.settings, agent=chosen, model=None)
            case "mode":
                await self._set_mode(opened, read_mode(chosen))
                settings = opened.settings
            case _:
                raise UsageError(f"There is no option `{config_id}`. Options: model, agent, mode.")
        spec = make_spec(self._home, settings, opened.session.folder)
        if config_id == "model" and (problems := await find_unusable_models(self._home, spec)):
            raise UsageError(problems[0])
        self._apply_settings(opened, settings)
        if config_id == "mode":
            await self._client.update(session_id, update_current_mode(find_mode_id(settings.mode)))
        return SetSessionConfigOptionResponse(config_options=cast("Any", await self._describe(opened)))

    async def _set_mode(self, opened: OpenSession, mode: "ApprovalMode | None") -> None:
        """Change the mode of a session. One without a run gets it with its first message."""
        from treadle.operations import sessions

        link, session_id = await self._require_link(), opened.session.session_id
        with suppress(UnknownSession):
            await link.call(sessions.SET_MODE, sessions.SetMode(session_id, mode))
        self._apply_settings(opened, replace(opened.settings, mode=mode))

    def _apply_settings(self, opened: OpenSession, settings: SessionSettings) -> None:
        opened.settings = settings
        self._folder.write(opened.session.session_id, settings)

    async def _describe(self, opened: OpenSession) -> list[SessionConfigOptionSelect]:
        settings = opened.settings
        spec = make_spec(self._home, settings, opened.session.folder)
        if not self._models:
            self._models = await self._list_models()
        return describe_options(settings, self._home.agents() or [DEFAULT_AGENT], self._models, spec.model)

    async def _list_models(self) -> tuple[SessionConfigSelectOption, ...]:
        """Return the aliases and models of the configuration. No provider is asked."""
        from treadle.operations.system import MODELS, ListModels

        link = await self._require_link()
        found = (await link.call(MODELS, ListModels())).items
        return tuple(
            SessionConfigSelectOption(
                value=model.name, name=model.name, description=model.problem or model.resolved or None
            )
            for model in sorted(found, key=lambda model: (bool(model.problem), not model.is_default))
        )

    # ── Prompts ──

    @report_errors
    async def prompt(self, session_id: str, prompt: list[PromptBlock], **kwargs: Any) -> PromptResponse:
        """Send a message to the agent, and answer when the turn has ended."""
        from treadle.domain.commands import refuse_unknown_command

        opened = self._find(session_id)
        await self._require_link()
        parts = read_prompt(prompt, opened.session.folder)
        refuse_unknown_command(parts.text)
        await opened.send_notice()
        return await opened.session.prompt(parts)

    async def cancel(self, session_id: str, **kwargs: Any) -> None:
        opened = self._sessions.get(session_id)
        if opened is not None:
            try:
                await opened.session.cancel()
            except TreadleError as error:
                log.warning("Cancelling a prompt of %s failed: %s", session_id, error)

    def on_connect(self, conn: Any) -> None:
        """The SDK calls this. Updates go through the transport instead."""
