"""Changes of the format of event data. An event keeps the bytes and the version that it was stored with. Its data
is brought to the current version when it is decoded."""

from collections.abc import Callable
from typing import Any

import msgspec

VERSION = 1
"""The version of the event data that this code writes. A change after which older data cannot be decoded increases
it and adds an upcast. A new optional field does neither."""

Upcast = Callable[[dict[str, Any]], dict[str, Any]]
"""Returns data of one version as the next version has it."""

UPCASTS: dict[int, dict[str, Upcast]] = {}
"""Version -> event type -> the upcast of its data to the next version. Types that did not change are left out."""


def upcast(type_: str, raw: bytes, version: int) -> bytes:
    """Return the data of an event as the current version has it."""
    changes = [UPCASTS[each][type_] for each in range(version, VERSION) if type_ in UPCASTS.get(each, {})]
    if not changes:
        return raw
    data: dict[str, Any] = msgspec.json.decode(raw)
    for change in changes:
        data = change(data)
    return msgspec.json.encode(data)
