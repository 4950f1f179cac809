"""The stores on PostgreSQL other than the journal pass the conformance checks."""

import asyncio

import pytest

from tests.patience import HANG_SECONDS
from tests.stores.postgres.harness import KeptOnServer
from tests.testing.test_conformance import named
from tests.testing.test_conformance_other_stores import KEPT_CHECKS
from treadle.testing.conformance.store_harness import FullStoreCheck


@pytest.mark.parametrize("check", named(KEPT_CHECKS))
async def test_postgresql_keeps_the_contracts_of_the_other_stores(check: FullStoreCheck, url: str) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        await check(KeptOnServer(url))
