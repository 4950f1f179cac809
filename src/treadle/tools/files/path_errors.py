"""Checks of the paths that file tools receive, and errors about them."""

import errno
import os
import re
from difflib import get_close_matches
from itertools import islice

from treadle.ports.tool import ToolError
from treadle.tools.files.name_display import display_name

_MAX_PATH_BYTES = 4096
_MAX_NEIGHBOURS = 2000
"""How many names are searched for suggestions."""
_HOME = re.compile(r"~[A-Za-z0-9_.-]*(?:/.*)?", re.DOTALL)


class HiddenPlaceError(ToolError):
    """The path leads to a folder that no tool may use."""


def make_hidden_error(path: str) -> HiddenPlaceError:
    return HiddenPlaceError(
        f"{display_name(path)} is Treadle's own, which no tool may read or change. Leave it alone."
    )


def explain_os_error(error: OSError, path: str) -> ToolError:
    """Return a ToolError that explains what the system refused."""
    what = display_name(path)
    match error.errno:
        case errno.ENOENT:
            words = f"{what} is not there. glob finds what is."
        case errno.ENOTDIR | errno.ELOOP:
            words = f"{what} is not a folder."
        case errno.EACCES | errno.EPERM:
            words = f"{what}: the system does not permit this. Use another file, or report it."
        case errno.EISDIR:
            words = f"{what} is a folder."
        case errno.ENAMETOOLONG:
            words = f"{what}: the name is too long. Use a shorter one."
        case errno.ENOSPC | errno.EDQUOT:
            words = f"{what}: there is no room left on the disk. Nothing was changed."
        case errno.EROFS:
            words = f"{what} is on a disk that can only be read."
        case _:
            words = f"{what}: {error.strerror or error}."
    return ToolError(words)


def check_path(path: str) -> str:
    """Return the path. Raise ToolError if no file can have it."""
    if not path:
        raise ToolError('the path is empty. Name a file, relative to the workspace; "." is the workspace itself.')
    if "\0" in path:
        raise ToolError(f"{display_name(path)} holds a NUL character, which no file name can.")
    if _HOME.fullmatch(path):
        raise ToolError(
            f"{display_name(path)}: `~` is not expanded, and only the workspace can be used. Use a path relative "
            "to it; "
            f"a file that is really called so is ./{display_name(path)}."
        )
    try:
        size = len(os.fsencode(path))
    except UnicodeEncodeError:
        raise ToolError(f"{display_name(path)} is not valid text, so no file is called that.") from None
    if size > _MAX_PATH_BYTES:
        raise ToolError(f"the path is {size} bytes long; at most {_MAX_PATH_BYTES} are accepted.")
    return path


def suggest_neighbours(folder: int, name: str) -> str:
    """Return names in the same folder that may have been meant."""
    try:
        with os.scandir(folder) as listed:
            names = [entry.name for entry in islice(listed, _MAX_NEIGHBOURS)]
    except OSError:
        names = []
    close = get_close_matches(name[:200], names, n=3)
    if not close:
        return "Use glob to find files."
    return f"Similar names in that folder: {', '.join(display_name(one) for one in close)}."
