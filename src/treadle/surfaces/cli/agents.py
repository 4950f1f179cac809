"""`treadle agents`: the agents of the home."""

import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any, cast

import msgspec
import yaml

from treadle.bootstrap.callers import open_persistent_readonly_caller, open_readonly_caller
from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import ConfigError, UsageError
from treadle.operations import agents
from treadle.ports.accounts import AgentState
from treadle.surfaces.cli.confirmation import is_wanted
from treadle.surfaces.cli.connection import administering
from treadle.surfaces.cli.event_output import note
from treadle.surfaces.cli.process import USAGE, complain
from treadle.surfaces.cli.tables import print_table
from treadle.surfaces.cli.terminal import inert, print_json


async def list_agents(json: bool) -> int:
    """Those that can be read; the others are complained about."""
    home, code = Home.from_environment(os.environ), 0
    views: list[agents.AgentView] = []
    async with open_readonly_caller(home) as caller:
        for name in home.agents():
            try:
                views.append(await caller.call(agents.SHOW, agents.OneAgent(name)))
            except ConfigError as error:
                complain(error)
                code = USAGE
    if json:
        for view in views:
            print_json(view)
    elif views:
        head = ("AGENT", "MODEL", "TOOLS", "STATE")
        rows = [(view.agent.name, _model(view.agent), ", ".join(view.agent.tools), view.state) for view in views]
        print_table(head, rows)
    elif code == 0:
        note(f"no agents yet in {home.path / 'agents'}")
    return code


async def show_agent(name: str, json: bool) -> int:
    home = Home.from_environment(os.environ)
    agent = home.agent(name)
    if json:
        async with open_readonly_caller(home) as caller:
            print_json(await caller.call(agents.SHOW, agents.OneAgent(name)))
    else:
        print(inert(yaml.safe_dump(_whole(agent), sort_keys=False, allow_unicode=True)), end="")
    return 0


async def create_agent(name: str, model: str | None, source: Path | None, json: bool) -> int:
    path = Home.from_environment(os.environ).create_agent(name, model, source)
    if json:
        print_json({"name": name, "file": str(path)})
    else:
        note(f"`{name}` is made: {path}")
    return 0


async def delete_agent(name: str, yes: bool, json: bool) -> int:
    home = Home.from_environment(os.environ)
    home.refuse_unknown(name)
    if not yes and not await is_wanted(f"Delete the agent `{name}`?", f"Deleting the agent `{name}`"):
        note("nothing was deleted")
        return 1
    home.delete_agent(name)
    if json:
        print_json({"name": name, "deleted": True})
    else:
        note(f"`{name}` is deleted; its sessions and its memories are there still")
    return 0


async def agent_state(name: str, state: AgentState | None, json: bool) -> int:
    home = Home.from_environment(os.environ)
    home.refuse_unknown(name)
    if state is None:
        async with open_persistent_readonly_caller(home) as caller:
            view = await caller.call(agents.SHOW, agents.OneAgent(name))
    else:
        async with administering(home) as caller:
            view = await caller.call(agents.SET_STATE, agents.SetState(name, state))
    if json:
        print_json(view)
    else:
        print(f"{name}  {view.state}")
    return 0


# ── Editing ──


async def edit_agent(name: str) -> int:
    note(_edit(Home.from_environment(os.environ), name))
    return 0


def _edit(home: Home, name: str) -> str:
    """Have a copy edited, which counts only when it is right; what came of it. A wrong one is kept to try again."""
    before = home.agent_file(name).read_bytes()
    handle, path = tempfile.mkstemp(prefix=f"{name}-", suffix=".yaml")
    copy = Path(path)
    with os.fdopen(handle, "wb") as file:
        file.write(before)
    _open_editor(copy)
    if copy.read_bytes() == before:
        copy.unlink()
        return "nothing was changed"
    try:
        home.replace_agent(name, copy)
    except ConfigError as error:
        raise ConfigError(f"{error}. `{name}` is as it was; what you wrote is in {copy}") from None
    copy.unlink()
    return f"`{name}` is changed, from its next run on"


def _open_editor(file: Path) -> None:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        done = subprocess.run([*shlex.split(editor), file], check=False)
    except (OSError, ValueError) as error:
        file.unlink()
        raise UsageError(
            f"The editor `{editor}` cannot be started: {error}. Set EDITOR to another. Nothing was changed."
        ) from None
    if done.returncode:
        raise UsageError(
            f"The editor `{editor}` ended with {done.returncode}. Nothing was changed; what you wrote is in {file}"
        )


def _model(agent: AgentSpec) -> str:
    return f"{agent.provider}/{agent.model}" if agent.provider else agent.model


def _whole(value: Any) -> Any:
    """A struct with all its fields, those with default values too."""
    if isinstance(value, msgspec.Struct):
        return {name: _whole(item) for name, item in msgspec.structs.asdict(value).items()}
    return [_whole(item) for item in cast("tuple[Any, ...]", value)] if isinstance(value, tuple) else value
