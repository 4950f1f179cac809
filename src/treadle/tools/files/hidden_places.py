"""The refusal of places that no tool may use: the home of Treadle."""

from treadle.ports.tool import ToolError
from treadle.tools.files.name_display import display_name


class HiddenPlaceError(ToolError):
    """The path leads to a folder that no tool may use."""


def make_hidden_error(path: str) -> HiddenPlaceError:
    return HiddenPlaceError(
        f"{display_name(path)} is Treadle's own, which no tool may read or change. Leave it alone."
    )
