"""A home and a workspace for every test."""

from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made
