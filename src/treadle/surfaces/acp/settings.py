"""The settings of a session in an editor: agent, model and mode, and where they are stored.

The journal knows the agent and the model of each run. The files here keep what was chosen since, and that a session
without a message exists."""

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from acp.schema import (
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionMode,
    SessionModeState,
)
from msgspec import Struct
from msgspec.structs import replace

from treadle.config.home import DEFAULT_AGENT, Home
from treadle.config.private_files import write_atomically
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import UnknownModel, UsageError
from treadle.domain.modes import MODE_CYCLE, MODE_TEXTS, RULES_NAME, ApprovalMode, describe_mode, parse_mode

_MODES: tuple[ApprovalMode | None, ...] = (None, *MODE_CYCLE)
FOLDER = "acp"
MAX_AGE_SECONDS = 30 * 24 * 3600.0
NOT_SET_UP = (
    "No model is set. Run `treadle` in a terminal: it lists the models that it finds and saves your choice. Or "
    "write `defaults: {{model: provider/model-id}}` into {path}."
)


class SessionSettings(Struct, frozen=True):
    """What was chosen for a session."""

    agent: str = DEFAULT_AGENT
    model: str | None = None
    """None: the model of the agent."""
    mode: ApprovalMode | None = None
    """None: the rules of the agent decide alone. A session with a run keeps its mode itself."""


def read_mode(value: str) -> ApprovalMode | None:
    """Return the mode that an editor names. Raise UsageError for another word."""
    try:
        return parse_mode(value)
    except ValueError as error:
        raise UsageError(f"The mode was not changed: {error}.") from None


def make_spec(home: Home, settings: SessionSettings, folder: Path) -> AgentSpec:
    """Return the agent of a session: with the chosen model, in the folder of the editor. Raise UnknownModel if none
    is set."""
    agent, model = settings.agent, settings.model
    if agent == DEFAULT_AGENT and agent not in home.agents() and not model and not home.config().defaults.model:
        raise UnknownModel(NOT_SET_UP.format(path=home.path / "config.yaml"))
    spec = home.agent(agent, model)
    if model:
        spec = replace(spec, model=model, provider=None)
    if not spec.model and spec.routing is None:
        raise UnknownModel(NOT_SET_UP.format(path=home.path / "config.yaml"))
    return replace(spec, workspace=str(folder))


# ── What the editor is shown ──


def find_mode_id(mode: ApprovalMode | None) -> str:
    """Return the id that editors know a mode by."""
    return mode or RULES_NAME


def describe_modes(mode: ApprovalMode | None) -> SessionModeState:
    return SessionModeState(
        current_mode_id=find_mode_id(mode),
        available_modes=[
            SessionMode(id=find_mode_id(each), name=describe_mode(each).capitalize(), description=MODE_TEXTS[each])
            for each in _MODES
        ],
    )


def describe_options(
    settings: SessionSettings, agents: Sequence[str], models: Sequence[SessionConfigSelectOption], model: str
) -> list[SessionConfigOptionSelect]:
    """Return the options with their values. `model` is the one that answers now."""
    known = models if any(option.value == model for option in models) else (_make_option(model), *models)
    return [
        SessionConfigOptionSelect(
            id="model",
            type="select",
            name="Model",
            category="model",
            description="The model that answers.",
            current_value=model,
            options=list(known),
        ),
        SessionConfigOptionSelect(
            id="agent",
            type="select",
            name="Agent",
            description="The agent of the session.",
            current_value=settings.agent,
            options=[_make_option(name) for name in dict.fromkeys((*agents, settings.agent))],
        ),
        SessionConfigOptionSelect(
            id="mode",
            type="select",
            name="Approvals",
            category="mode",
            description="What needs an approval.",
            current_value=find_mode_id(settings.mode),
            options=[
                SessionConfigSelectOption(
                    value=find_mode_id(each), name=describe_mode(each).capitalize(), description=MODE_TEXTS[each]
                )
                for each in _MODES
            ],
        ),
    ]


def _make_option(value: str) -> SessionConfigSelectOption:
    return SessionConfigSelectOption(value=value, name=value)


# ── Files ──


class SettingsFolder:
    """Stores the settings of sessions in `acp/` of the home, one small file each."""

    def __init__(self, home: Home) -> None:
        self._folder = home.path / FOLDER

    def read(self, session_id: str) -> SessionSettings | None:
        """Return the settings of a session; None if nothing is stored, or the file is damaged."""
        path = self._path(session_id)
        try:
            return None if path is None else msgspec.json.decode(path.read_bytes(), type=SessionSettings)
        except (OSError, msgspec.DecodeError, UnicodeError):
            return None

    def write(self, session_id: str, settings: SessionSettings) -> None:
        path = self._path(session_id)
        if path is not None:
            write_atomically(path, msgspec.json.encode(settings).decode())

    def prune(self) -> None:
        """Delete the files that are old. Their sessions use what their last run had."""
        oldest = time.time() - MAX_AGE_SECONDS
        for path in self._folder.glob("*.json"):
            try:
                if path.stat().st_mtime < oldest:
                    path.unlink()
            except OSError:
                continue

    def _path(self, session_id: str) -> Path | None:
        """Return the file of a session; None for an id that is not a plain name."""
        if not session_id.replace("_", "").replace("-", "").isalnum() or len(session_id) > 100:
            return None
        return self._folder / f"{session_id}.json"
