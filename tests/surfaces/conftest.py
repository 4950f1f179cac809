"""A home and a folder of its own for every test of a surface."""

from pathlib import Path

import pytest

from tests.surfaces.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "home")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the current folder of the user."""
    made = tmp_path / "project"
    made.mkdir()
    return made
