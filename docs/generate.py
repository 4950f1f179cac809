"""Writes `docs/reference/events.md` from the vocabulary itself: `python docs/generate.py`."""

import inspect
import types
import typing
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from treadle.domain.events import VOCABULARY, EventData, EventType

TARGET = Path(__file__).parent / "reference" / "events.md"

HEAD = """# Events

Made by `python docs/generate.py` from `treadle.domain.events`; do not edit.

Every event travels in the same envelope: `event_id, timestamp, agent_id, run_id, parent_run_id, session_id,
sequence, type, data, version`. A *durable* event is committed before anyone sees it; its sequence is its place in
the journal of its run, from 1 without a gap. A *live* event is seen at once and never stored; it has the sequence
of the durable event it belongs to. Fields and types that a version does not know are kept, not dropped.
"""


def page() -> str:
    return HEAD + "".join(section(kind) for kind in VOCABULARY.values())


def section(kind: EventType) -> str:
    stored = "durable" if kind.durable else "live"
    text = f"\n## `{kind.name}`\n\n{stored}, {kind.stream} stream. {words(kind.data)}\n"
    fields = msgspec.structs.fields(kind.data)
    if fields:
        text += "\n| field | type | |\n|---|---|---|\n"
        text += "".join(f"| `{field.name}` | `{typename(field.type)}` | {need(field)} |\n" for field in fields)
    return text


def words(data: type[EventData]) -> str:
    """The docstring, unless it is the one that msgspec inherits."""
    own = inspect.cleandoc(data.__doc__) if "__doc__" in vars(data) and data.__doc__ else ""
    return " ".join(own.split())


def typename(type_: Any) -> str:
    """The type as one would write it."""
    arguments = get_args(type_)
    match get_origin(type_):
        case typing.Union | types.UnionType:
            return " \\| ".join(map(typename, arguments))
        case typing.Literal:
            return " \\| ".join(map(repr, arguments))
        case None:
            return "None" if type_ is types.NoneType else type_.__name__
        case origin:
            return f"{origin.__name__}[{', '.join('...' if arg is ... else typename(arg) for arg in arguments)}]"


def need(field: msgspec.structs.FieldInfo) -> str:
    return "" if field.required else "may be left out"


if __name__ == "__main__":
    TARGET.write_text(page())
