"""What each command prints on a terminal of 80 and of 200 columns is what the repository has recorded."""

from difflib import unified_diff
from pathlib import Path

import pytest

from tests.mcp.homes import needs_sandbox
from tests.surfaces.recorded import WIDTHS, read_recordings, record

HOW = "Read the difference. If users should see it: python -m tests.surfaces.recorded"


@needs_sandbox
@pytest.mark.parametrize("columns", WIDTHS)
async def test_commands_print_what_is_recorded(columns: int, tmp_path: Path) -> None:
    recorded, found = read_recordings(columns), await record(tmp_path, columns)
    for name in sorted({*recorded, *found}):
        before, now = recorded.get(name, ""), found.get(name, "")
        lines = unified_diff(before.splitlines(), now.splitlines(), f"{columns}/{name}", "now", lineterm="")
        assert before == now, "\n".join([HOW, *lines])
