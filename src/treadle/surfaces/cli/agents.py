"""`treadle agents`: the agents of the home."""

import os
import sys
from typing import Any, cast

import msgspec
import yaml

from treadle.domain.errors import ConfigError
from treadle.home import Home
from treadle.surfaces.cli.printing import note
from treadle.surfaces.cli.process import USAGE, complain
from treadle.surfaces.cli.tables import print_table
from treadle.surfaces.cli.terminal import inert


async def list_agents(json: bool) -> int:
    """Those that can be read; the others are complained about."""
    home, code = Home.from_environment(os.environ), 0
    rows: list[dict[str, Any]] = []
    for name in home.agents():
        try:
            rows.append(_whole(home.agent(name)))
        except ConfigError as error:
            complain(error)
            code = USAGE
    if json:
        for row in rows:
            _print_json(row)
    elif rows:
        head = ("AGENT", "MODEL", "TOOLS")
        print_table(head, [(row["name"], _model(row), ", ".join(row["tools"])) for row in rows])
    elif code == 0:
        note(f"no agents yet in {home.path / 'agents'}")
    return code


async def show_agent(name: str, json: bool) -> int:
    agent = _whole(Home.from_environment(os.environ).agent(name))
    if json:
        _print_json(agent)
    else:
        print(inert(yaml.safe_dump(agent, sort_keys=False, allow_unicode=True)), end="")
    return 0


def _model(agent: dict[str, Any]) -> str:
    return f"{agent['provider']}/{agent['model']}" if agent["provider"] else agent["model"]


def _whole(value: Any) -> Any:
    """A struct with all its fields, those with default values too."""
    if isinstance(value, msgspec.Struct):
        return {name: _whole(item) for name, item in msgspec.structs.asdict(value).items()}
    return [_whole(item) for item in cast("tuple[Any, ...]", value)] if isinstance(value, tuple) else value


def _print_json(value: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")
