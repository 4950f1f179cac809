"""The stores other than the journal pass the conformance checks."""

import asyncio
import inspect
from types import ModuleType

import pytest

from tests.patience import HANG_SECONDS
from tests.stores.postgres.harness import KeptOnServer
from tests.testing.harnesses import KeptOnFile
from tests.testing.test_conformance import named
from treadle.testing.conformance import (
    access,
    automation,
    deletion,
    labels,
    memories,
    memory_events,
    owners,
    searches,
    titles,
    workspaces,
)
from treadle.testing.conformance.store_harness import FullStoreCheck, FullStoreHarness

PARTS = (memories, memory_events, owners, access, automation, deletion, searches, titles, workspaces, labels)
KEPT_CHECKS = tuple(check for part in PARTS for check in part.CHECKS)


@pytest.fixture(params=["sqlite", "postgres"])
def stores(request: pytest.FixtureRequest) -> FullStoreHarness:
    if request.param == "postgres":
        return KeptOnServer(request.getfixturevalue("url"))
    return KeptOnFile(request.getfixturevalue("tmp_path"))


@pytest.mark.parametrize("check", named(KEPT_CHECKS))
async def test_each_store_keeps_the_contracts_of_the_other_stores(
    check: FullStoreCheck, stores: FullStoreHarness
) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        await check(stores)


@pytest.mark.parametrize("module", PARTS)
def test_every_check_is_listed_and_states_its_contract(module: ModuleType) -> None:
    functions = inspect.getmembers(module, inspect.iscoroutinefunction)
    defined = {name for name, value in functions if value.__module__ == module.__name__ and name[0] != "_"}
    assert {check.__name__ for check in module.CHECKS} == defined
    assert len(module.CHECKS) == len(defined)
    assert all(check.__doc__ for check in module.CHECKS)
