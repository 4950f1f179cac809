"""Tools for the files of the workspace: read, write, edit, glob, grep. None of them reaches anything outside
it."""

from treadle.ports.tool import Tool
from treadle.tools.files.apply_patch import apply_patch
from treadle.tools.files.approval_path import PatchJudgedTool, PathJudgedTool
from treadle.tools.files.edit import edit_file
from treadle.tools.files.glob import glob
from treadle.tools.files.grep import grep
from treadle.tools.files.read import read_file
from treadle.tools.files.write import write_file
from treadle.tools.toolset import Toolset


def make_file_tools() -> Toolset:
    """Return the tools. Agent files refer to them as `@files` or by name."""
    return Toolset("files", [PathJudgedTool(tool) for tool in (read_file, write_file, edit_file, glob, grep)])


def make_patch_tool() -> Tool:
    """Return the tool for models whose profile asks for patches. It takes the place of `edit_file` for them."""
    return PatchJudgedTool(apply_patch)
