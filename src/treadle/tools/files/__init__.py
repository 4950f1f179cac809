"""Tools for the files of the workspace: read, write, edit, glob, grep. None of them reaches anything outside it."""

from treadle.tools.files.approval_path import PathJudgedTool
from treadle.tools.files.edit import edit_file
from treadle.tools.files.glob import glob
from treadle.tools.files.grep import grep
from treadle.tools.files.read import read_file
from treadle.tools.files.write import write_file
from treadle.tools.toolset import Toolset


def make_file_tools() -> Toolset:
    """The tools, as agent files name them: `@files`, or each by its name."""
    return Toolset("files", [PathJudgedTool(made) for made in (read_file, write_file, edit_file, glob, grep)])
