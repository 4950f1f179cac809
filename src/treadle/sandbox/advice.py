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
    finished: Finished, policy: SandboxPolicy, path: str, workspace: str, protected: Sequence[str] = ()
) -> str:
    """Return which setting helps a confined command that failed, or an empty string.

    `path` is the search path of the user's programs; `protected` are places that commands cannot change."""
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
        named = [place for place in protected if place in output or place.removeprefix(f"{workspace}/") in output]
        if named:
            return explain_protection(named[0])
        return (
            "Commands of this agent can write to the workspace, to /tmp and to $HOME. "
            "To let them write elsewhere, add the folder to `sandbox.writable` of the agent."
        )
    return ""
