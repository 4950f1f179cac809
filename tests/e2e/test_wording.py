"""Clients of every surface see the same facts however the messages are worded: HTTP, the command line, a channel,
an editor, and MCP in both directions."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from tests.patience import HANG_SECONDS
from tests.wording.rewording import reword
from tests.wording.surface_child import FACTS, MESSAGES

ROOT = Path(__file__).parent.parent.parent
Told = dict[str, list[tuple[str, Any]]]


def tell_in_both_wordings(folder: Path) -> tuple[Told, Told]:
    """Return the facts of the stories with the ordinary wording and with every message reworded. Two processes tell
    them at the same time."""
    folders = (folder / "ordinary", folder / "reworded")
    processes: list[subprocess.Popen[bytes]] = []
    for place in folders:
        place.mkdir()
        command = [sys.executable, "-m", "tests.wording.surface_child", str(place), place.name]
        processes.append(subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE))
    for process in processes:
        _, errors = process.communicate(timeout=10 * HANG_SECONDS)
        assert process.returncode == 0, errors.decode()
    ordinary, reworded = (msgspec.json.decode((place / FACTS).read_bytes(), type=Told) for place in folders)
    return ordinary, reworded


def test_surfaces_give_the_same_facts_with_other_words(tmp_path: Path) -> None:
    ordinary, reworded = tell_in_both_wordings(tmp_path)
    expected = [(module, reword(message, module)) for module, message in ordinary.pop(MESSAGES)]
    assert reworded.pop(MESSAGES) == expected
    for story, facts in ordinary.items():
        for told, told_otherwise in zip(facts, reworded[story], strict=True):
            assert told_otherwise == told, story
    statuses = {value[0] for _, value in ordinary["serve_clients"] if isinstance(value[0], int)}
    assert statuses >= {200, 202, 400, 401, 403, 404, 405, 409, 413, 422}
    assert {value[1] for _, value in ordinary["type_commands"]} >= {0, 1, 2, 4}, "exit codes"
