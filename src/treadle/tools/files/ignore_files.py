"""Reads the .gitignore files of the workspace, never through a link."""

import os

from treadle.domain.ignore_rules import MAX_IGNORE_FILE_BYTES, IgnoreRules
from treadle.ports.tool import ToolError
from treadle.tools.files.text import read_bytes
from treadle.tools.files.workspace import OpenPath

_FILE_NAME = ".gitignore"


def read_ignore_file(rules: IgnoreRules, folder: int, under: str) -> IgnoreRules:
    """Return the rules together with those of the .gitignore in this open folder."""
    try:
        descriptor = OpenPath(folder, _FILE_NAME, under + _FILE_NAME).open()
    except ToolError:  # missing or not readable
        return rules
    try:
        return rules.with_file(read_bytes(descriptor, MAX_IGNORE_FILE_BYTES).decode("utf-8", "replace"), under)
    finally:
        os.close(descriptor)
