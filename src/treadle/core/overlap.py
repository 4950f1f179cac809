"""Whether two calls of one turn may run at the same time: neither changes what the other touches.

Paths are compared as they are written. Two names of one file that only the disk knows to be one are the business of
the tools, which must not lose an update however they are called."""

from collections.abc import Mapping
from posixpath import isabs, normpath
from typing import NamedTuple

import msgspec

from treadle.core.ledger import Call
from treadle.domain.tools import ToolSpec

EVERYWHERE = "."


class Asked(NamedTuple):
    """A tool, and the arguments that it is to be run with."""

    name: str
    arguments: str


def as_written(call: Call) -> Asked:
    """The call as the model wrote it."""
    return Asked(call.name, call.use.arguments)


def may_run_beside(call: Asked, other: Asked, tools: Mapping[str, ToolSpec]) -> bool:
    one, two = tools.get(call.name), tools.get(other.name)
    if one is None or two is None:
        return True  # it is not known, so it will not run
    if one.concurrent and two.concurrent:
        return True
    if _stands_alone(one) or _stands_alone(two):
        return False
    ours, theirs = _touched(call, one), _touched(other, two)
    if ours is None or theirs is None:
        return False
    return not any(_overlap(a, b) for a in ours for b in theirs)


def _stands_alone(spec: ToolSpec) -> bool:
    return spec.interactive or spec.asks_a_person or spec.parallel is False


def _touched(call: Asked, spec: ToolSpec) -> tuple[str, ...] | None:
    """What a call touches; None: nobody can tell."""
    if spec.effect == "none":
        return ()
    if not spec.paths:
        return None
    try:
        arguments = msgspec.json.decode(call.arguments or "{}", type=dict[str, object])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    given = [arguments.get(name, EVERYWHERE) for name in spec.paths]
    paths = [normpath(path).casefold() for path in given if isinstance(path, str)]
    return tuple(paths) if len(paths) == len(given) else None


def _overlap(one: str, two: str) -> bool:
    """Whether they are the same, or one is inside the other, as far as names tell."""
    if isabs(one) != isabs(two) or EVERYWHERE in (one, two) or one.startswith("..") or two.startswith(".."):
        return True
    return one == two or one.startswith(f"{two}/") or two.startswith(f"{one}/") or "/" in (one, two)
