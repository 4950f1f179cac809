"""Folders that only their user can open."""

from pathlib import Path


def make_private_folder(path: Path) -> None:
    """Create a folder with the missing ones above it."""
    if path.is_dir():
        return
    make_private_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
