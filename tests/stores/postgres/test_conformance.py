"""The store on PostgreSQL keeps the contracts that Treadle publishes."""

import asyncio

import pytest

from tests.patience import HANG_SECONDS
from tests.stores.postgres.harness import OnServer
from tests.testing.test_conformance import STORE_CHECKS, named
from treadle.testing.conformance.store import StoreCheck


@pytest.mark.parametrize("check", named(STORE_CHECKS))
async def test_postgresql_keeps_the_contract_of_stores(check: StoreCheck, url: str) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        await check(OnServer(url))
