"""Files and folders of a home, private to its user."""

import os
import tempfile
from pathlib import Path

from treadle.domain.errors import ConfigError

HOME_VARIABLE = "TREADLE_HOME"


def exists(path: Path) -> bool:
    """Return whether the path exists. If it cannot be inspected, return True, so that reading it reports why."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def make_folder(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"The folder {path} cannot be created: {error.strerror}. Make its parent writable, or set "
            f"{HOME_VARIABLE} to another one."
        ) from None


def require_writable(folder: Path) -> None:
    """Create a folder if it is missing. Raise ConfigError if no file can be created in it."""
    make_folder(folder)
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ConfigError(
            f"The folder {folder} is not writable: {error.strerror}. Change its permissions, or set "
            f"{HOME_VARIABLE} to another folder."
        ) from None


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that readers see either the old or the new content. Create its folders, private to this
    user."""
    for folder in reversed(path.parents[:3]):  # home, agents, NAME: each private to this user
        make_folder(folder)
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).replace(path)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be written: {error.strerror}; check the permissions of the folder"
        ) from None
