"""The home: the folder with the configuration, the agents and the database of one user."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from treadle.config.agent_files import AgentTemplate, make_new_agent, render_agent, render_new_agent
from treadle.config.home_config import HomeConfig
from treadle.config.live_config import LiveConfig
from treadle.config.private_files import HOME_VARIABLE, exists, make_folder, require_writable, write_atomically
from treadle.config.yaml_files import dump_yaml, parse_struct, read_struct, to_struct
from treadle.domain.agents import AgentSpec, SmallModels
from treadle.domain.errors import ConfigError, InvalidState, UnknownAgent, UsageError
from treadle.domain.permissions import ApprovalRule, ApprovalRules
from treadle.domain.schemas import check_schema
from treadle.domain.suggestions import find_closest
from treadle.domain.workspaces import WorkspaceId

DATABASE_URL_VARIABLE = "TREADLE_DATABASE_URL"
DEFAULT_AGENT = "default"
DEFAULT_PERMITTED_TOOLS = ("read_file", "glob", "grep", "recall", "clarify", "memory_search", "update_plan")
DEFAULT_APPROVAL_TOOLS = ("write_file", "edit_file", "bash", "web_fetch", "memory_save", "journal_write")
"""The tools of the default agent: those that it may use freely, and those that need an approval."""
DEFAULT_PERSONA = """\
You are Treadle, a careful assistant with tools. Answer a plain question directly. When a task needs files, \
commands or the web, use a tool instead of guessing.
For work on files: look first, at the code around the change and at who uses it. Follow the conventions of the \
project. For work of several steps, write a plan with update_plan and keep it current. Fix the cause, with the \
smallest change that does it. Then check it with the project's own tests, and read their output.
Do what was asked and nothing more; leave changes that others made as they are. When a call fails, read its \
message and try another way. At the end, say briefly what you did, what you checked and what is left. Say that \
something works or was done only if a result shows it.
"""
SMALL_MODEL_PERSONA = "You are a helpful assistant. Answer briefly."
_ALLOWED_HEADER = "# What this agent may do without asking, and where. Remove an entry to be asked again.\n"


class Allowed(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of an agent's `allowed.yaml`: what a reviewer has allowed permanently."""

    allowed: tuple[ApprovalRule, ...] = ()


class Home(Struct, frozen=True):
    """The paths of a home. Nothing is created before it is needed."""

    path: Path
    database: str | None = None
    """The URL of a database other than the home's own."""
    live: LiveConfig | None = None
    """The settings of a process that runs for long; None: the file is read each time."""
    new: bool = False
    """Whether to start with an empty database if the one that the home had is missing."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Home":
        chosen = environment.get(HOME_VARIABLE) or "~/.treadle"
        try:
            path = Path(chosen).expanduser().absolute()
        except (RuntimeError, OSError) as error:
            raise ConfigError(
                f"The home `{chosen}` cannot be found: {error}. Set {HOME_VARIABLE} to a folder."
            ) from None
        return cls(path, environment.get(DATABASE_URL_VARIABLE) or None)

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def database_url(self) -> str:
        return self.database or f"sqlite:///{self.path / 'treadle.db'}"

    @property
    def vault(self) -> Path:
        return self.path / "vault.db"

    @property
    def file_versions(self) -> Path:
        """The folder with the versions of files that runs changed."""
        return self.path / "file_versions"

    def workspace_path(self, agent: AgentSpec) -> Path:
        """Return the folder in which an agent's tools work, whether it exists or not."""
        if agent.workspace is not None:
            return Path(agent.workspace).expanduser().absolute()
        return self.path / "workspaces" / agent.name

    def workspace(self, agent: AgentSpec) -> Path:
        """Return the agent's workspace. Create it in the home; elsewhere raise UsageError if it is missing."""
        path = self.workspace_path(agent)
        if agent.workspace is not None:
            if not path.is_dir():
                raise UsageError(
                    f"The workspace {path} of agent `{agent.name}` is not a folder. Create it, or set another one."
                )
            return path
        for folder in (self.path, path.parent, path):
            make_folder(folder)
        return path

    @property
    def weights(self) -> Path:
        """The folder with the weights of local models."""
        return self.path / "models"

    def require_folder(self) -> "Home":
        """Return this home. Raise ConfigError if there is something else in its place."""
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(
                f"The home {self.path} is not a folder. Set {HOME_VARIABLE} to a folder, or move the file away."
            )
        return self

    def ensure(self) -> Path:
        """Create the folder, private to this user, if it is missing."""
        make_folder(self.path)
        return self.path

    def require_writable(self) -> None:
        """Create the folder if it is missing. Raise ConfigError if nothing can be stored in it."""
        require_writable(self.path)

    @property
    def config_file(self) -> Path:
        return self.path / "config.yaml"

    def config(self) -> HomeConfig:
        if self.live is not None:
            return self.live.refresh()
        return read_struct(self.config_file, HomeConfig) if exists(self.config_file) else HomeConfig()

    def with_live_config(self) -> "Home":
        """Return this home with settings that follow the file while it is valid."""
        if self.live is not None:
            return self
        return msgspec.structs.replace(self, live=LiveConfig(self.config_file, self.config))

    def watch_config(self, say: Callable[[str], None]) -> AbstractAsyncContextManager[None]:
        """Apply changes of config.yaml while the context manager is entered. `say` reports each change."""
        live = self.live or LiveConfig(self.config_file, self.config)
        return live.watch(say)

    # ── Agents ──

    def agents(self) -> Sequence[str]:
        """Return the names of the agents that have a file."""
        folder = self.path / "agents"
        if not exists(folder):
            return ()
        try:
            return sorted(entry.name for entry in folder.iterdir() if exists(entry / "config.yaml"))
        except OSError as error:
            raise ConfigError(f"{folder}: cannot be read: {error.strerror}; check its permissions") from None

    def agent(self, name: str, model: str | None = None) -> AgentSpec:
        """Return the agent with this name. The default agent is created when it is first used.

        Without a default model the default agent is not stored, and uses `model`."""
        # The name is looked up in a list and never joined to a path, so no name leads out of the folder.
        if name in self.agents():
            return self._add_limits(self._read_agent(name))
        if name == DEFAULT_AGENT:
            return self._add_limits(self._make_default_agent(model))
        raise UnknownAgent(self._make_unknown_agent(name))

    def _add_limits(self, spec: AgentSpec) -> AgentSpec:
        """Return the agent with the default limits that it does not set itself."""
        default = self.config().defaults.history_messages
        if default is None or spec.limits.history_messages is not None:
            return spec
        limits = msgspec.structs.replace(spec.limits, history_messages=default)
        return msgspec.structs.replace(spec, limits=limits)

    def _read_agent(self, name: str) -> AgentSpec:
        return self._complete(_read_agent_file(self._agent_file(name), name))

    def _complete(self, spec: AgentSpec) -> AgentSpec:
        """Return the agent with the default model, and with what was allowed permanently."""
        defaults = self.config().defaults
        if not spec.model and defaults.model is not None:
            spec = msgspec.structs.replace(spec, model=defaults.model, provider=spec.provider or defaults.provider)
        return self._add_allowed(spec)

    def agent_file(self, name: str) -> Path:
        """Return the file of an existing agent."""
        self.refuse_unknown(name)
        return self._agent_file(name)

    def files_of_agent(self, name: str) -> tuple[Path, Path]:
        """Return the files with the settings of an agent and with its permanent permissions."""
        return self._agent_file(name), self._allowed_file(name)

    def refuse_unknown(self, name: str) -> None:
        if name not in self.agents():
            raise UnknownAgent(self._make_unknown_agent(name))

    def create_agent(
        self,
        name: str,
        model: str | None = None,
        source: Path | None = None,
        template: AgentTemplate | None = None,
    ) -> Path:
        """Create an agent from a template or from a file, optionally with another model. Return its file."""
        if name in self.agents():
            raise UsageError(f"There is an agent `{name}` already. Change it with: treadle agents edit {name}")
        if source is None and not model and self.config().defaults.model is None:
            raise UsageError(
                f"Agent `{name}` was not created: no model is set. Add --model provider/model-id or --from FILE, "
                f"or set `defaults: {{model: provider/model-id}}` in {self.path / 'config.yaml'}."
            )
        try:
            spec = make_new_agent(name, model or "", template) if source is None else _read_agent_file(source)
            named = msgspec.structs.replace(spec, name=name, model=model or spec.model)
        except ValueError as error:
            raise UsageError(f"{error}.") from None
        if source is None:
            text = render_new_agent(named)
        else:
            text = source.read_text(encoding="utf-8-sig") if named == spec else render_agent(named)
        write_atomically(self._agent_file(name), text)
        return self._agent_file(name)

    def replace_agent(self, name: str, source: Path) -> None:
        """Replace the file of an agent with another one, which is checked first."""
        path = self.agent_file(name)
        _read_agent_file(source, name)
        write_atomically(path, source.read_text(encoding="utf-8-sig"))

    def parse_agent(self, name: str, text: str, source: str) -> AgentSpec:
        """Return the agent that a file with this text would define now. `source` says where the text is from."""
        spec = parse_struct(text, AgentSpec, source)
        _check_agent(spec, name, source)
        return self._add_limits(self._complete(spec))

    def write_agent(self, name: str, text: str) -> None:
        """Write the file of an agent, which may be new. The text is checked first."""
        self.parse_agent(name, text, f"agent `{name}`")
        write_atomically(self._agent_file(name), text)

    def put_agent(self, values: dict[str, Any], *, new: bool) -> AgentSpec:
        """Store an agent with these settings, which are checked like those of a file."""
        spec = to_struct(values, AgentSpec, "the agent")
        if spec.output is not None:
            _check_output_schema("the agent", spec.output)
        if new and spec.name in self.agents():
            raise InvalidState(f"There is an agent `{spec.name}` already.")
        if not new:
            self.refuse_unknown(spec.name)
        write_atomically(self._agent_file(spec.name), render_agent(spec))
        return self._add_allowed(spec)

    def delete_agent(self, name: str) -> None:
        """Delete an agent with its permanent permissions."""
        path = self.agent_file(name)
        try:
            for file in (path, self._allowed_file(name)):
                file.unlink(missing_ok=True)
            with suppress(OSError):  # the folder has other files
                path.parent.rmdir()
        except OSError as error:
            raise ConfigError(f"{path}: cannot be deleted: {error.strerror}; check its permissions") from None

    def _add_allowed(self, spec: AgentSpec) -> AgentSpec:
        path = self._allowed_file(spec.name)
        if not exists(path):
            return spec
        rules = (*spec.approvals.rules, *read_struct(path, Allowed).allowed)
        return msgspec.structs.replace(spec, approvals=msgspec.structs.replace(spec.approvals, rules=rules))

    def allow(self, agent: str, tool: str, pattern: str, workspace: WorkspaceId) -> Path:
        """Permit an agent to do this in a workspace without an approval, from its next run on. Return the changed
        file."""
        path = self._allowed_file(agent)
        rule = ApprovalRule(tool, "auto", pattern, workspace=workspace)
        known = self.list_allowed(agent)
        rules = [msgspec.to_builtins(each) for each in (*known, *(() if rule in known else (rule,)))]
        write_atomically(path, _ALLOWED_HEADER + dump_yaml({"allowed": rules}))
        return path

    def list_allowed(self, agent: str) -> tuple[ApprovalRule, ...]:
        """Return what a reviewer has allowed an agent permanently."""
        path = self._allowed_file(agent)
        return read_struct(path, Allowed).allowed if exists(path) else ()

    def disallow(self, agent: str, rule: ApprovalRule) -> None:
        """Remove something that a reviewer has allowed permanently. It applies from the next run on."""
        rules = [msgspec.to_builtins(each) for each in self.list_allowed(agent) if each != rule]
        write_atomically(self._allowed_file(agent), _ALLOWED_HEADER + dump_yaml({"allowed": rules}))

    def _make_default_agent(self, model: str | None) -> AgentSpec:
        defaults = self.config().defaults
        if defaults.model is not None:
            spec = _make_default_agent(defaults.model, defaults.provider)
            follows = msgspec.structs.replace(spec, model="", provider=None)  # a changed `defaults` applies to it
            write_atomically(self._agent_file(DEFAULT_AGENT), _render_default_agent(follows))
            return self._add_allowed(spec)
        if model:
            return self._add_allowed(_make_default_agent(model))
        raise UsageError(
            "No model is set. Name one for this run with -m provider/model-id, or for good with "
            f"`defaults: {{model: provider/model-id}}` in {self.path / 'config.yaml'}"
        )

    def _agent_file(self, name: str) -> Path:
        return self.path / "agents" / name / "config.yaml"

    def _allowed_file(self, name: str) -> Path:
        return self.path / "agents" / name / "allowed.yaml"

    def _make_unknown_agent(self, name: str) -> str:
        known = self.agents()
        near = find_closest(name, known)
        hint = f"did you mean `{near}`?" if near else f"known agents: {', '.join(known) or 'none yet'}"
        return f"No agent is called `{name}`; {hint}. An agent is a file {self._agent_file('NAME')}"


def _make_default_agent(model: str, provider: str | None = None) -> AgentSpec:
    """Return the default agent, which may read freely and needs an approval for everything else."""
    rules = tuple(ApprovalRule(tool, "auto") for tool in (*DEFAULT_PERMITTED_TOOLS, "load_skill"))
    approvals = ApprovalRules(default="ask", rules=rules)
    tools = (*DEFAULT_PERMITTED_TOOLS, *DEFAULT_APPROVAL_TOOLS)
    return AgentSpec(
        DEFAULT_AGENT,
        model,
        provider,
        persona=DEFAULT_PERSONA,
        tools=tools,
        skills=("*",),
        approvals=approvals,
        small_models=SmallModels(tools=(), persona=SMALL_MODEL_PERSONA, recall=0),
    )


def _render_default_agent(spec: AgentSpec) -> str:
    return "# The agent that answers when no other is named. Treadle made this file; change it as you like.\n" + (
        render_agent(spec)
    )


def _read_agent_file(path: Path, name: str | None = None) -> AgentSpec:
    """Return the agent in a file. Raise ConfigError if its name is not the expected one."""
    spec = read_struct(path, AgentSpec)
    _check_agent(spec, name, path)
    return spec


def _check_agent(spec: AgentSpec, name: str | None, source: Path | str) -> None:
    if name is not None and spec.name != name:
        raise ConfigError(f"{source}: name: found `{spec.name}`; accepted: `{name}`, as its folder is called")
    if spec.output is not None:
        _check_output_schema(source, spec.output)


def _check_output_schema(path: Path | str, schema: dict[str, Any]) -> None:
    try:
        check_schema(schema)
    except ValueError as error:
        raise ConfigError(f"{path}: output: it is not a JSON Schema: {error}") from None
