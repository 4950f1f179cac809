"""Editing a text in the user's editor."""

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from treadle.domain.errors import UsageError


def is_editor_set() -> bool:
    """Return whether the environment names an editor."""
    return bool(os.environ.get("VISUAL") or os.environ.get("EDITOR"))


def write_copy(content: bytes, prefix: str, suffix: str) -> Path:
    """Return a private temporary file with this content."""
    handle, path = tempfile.mkstemp(prefix=prefix, suffix=suffix)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    return Path(path)


def open_editor(file: Path) -> None:
    """Open a file in $VISUAL or $EDITOR, and wait. Raise UsageError if the editor fails; the file is kept."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        done = subprocess.run([*shlex.split(editor), file], check=False)
    except (OSError, ValueError) as error:
        file.unlink()
        raise UsageError(
            f"The editor `{editor}` cannot be started: {error}. Set EDITOR to another. Nothing was changed."
        ) from None
    if done.returncode:
        raise UsageError(
            f"The editor `{editor}` ended with {done.returncode}. Nothing was changed; your text is in {file}"
        )
