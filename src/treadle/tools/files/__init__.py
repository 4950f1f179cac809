"""Tools for the files of the workspace: read, write, edit, glob, grep. None of them reaches anything outside
it."""

from treadle.tools.files.approval_path import PathJudgedTool
from treadle.tools.files.edit import edit_file
from treadle.tools.files.glob import glob
from treadle.tools.files.grep import grep
from treadle.tools.files.read import read_file
from treadle.tools.files.write import write_file
from treadle.tools.toolset import Toolset


def make_file_tools() -> Toolset:
    """Return the tools. Agent files refer to them as `@files` or by name."""
    return Toolset("files", [PathJudgedTool(tool) for tool in (read_file, write_file, edit_file, glob, grep)])
