"""Databases of a real server, as the tests of the store have them."""

from tests.stores.postgres.conftest import databases, url

__all__ = ["databases", "url"]
