"""What all tests share."""

import os

import pytest

from tests.surfaces.shell import commands


@pytest.fixture(autouse=True, scope="session")
def _commands_that_were_started(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep, where every worker of this suite finds it, which commands have been started."""
    own = tmp_path_factory.getbasetemp()
    commands.folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "commands"
