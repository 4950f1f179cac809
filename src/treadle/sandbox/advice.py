"""Suggests a setting when a command failed because the sandbox kept something out of its reach."""

import re
import shutil
from collections.abc import Sequence

from treadle.domain.permissions import SandboxPolicy
from treadle.domain.writable_places import explain_protection
from treadle.ports.sandbox import Finished

_NOT_FOUND = re.compile(r"(?:^|[:\s])([\w.+-]{1,64}): (?:command )?not found", re.MULTILINE)
_NO_NETWORK = re.compile(
    r"could not resolve host|temporary failure in name resolution|name or service not known|network is unreachable"
    r"|getaddrinfo|ENOTFOUND|EAI_AGAIN|nodename nor servname",
    re.IGNORECASE,
)
_READ_ONLY = re.compile(r"read-only file system|EROFS|device or resource busy|EBUSY", re.IGNORECASE)
"""A folder or file that is mounted cannot be moved or removed either: it is busy."""
MAX_OUTPUT_CHARS = 4000
"""How much of the end of the output is searched."""


def suggest_setting(
    finished: Finished,
    policy: SandboxPolicy,
    path: str,
    workspace: str,
    protected: Sequence[str],
    executed: Sequence[str],
) -> str:
    """Return which setting helps a confined command that failed, or an empty string.

    `path` is the search path of the user's programs; `protected` are places of the engine, `executed` files
    that other programs execute: commands cannot change both."""
    if finished.exit_code == 0 or finished.ended_by is not None:
        return ""
    output = finished.output[-MAX_OUTPUT_CHARS:]
    if (missing := _NOT_FOUND.search(output)) is not None and (place := shutil.which(missing[1], path=path)):
        folder = place.rpartition("/")[0]
        return (
            f"`{missing[1]}` is in {folder}, which commands of this agent cannot see. "
            f"To show it, add {folder} to `sandbox.readable` of the agent."
        )
    if not policy.network and _NO_NETWORK.search(output):
        return "Commands of this agent have no network. To allow it, set `sandbox: {network: true}` of the agent."
    if _READ_ONLY.search(output):
        if (place := _find_named(protected, workspace, output)) is not None:
            return explain_protection(place)
        if (place := _find_named(executed, workspace, output)) is not None:
            return (
                f"{place} is read-only for commands: other programs execute it later, outside the sandbox. "
                f"`write_file` and `edit_file` can change it if a reviewer approves."
            )
        return (
            "Commands of this agent can write to the workspace, to /tmp and to $HOME. "
            "To let them write elsewhere, add the folder to `sandbox.writable` of the agent."
        )
    return ""


def _find_named(places: Sequence[str], workspace: str, output: str) -> str | None:
    """Return the first of these places that the output names, by its whole path or relative to the workspace."""
    names = ((place, place.removeprefix(f"{workspace}/")) for place in places)
    return next((place for place, short in names if place in output or short in output), None)
