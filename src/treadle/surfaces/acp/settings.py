"""The settings of a session in an editor: agent, model and mode, and where they are stored.

The journal knows the agent and the model of each run. The files here keep what was chosen since, and that a session
without a message exists."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

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
from treadle.domain.permissions import ApprovalRule, ApprovalRules

Mode = Literal["agent", "ask", "edits", "auto"]
MODES: dict[Mode, tuple[str, str]] = {
    "agent": ("Rules of the agent", "Ask as the approvals of the agent say."),
    "ask": ("Always ask", "Ask before every tool call."),
    "edits": ("Accept edits", "Change files without asking; ask for the rest as the agent's approvals say."),
    "auto": ("Never ask", "Ask for nothing. Rules that deny calls still apply, and so does the sandbox."),
}
EDIT_TOOLS = ("edit_file", "write_file")
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
    mode: Mode = "agent"


def parse_mode(value: str) -> Mode:
    if value not in MODES:
        raise UsageError(f"There is no mode `{value}`. Modes: {', '.join(MODES)}.")
    return value


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
    return replace(spec, workspace=str(folder), approvals=_apply_mode(spec.approvals, settings.mode))


def _apply_mode(rules: ApprovalRules, mode: Mode) -> ApprovalRules:
    """Return the approvals of an agent in a mode. Rules that deny calls stay."""
    match mode:
        case "agent":
            return rules
        case "ask":
            return replace(rules, rules=(*rules.rules, ApprovalRule("*", "ask")))
        case "edits":
            kept = tuple(rule for rule in rules.rules if rule.do != "ask" or rule.tool not in EDIT_TOOLS)
            return replace(rules, rules=(*kept, *(ApprovalRule(tool, "auto") for tool in EDIT_TOOLS)))
        case "auto":
            kept = tuple(rule for rule in rules.rules if rule.do != "ask")
            return replace(rules, default="deny" if rules.default == "deny" else "auto", rules=kept)


# ── What the editor is shown ──


def describe_modes(mode: Mode) -> SessionModeState:
    return SessionModeState(
        current_mode_id=mode,
        available_modes=[SessionMode(id=key, name=name, description=text) for key, (name, text) in MODES.items()],
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
            current_value=settings.mode,
            options=[
                SessionConfigSelectOption(value=key, name=name, description=text)
                for key, (name, text) in MODES.items()
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
