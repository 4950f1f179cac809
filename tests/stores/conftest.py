"""Fixtures with databases on a real PostgreSQL server, for tests of both stores."""

from tests.stores.postgres.conftest import databases, url

__all__ = ["databases", "url"]
