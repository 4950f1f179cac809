"""Fixtures with a new database on a real server for each test."""

from collections.abc import Generator

import pytest

from tests.stores.postgres.servers import Databases, shared


@pytest.fixture(scope="session")
def databases(testrun_uid: str) -> Databases:
    return shared(testrun_uid)


@pytest.fixture
def url(databases: Databases) -> Generator[str, None, None]:
    """Yield the URL of a new, migrated database."""
    with databases.one() as found:
        yield found


@pytest.fixture
def bare(databases: Databases) -> Generator[str, None, None]:
    """Yield the URL of a new database without a schema."""
    with databases.one("template1") as found:
        yield found
