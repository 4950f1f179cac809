"""`write_file`: writes a file with exactly this content."""

from treadle.ports.tool import ToolContext, ToolError
from treadle.tools.files.atomic_write import lock_for_writing
from treadle.tools.files.fingerprints import refuse_changed_target
from treadle.tools.files.name_display import display_name
from treadle.tools.files.private_files import PRIVATE_TO_WRITE
from treadle.tools.files.workspace import open_call_workspace
from treadle.tools.function import tool


@tool(effect="write", repeatable=True, paths=("path",), needs=("workspace",))
def write_file(path: str, content: str, context: ToolContext) -> str:
    """Create a text file, or replace its whole content. To change part of a file, use edit_file.

    Args:
        path: File path.
        content: Whole content.
    """
    data = encode_content(path, content)
    with (
        open_call_workspace(context, PRIVATE_TO_WRITE) as workspace,
        lock_for_writing(workspace, path) as target,
    ):
        refuse_changed_target(target, context.files, written=data)
        before, others = target.status, target.describe_hard_links()
        target.replace(data)
        did = "created" if before is None else f"replaced ({before.st_size:,} bytes before)"
        return f"{display_name(target.path)} {did}: {_count_lines(content)}, {len(data):,} bytes.{others}"


def encode_content(path: str, content: str) -> bytes:
    """Return the content as bytes. Raise ToolError if it cannot be written to any file of this name."""
    if path.endswith("/"):
        raise ToolError(f"{display_name(path)} ends in / and so names a folder. Name a file.")
    try:
        return content.encode()
    except UnicodeEncodeError as error:
        wrong = f"a lone surrogate at character {error.start}"
        raise ToolError(f"the content is not valid text: {wrong}. Nothing was written.") from None


def _count_lines(content: str) -> str:
    count = content.count("\n") + (not content.endswith("\n") and content != "")
    return "1 line" if count == 1 else f"{count:,} lines"
