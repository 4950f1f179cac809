"""Fixtures and hooks that all tests share."""

import gc
import os
from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import HealthCheck, settings

from tests.audit.plugin import AUDIT
from tests.audit.plugin import no_execution_from_writable_places as no_execution_from_writable_places
from tests.surfaces.shell import commands
from treadle.memory import local_embedder

settings.register_profile(
    "busy machine", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy machine")


def pytest_configure(config: pytest.Config) -> None:
    """Start the audit in each process that runs tests."""
    if "PYTEST_XDIST_WORKER" in os.environ or not config.getoption("numprocesses", None):
        AUDIT.start()


@pytest.fixture(autouse=True, scope="session")
def _commands_that_were_started(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep, where every worker of this suite finds it, which commands have been started."""
    own = tmp_path_factory.getbasetemp()
    commands.folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "commands"


@pytest.fixture(autouse=True, scope="session")
def _one_encoder() -> Iterator[None]:
    """Load the encoder of the local embedder once for each process of the suite, not for each engine: it takes a
    second or two. Every engine still has an embedder of its own, with its own thread."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_embedder, "_create_encoder", cache(local_embedder._create_encoder))  # pyright: ignore[reportPrivateUsage] -- what loads it
        yield


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Name the event loop that runs coroutine tests. Each of them gets a new one."""
    return "asyncio"


@pytest.fixture(autouse=True, scope="module")
def _small_heap() -> None:
    """Exclude the objects that exist now from garbage collection: nearly all of them live until the end, and a full
    collection would take seconds in the last third of the suite."""
    gc.collect()
    gc.freeze()
