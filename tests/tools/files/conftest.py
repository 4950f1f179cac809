"""A workspace, and a folder next to it."""

from pathlib import Path

import pytest

from tests.tools.files.calling import Outside


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Outside:
    return Outside(tmp_path / "outside")
