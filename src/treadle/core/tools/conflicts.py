"""Conflicts between tool calls. Two calls of one turn may run concurrently if neither changes what the other
touches.

Paths are compared as written. Different names of one file on disk are the concern of the tools, which must not
lose an update however they are called."""

from collections.abc import Mapping
from posixpath import isabs, normpath
from typing import NamedTuple

import msgspec

from treadle.core.tools.ledger import Call
from treadle.domain.edits.patch_format import list_patch_paths
from treadle.domain.tools import ToolSpec

EVERYWHERE = "."


class PlannedCall(NamedTuple):
    """A tool and the arguments to run it with."""

    name: str
    arguments: str


def plan_as_written(call: Call) -> PlannedCall:
    """Return the call as the model wrote it."""
    return PlannedCall(call.name, call.use.arguments)


class Batch:
    """Calls that may all run concurrently. The cost of admitting a call does not grow with the batch."""

    def __init__(self, tools: Mapping[str, ToolSpec]) -> None:
        self._tools = tools
        self._concurrent: list[PlannedCall] = []
        """Calls that never conflict with each other, whatever they touch."""
        self._all: _Touched | None = None
        """What all calls touch; None if only concurrent calls were admitted and no other was checked."""
        self._others = _Touched()
        """What the calls touch that are not concurrent."""

    def fits(self, call: PlannedCall) -> bool:
        """Return whether the call may run with all the others."""
        spec = self._tools.get(call.name)
        if spec is None:
            return True  # an unknown tool does not run
        touched = self._others if spec.concurrent else self._collect_touched()
        return touched.is_empty or not touched.conflicts_with(call, spec)

    def add(self, call: PlannedCall) -> None:
        spec = self._tools.get(call.name)
        if spec is None:
            return
        if self._all is not None:
            self._all.add(call, spec)
        elif spec.concurrent:
            self._concurrent.append(call)
        else:
            self._collect_touched().add(call, spec)
        if not spec.concurrent:
            self._others.add(call, spec)

    def _collect_touched(self) -> "_Touched":
        if self._all is None:
            self._all = _Touched()
            for call in self._concurrent:
                self._all.add(call, self._tools[call.name])
        return self._all


class _Touched:
    """What several calls touch together."""

    def __init__(self) -> None:
        self.is_empty = True
        self._is_closed = False
        """True if one of them runs alone or may touch anything."""
        self._paths: set[str] = set()
        self._folders: set[str] = set()
        """The parent folders of these paths."""
        self._has_loose = self._has_absolute = self._has_relative = False

    def add(self, call: PlannedCall, spec: ToolSpec) -> None:
        self.is_empty = False
        paths = None if _must_run_alone(spec) else _touched_paths(call, spec)
        if paths is None:
            self._is_closed = True
            return
        for path in paths:
            self._paths.add(path)
            self._folders.update(_parent_folders(path))
            self._has_loose = self._has_loose or _is_loose(path)
            self._has_absolute = self._has_absolute or isabs(path)
            self._has_relative = self._has_relative or not isabs(path)

    def conflicts_with(self, call: PlannedCall, spec: ToolSpec) -> bool:
        if self._is_closed or _must_run_alone(spec):
            return True
        paths = _touched_paths(call, spec)
        return paths is None or any(map(self._overlaps, paths))

    def _overlaps(self, path: str) -> bool:
        """Return whether one of the paths equals, contains or is inside this one, judged by their names."""
        if not self._paths:
            return False
        if _is_loose(path) or self._has_loose or (self._has_relative if isabs(path) else self._has_absolute):
            return True
        return path in self._paths or path in self._folders or not self._paths.isdisjoint(_parent_folders(path))


def _must_run_alone(spec: ToolSpec) -> bool:
    return spec.interactive or spec.asks_a_person or spec.parallel is False


def _touched_paths(call: PlannedCall, spec: ToolSpec) -> tuple[str, ...] | None:
    """Return the paths that a call touches, or None if they are unknown."""
    if spec.effect == "none":
        return ()
    if not spec.paths and not spec.patches:
        return None
    try:
        arguments = msgspec.json.decode(call.arguments or "{}", type=dict[str, object])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    given = [arguments.get(name, EVERYWHERE) for name in spec.paths]
    for name in spec.patches:
        patch = arguments.get(name)
        named = list_patch_paths(patch) if isinstance(patch, str) else None
        if named is None:
            return None
        given += named
    paths = [normpath(path).casefold() for path in given if isinstance(path, str)]
    return tuple(paths) if len(paths) == len(given) else None


def _is_loose(path: str) -> bool:
    """Return whether the path may contain any other."""
    return path in (EVERYWHERE, "/") or path.startswith("..")


def _parent_folders(path: str) -> list[str]:
    return [path[:end] for end, letter in enumerate(path) if letter == "/" and end > 0]
