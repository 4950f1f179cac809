"""The conversation of `treadle run`: one message, or several in one session."""

import importlib.util
import re
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from types import FunctionType

import msgspec
from msgspec import Struct

from treadle.api.agent import apply_options, collect_tools, make_attachment
from treadle.api.engine import HostedEngine
from treadle.domain.agents import AgentSpec
from treadle.domain.commands import refuse_unknown_command
from treadle.domain.errors import UnknownSession, UsageError
from treadle.domain.ids import SessionId
from treadle.domain.labels import parse_metadata
from treadle.domain.messages import Message, user
from treadle.domain.modes import ApprovalMode
from treadle.domain.users import LOCAL_USER
from treadle.operations.requested_run import RequestedRun
from treadle.operations.run_start import START_LOCAL, StartLocalRun
from treadle.ports.tool import Tool
from treadle.surfaces.cli.follow import Follower, FollowOptions, add_endpoint, list_unfinished_runs, make_engine
from treadle.surfaces.home_access.connection import HomeAccess, current_home, open_home
from treadle.surfaces.home_access.references import LAST, choose_agent, find_session
from treadle.surfaces.home_access.session_folder import (
    FolderChoice,
    choose_folder,
    find_agent_folder,
    use_current_folder,
)
from treadle.surfaces.terminal.output import note
from treadle.surfaces.terminal.process import Stop
from treadle.system.workspace_identity import find_workspace

PROMPT = ">"
LEAVE = ("/exit", "/quit")


class RunArguments(Struct, frozen=True):
    """The arguments of `treadle run` that say what to run."""

    message: str
    agent: str
    model: str | None = None
    mode: ApprovalMode | None = None
    session: str | None = None
    continues: bool = False
    system: str | None = None
    files: tuple[Path, ...] = ()
    tools: tuple[str, ...] | None = None
    functions: tuple[Path, ...] = ()
    tags: tuple[str, ...] = ()
    metadata: tuple[str, ...] = ()
    """Each as `NAME=VALUE`."""
    user: str | None = None
    """The user whom the runs are for; None: the local user."""
    interactive: bool = False
    folder: FolderChoice | None = None
    """Where a session of another workspace continues."""
    new: bool = False
    """Whether an empty database may replace a missing one."""


class RunConversation:
    """Sends messages to an agent, all in one session, and follows their runs."""

    def __init__(self, request: RunArguments, options: FollowOptions) -> None:
        self._request = request
        self._options = options
        self._session: SessionId | None = None
        self._version: int | None = None
        """The version of the agent that the command line names; None: the current one."""
        self._metadata = read_metadata(request.metadata)

    async def hold(self) -> int:
        """Send the message, and with --interactive each further one. Return the exit code of the last run."""
        home, request = current_home(self._request.new), self._request
        if request.message:
            refuse_unknown_command(request.message)
        engine = make_engine(home)
        chosen = await choose_agent(home, request.agent, request.model)
        self._version = chosen.version
        agent = self._make_agent(chosen.spec, engine)
        with Stop() as stop:
            async with open_home(engine, home, self._options.base_url) as access:
                if request.functions and access.engine is None:
                    raise UsageError(
                        "--functions works only in a process that owns the home, and another process owns it. Stop "
                        "that process, or add the tools to it as a plugin."
                    )
                follower = self._options.follow(access, stop)
                await follower.announce()
                if stop.asked.is_set():
                    return stop.exit_code
                self._session = await self._find_session(access, follower, agent)
                if self._session is not None:
                    agent = await choose_folder(access.client, self._session, agent, request.folder)
                agent = use_current_folder(agent)
                code = await self._send(access, follower, agent, request.message) if request.message else 0
                if request.interactive:
                    code = await self._ask_for_more(access, follower, agent, code)
                return code

    async def _ask_for_more(self, access: HomeAccess, follower: Follower, agent: AgentSpec, code: int) -> int:
        prompt = self._options.prompt(follower.stop)
        if prompt is None:
            raise UsageError("--interactive needs a terminal. Send single messages with --session NAME instead.")
        follower.printer.note("Type a message. /exit or Ctrl-D leaves the conversation.")
        while True:
            follower.stop.reset()
            with follower.stop.asking():
                typed = await prompt.ask(PROMPT)
            if typed is None or typed.lower() in LEAVE:
                return code
            if typed:
                try:
                    refuse_unknown_command(typed)
                    code = await self._send(access, follower, agent, typed)
                except UsageError as error:
                    follower.printer.note(str(error))

    async def _send(self, access: HomeAccess, follower: Follower, agent: AgentSpec, text: str) -> int:
        client, stop = access.client, follower.stop
        known = {run.run_id: run.sequence for run in await list_unfinished_runs(client)}
        run = RequestedRun(
            agent=agent,
            message=self._message(text, agent),
            session_id=self._session,
            asker=self._options.asker(stop),
            has_own_model=self._request.model is not None,
            tags=self._request.tags,
            metadata=self._metadata,
            user=self._request.user or LOCAL_USER,
            only_own=self._request.user is not None,
            version=self._version,
            mode=self._request.mode if text == self._request.message else None,
        )
        ticket = await client.call(START_LOCAL, StartLocalRun(run))
        self._session = ticket.session_id
        # If a run of the session waits, it gets the message: only its new events are printed.
        seen = known.get(ticket.run_id, 0)
        code = await follower.follow(ticket.run_id, after=seen, since=seen)
        if not self._request.interactive:
            await follower.wait_for_others(ticket.run_id)
        return code

    def _message(self, text: str, agent: AgentSpec) -> Message:
        """Return the message with the attachments, which go with the first one only."""
        files = self._request.files if text == self._request.message else ()
        return user(text, *(make_attachment(file, agent.limits.max_attachment_bytes) for file in files))

    async def _find_session(self, access: HomeAccess, follower: Follower, agent: AgentSpec) -> SessionId | None:
        """Return the session to continue; None for a new one."""
        if self._request.session is None and not self._request.continues:
            return None
        wanted = LAST if self._request.session is None else self._request.session
        here = find_workspace(find_agent_folder(agent))
        try:
            found = await find_session(access.client, wanted, here, whole_title=True)
        except UnknownSession:
            if wanted == LAST:
                raise
            follower.printer.note(f"Starting the new session {wanted}.")
            return SessionId(wanted)
        if found != wanted:
            follower.printer.note(f"Continuing the session {found}.")
        return found

    def _make_agent(self, agent: AgentSpec, engine: HostedEngine) -> AgentSpec:
        """Return the agent with what the command line changes."""
        request = self._request
        functions = [tool for path in request.functions for tool in load_functions(path)]
        for tool in functions:
            if engine.has_tool(tool.spec.name):
                note(f"`{tool.spec.name}` of --functions replaces the tool of the same name.")
        engine.add_tools(*functions)
        own = tuple([tool.spec.name for tool in functions])
        if request.tools is None:
            agent = _add_functions(agent, own)
        elif any(fnmatchcase(each, pattern) for each in own for pattern in request.tools):
            agent = apply_options(agent, {"tools": request.tools})  # it selects among the functions
        else:
            agent = apply_options(agent, {"tools": (*request.tools, *own)})
        if request.system is not None:
            small = msgspec.structs.replace(agent.small_models, persona=None)
            agent = msgspec.structs.replace(agent, persona=request.system, small_models=small)
        if self._options.base_url is not None:
            agent = msgspec.structs.replace(agent, provider=add_endpoint(engine, self._options.base_url))
        return agent


def read_metadata(pairs: tuple[str, ...]) -> dict[str, str]:
    """Return the metadata of --metadata. Raise UsageError if it is not written as NAME=VALUE."""
    try:
        return parse_metadata(pairs)
    except ValueError as error:
        raise UsageError(f"--metadata cannot be read: {error}. Write --metadata ticket=42.") from None


def _add_functions(agent: AgentSpec, own: tuple[str, ...]) -> AgentSpec:
    """Return the agent with the functions of --functions as tools. A small model gets only these in addition."""
    if not own:
        return agent
    small = agent.small_models
    changed = apply_options(agent, {"tools": (*agent.tools, *own)})
    tools = None if small.tools is None else (*small.tools, *own)
    return msgspec.structs.replace(changed, small_models=msgspec.structs.replace(small, tools=tools))


def load_functions(path: Path) -> list[Tool]:
    """Execute a Python file and return its functions as tools: those it decorates, or else all public ones."""
    name = f"treadle_functions_{re.sub(r'[^0-9a-zA-Z]', '_', path.stem)}"
    spec = importlib.util.spec_from_file_location(name, path)
    if not path.is_file():
        raise UsageError(f"There is no file {path}. Name a Python file with --functions FILE.py.")
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file. Name one with --functions FILE.py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UsageError(f"{path} failed when it was loaded: {type(error).__name__}: {error}.") from error
    decorated = [value for value in vars(module).values() if hasattr(value, "spec") and hasattr(value, "parse")]
    plain = [
        value
        for key, value in vars(module).items()
        if isinstance(value, FunctionType) and value.__module__ == name and not key.startswith("_")
    ]
    try:
        tools = list(collect_tools(decorated or plain))
    except TypeError as error:
        raise UsageError(f"{path}: {error}.") from None
    if not tools:
        raise UsageError(f"{path} defines no public functions. Add one, or decorate one with @treadle.tool.")
    return tools
