"""Every command is in the list of commands whose output is recorded (`tests/e2e/test_recorded.py`)."""

from tests.surfaces.recorded import INVOCATIONS
from treadle.surfaces.cli.command_table import all_commands, find_command


def test_every_command_is_recorded() -> None:
    recorded = {command.path for each in INVOCATIONS if (command := find_command(each.words))}
    assert {command.path for command in all_commands()} - recorded == set()
