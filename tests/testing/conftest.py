"""Fixtures with databases on a real PostgreSQL server."""

from tests.stores.postgres.conftest import databases, url

__all__ = ["databases", "url"]
