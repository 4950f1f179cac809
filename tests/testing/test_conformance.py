"""Treadle's own stores, models and dispatcher keep the contracts that it publishes."""

import asyncio
import inspect
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import pytest

from tests.patience import HANG_SECONDS
from tests.stores.postgres.harness import OnServer
from tests.testing.harnesses import Function, InMemory, Local, OnFile, OverHttp, Scripted, simulated
from treadle.testing.conformance import (
    accounts,
    children,
    claims,
    concurrency,
    dispatcher,
    journal,
    model,
    runs,
    wakes,
)
from treadle.testing.conformance.dispatcher import DispatcherCheck
from treadle.testing.conformance.model import ModelCheck, ModelHarness
from treadle.testing.conformance.store import StoreCheck, StoreHarness

STORE_MODULES = (claims, concurrency, journal, children, accounts, wakes, runs)
STORE_CHECKS = tuple(check for module in STORE_MODULES for check in module.CHECKS)


def named(checks: Iterable[Any]) -> list[Any]:
    return [pytest.param(check, id=check.__name__) for check in checks]


@pytest.fixture(params=["sqlite file", "sqlite memory", "postgres"])
def stores(request: pytest.FixtureRequest) -> StoreHarness:
    if request.param == "postgres":
        return OnServer(request.getfixturevalue("url"))
    return OnFile(request.getfixturevalue("tmp_path")) if request.param == "sqlite file" else InMemory()


@pytest.mark.parametrize("check", named(STORE_CHECKS))
async def test_each_store_keeps_the_contract_of_stores(check: StoreCheck, stores: StoreHarness) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        await check(stores)


@pytest.mark.parametrize("harness", [Scripted(), Function(), OverHttp()], ids=lambda it: type(it).__name__)
@pytest.mark.parametrize("check", named(model.CHECKS))
async def test_each_model_keeps_the_contract_of_models(check: ModelCheck, harness: ModelHarness) -> None:
    await _check(check, harness)


async def _check(check: ModelCheck, harness: ModelHarness) -> None:
    await check(harness)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("check", named(dispatcher.CHECKS))
def test_the_local_dispatcher_keeps_the_contract_of_dispatchers(check: DispatcherCheck, seed: int) -> None:
    async def checked() -> None:
        await check(Local())

    simulated(checked(), seed)


@pytest.mark.parametrize("module", [*STORE_MODULES, model, dispatcher])
def test_every_check_is_listed_and_states_its_contract(module: ModuleType) -> None:
    functions = inspect.getmembers(module, inspect.iscoroutinefunction)
    defined = {name for name, value in functions if value.__module__ == module.__name__ and name != "receive_reply"}
    assert {check.__name__ for check in module.CHECKS} == defined
    assert len(module.CHECKS) == len(defined)
    assert all(check.__doc__ for check in module.CHECKS)
