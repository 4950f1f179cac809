"""Hooks of installed packages (entry point `treadle.hooks`). Each is off until an operator approves it, and is
not imported before."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from treadle.domain.errors import UsageError
from treadle.domain.plugins import Plugin
from treadle.ports.hooks import Hook
from treadle.tools.entry_points import find_entry_points

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

HOOK_GROUP = "treadle.hooks"
"""Each entry point is a Hook, a class of Hooks without arguments, or a list of both."""
TOOL_GROUP = "treadle.tools"


def list_plugins(group: str = HOOK_GROUP) -> list[Plugin]:
    """Return the plugins of all installed packages, without importing their code."""
    return [_describe(point) for point in find_entry_points(group)]


def load_hooks(approved: Iterable[Plugin]) -> list[Hook]:
    """Import the hooks of approved plugins. Raise UsageError if one is missing, changed or broken: a safeguard that
    is gone must not go unnoticed."""
    points = {_describe(point): point for point in find_entry_points(HOOK_GROUP)}
    hooks: list[Hook] = []
    for plugin in approved:
        if plugin not in points:
            raise UsageError(
                f"The hook `{plugin.name}` of {plugin.package} {plugin.version} is approved, but it is no longer "
                f"installed as it was. Approve it again with `treadle plugins approve {plugin.name}`, or run "
                f"`treadle plugins revoke {plugin.name}`."
            )
        hooks += _load(points[plugin])
    return hooks


def _describe(point: "EntryPoint") -> Plugin:
    package = point.dist
    name, version = ("", "") if package is None else (package.name, package.version)
    return Plugin(point.name, point.value, name, version)


def _load(point: "EntryPoint") -> Sequence[Hook]:
    origin = f"The hook `{point.name}` ({point.value})"
    try:
        loaded: Any = point.load()
        items = cast("list[Any]", loaded) if isinstance(loaded, list) else [loaded]
        hooks = [item() if isinstance(item, type) else item for item in items]
    except Exception as error:  # a plugin may raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(
            f"{origin} cannot be loaded: {reason}. Fix it, or run `treadle plugins revoke {point.name}`."
        ) from error
    for hook in hooks:
        if not isinstance(hook, Hook):
            raise UsageError(f"{origin} is of type {type(hook).__name__}, not a Hook. Fix it or uninstall it.")
    return hooks
