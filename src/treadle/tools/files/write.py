"""`write_file`: a file with exactly this content."""

from treadle.ports.tool import ToolContext, ToolError
from treadle.tools.files.atomic_write import alone
from treadle.tools.files.name_display import shown
from treadle.tools.files.private_files import WRITING
from treadle.tools.files.workspace import opened_for
from treadle.tools.function import tool


@tool(effect="write", repeatable=True, paths=("path",), needs=("workspace",))
def write_file(path: str, content: str, context: ToolContext) -> str:
    """Create a text file, or replace its whole content. To change part of a file, use edit_file.

    Args:
        path: File path.
        content: Whole content.
    """
    if path.endswith("/"):
        raise ToolError(f"{shown(path)} ends in / and so names a folder. Name a file.")
    try:
        data = content.encode()
    except UnicodeEncodeError as error:
        wrong = f"a lone surrogate at character {error.start}"
        raise ToolError(f"the content is not valid text: {wrong}. Nothing was written.") from None
    with opened_for(context, WRITING) as workspace, alone(workspace, path) as target:
        found, others = target.found, target.on_other_names()
        target.replace(data)
        did = "created" if found is None else f"replaced ({found.st_size:,} bytes before)"
        return f"{shown(target.path)} {did}: {_lines(content)}, {len(data):,} bytes.{others}"


def _lines(content: str) -> str:
    count = content.count("\n") + (not content.endswith("\n") and content != "")
    return "1 line" if count == 1 else f"{count:,} lines"
