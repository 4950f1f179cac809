"""The systemd units, the compose file and the documentation name existing commands and options."""

import configparser
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from treadle.config.home_config import ServerSettings
from treadle.surfaces.cli.command_table import find_command

DOCS = Path(__file__).parents[1] / "docs"
UNITS = sorted((DOCS / "systemd").iterdir())
PAGE = (DOCS / "postgres.md").read_text()


def read_compose_file() -> dict[str, Any]:
    return yaml.safe_load((DOCS / "compose.yaml").read_text())


def unit(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(path)
    return parser


def list_started_commands() -> list[list[str]]:
    """What follows `treadle` in the units, in the compose file and on the page."""
    services = [each for each in read_compose_file()["services"].values() if each["image"] == "treadle"]
    told = [service["command"] for service in services]
    for path in UNITS:
        command, *rest = shlex.split(unit(path)["Service"]["ExecStart"])
        assert Path(command).name == "treadle"
        told.append(rest)
    shown = re.findall(r"^\$ (?:\w+=\S+ )*treadle (.*?)(?: *#.*)?$", PAGE, re.MULTILINE)
    in_compose = re.findall(r"run --rm worker (.*)$", (DOCS / "compose.yaml").read_text(), re.MULTILINE)
    return told + [shlex.split(line) for line in [*shown, *in_compose]]


@pytest.mark.parametrize("words", list_started_commands(), ids=" ".join)
def test_a_documented_command_exists_with_its_options(words: list[str]) -> None:
    command = find_command(words)
    assert command is not None
    known = {flag for option in command.options for flag in option.flags}
    assert {word.partition("=")[0] for word in words if word.startswith("-")} <= known


def test_the_compose_file_has_two_servers_and_two_workers() -> None:
    services = read_compose_file()["services"]
    commands = [service["command"][0] for service in services.values() if service["image"] == "treadle"]
    assert commands == ["serve", "serve", "worker"]
    assert services["worker"]["deploy"]["replicas"] == 2


def test_services_give_processes_enough_time_to_stop() -> None:
    """Else runs would be cut off in the middle of a step, which is then done again."""
    needed = ServerSettings().drain_seconds + 10
    for path in UNITS:
        assert float(unit(path)["Service"]["TimeoutStopSec"]) >= needed
        assert unit(path)["Service"]["KillMode"] == "mixed", "tools under way would be stopped first"
    ours = [service for service in read_compose_file()["services"].values() if service["image"] == "treadle"]
    assert all(float(service["stop_grace_period"].rstrip("s")) >= needed for service in ours)
