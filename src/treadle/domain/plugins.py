"""Plugins: entry points of installed packages."""

from msgspec import Struct


class Plugin(Struct, frozen=True, forbid_unknown_fields=True):
    """An entry point of an installed package, as it is now or as it was when it was approved."""

    name: str
    value: str
    """Where its code is."""
    package: str
    version: str
