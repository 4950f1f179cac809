"""What to set where a command failed because the sandbox keeps something out of its reach."""

import re
import shutil

from treadle.domain.permissions import SandboxPolicy
from treadle.ports.sandbox import Finished

_NOT_FOUND = re.compile(r"(?:^|[:\s])([\w.+-]{1,64}): (?:command )?not found", re.MULTILINE)
_NO_NETWORK = re.compile(
    r"could not resolve host|temporary failure in name resolution|name or service not known|network is unreachable"
    r"|getaddrinfo|ENOTFOUND|EAI_AGAIN|nodename nor servname",
    re.IGNORECASE,
)
_READ_ONLY = re.compile(r"read-only file system|EROFS", re.IGNORECASE)
LAST_CHARACTERS = 4000
"""How much of the end of the output is looked at."""


def advice_for(finished: Finished, policy: SandboxPolicy, path: str) -> str:
    """Return which setting helps a confined command that failed; empty if nothing is known to be out of reach.

    `path` is where the user has programs."""
    if finished.exit_code == 0 or finished.ended_by is not None:
        return ""
    told = finished.output[-LAST_CHARACTERS:]
    if (missing := _NOT_FOUND.search(told)) is not None and (place := shutil.which(missing[1], path=path)):
        folder = place.rpartition("/")[0]
        return (
            f"`{missing[1]}` is in {folder}, which commands of this agent cannot see. "
            f"To show it, add {folder} to `sandbox.readable` of the agent."
        )
    if not policy.network and _NO_NETWORK.search(told):
        return "Commands of this agent have no network. To allow it, set `sandbox: {network: true}` of the agent."
    if _READ_ONLY.search(told):
        return (
            "Commands of this agent can write to the workspace, to /tmp and to $HOME. "
            "To let them write elsewhere, add the folder to `sandbox.writable` of the agent."
        )
    return ""
