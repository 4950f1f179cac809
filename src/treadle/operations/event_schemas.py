"""The schemas of events as streams send them: `Event` is a union by `type`, and each type has its own data."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from treadle.domain.envelope import Envelope, Event
from treadle.domain.events import VOCABULARY


def list_types() -> Iterator[type[Struct]]:
    """Yield the types whose schemas `add_event` combines."""
    yield Envelope
    for kind in VOCABULARY.values():
        yield kind.data


def add_event(components: dict[str, Any], reference: str) -> None:
    """Replace the schema of the envelope by one for each type of event, and add their union."""
    envelope = components.pop(Envelope.__name__)
    mapping: dict[str, str] = {}
    for name, kind in VOCABULARY.items():
        title = f"{kind.data.__name__}Event"
        data = {"$ref": reference.format(name=kind.data.__name__)}
        components[title] = {
            "title": title,
            "type": "object",
            "properties": {**envelope["properties"], "type": {"enum": [name]}, "data": data},
            "required": envelope["required"],
        }
        mapping[name] = reference.format(name=title)
    components[Event.__name__] = {
        "title": Event.__name__,
        "description": "An event of a run. A later version can send types that are not listed here.",
        "anyOf": [{"$ref": each} for each in mapping.values()],
        "discriminator": {"propertyName": "type", "mapping": mapping},
    }
