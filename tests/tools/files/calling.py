"""Calls the file tools in a workspace, as the engine does."""

import asyncio
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from treadle.domain.ids import RunId, SessionId
from treadle.ports.tool import ToolContext, ToolError
from treadle.tools.files import make_file_tools, make_patch_tool

TOOLS = {tool.spec.name: tool for tool in (*make_file_tools(), make_patch_tool())}
CANARY = "CANARY-outside-the-workspace"


def context(workspace: Path) -> ToolContext:
    return ToolContext(RunId("run_1"), SessionId("ses_1"), "c1", "run_1/c1", lambda text: None, workspace=workspace)


def call(workspace: Path, name: str, **arguments: Any) -> str:
    tool = TOOLS[name]
    parsed = tool.parse(msgspec.json.encode(arguments).decode())
    return str(asyncio.run(tool.run(parsed, context(workspace))))


def refused(workspace: Path, name: str, **arguments: Any) -> str:
    with pytest.raises(ToolError) as raised:
        call(workspace, name, **arguments)
    return str(raised.value)


class Outside:
    """A folder next to the workspace that must not change and must never be read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.file = folder / "secret.txt"
        self.file.write_text(CANARY)

    def is_untouched(self) -> bool:
        return os.listdir(self.folder) == ["secret.txt"] and self.file.read_text() == CANARY
