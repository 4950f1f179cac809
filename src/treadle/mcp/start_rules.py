"""The rules for the start of a server's program: what it may do with the workspace, and which entries are
refused."""

import os

import msgspec

from treadle.domain.mcp_servers import WORKSPACE_REF, McpServerSettings
from treadle.domain.permissions import WorkspaceAccess
from treadle.domain.private_paths import find_private_place
from treadle.domain.secret_refs import find_secret_names
from treadle.mcp.entry_secrets import replace_secrets

_RELATIVE = ("./", "../")


def explain_privilege(server: McpServerSettings) -> str:
    """Return what a program has that the agent need not have: secrets or the network. Empty if it has neither."""
    found = [*(("secrets",) if has_secrets(server) else ()), *(("the network",) if server.network else ())]
    return " and ".join(found)


def has_secrets(server: McpServerSettings) -> bool:
    """Return whether an entry refers to secrets, contains what looks like one, or shows a private place."""
    values = {"args": list(server.args), "env": server.env, "headers": server.headers}
    if find_secret_names(msgspec.json.encode(values).decode()):
        return True
    found: list[str] = []

    def note(place: str, secret: str) -> str:
        found.append(place)
        return secret

    replace_secrets(values, note)
    folders = (*server.readable, *server.writable)
    return bool(found) or any(find_private_place(folder) is not None for folder in folders)


def find_access(server: McpServerSettings, *, is_pinned: bool = False) -> WorkspaceAccess:
    """Return what the program of a server may do with the workspace, as its entry says or by default. Code that is
    pinned by content does not see it by default."""
    if server.workspace is not None:
        return server.workspace
    return "none" if is_pinned or explain_privilege(server) else "read"


def needs_write_consent(server: McpServerSettings) -> bool:
    """Return whether an approval must say explicitly that the program may write the workspace."""
    return not server.is_remote and find_access(server) == "write" and bool(explain_privilege(server))


def names_folder(server: McpServerSettings) -> bool:
    """Return whether an entry names the folders that its program works in. Roots would replace them."""
    words = (*server.args, *server.env.values())
    return any(WORKSPACE_REF in word or (word.startswith("/") and os.path.isdir(word)) for word in words)


def explain_invalid_start(server: McpServerSettings) -> str:
    """Return why the program of an entry can never be started, and what to do; empty if it can."""
    command, cwd = server.command or "", server.cwd
    if WORKSPACE_REF in command or ("/" in command and not command.startswith(("/", "~"))):
        return (
            f"its program `{command}` is in the workspace or is a relative path; install it in a folder that no "
            f"agent works in, and give its name or its whole path"
        )
    if cwd is not None and (WORKSPACE_REF in cwd or not cwd.startswith(("/", "~"))):
        return (
            f"its `cwd` is `{cwd}`, which is in the workspace or is a relative path; remove it, and give the path "
            f"of the workspace as an argument: `{WORKSPACE_REF}`"
        )
    for number, word in enumerate(server.args, start=1):
        if cwd is None and (word in (".", "..") or word.startswith(_RELATIVE)):
            return (
                f"argument {number} is `{word}`, and the program starts in an empty folder; write "
                f"`{WORKSPACE_REF}` for the workspace, or a whole path"
            )
    return _explain_unseen_workspace(server)


def _explain_unseen_workspace(server: McpServerSettings) -> str:
    if find_access(server) != "none" or not any(
        WORKSPACE_REF in each for each in (*server.args, *server.env.values())
    ):
        return ""
    privilege = explain_privilege(server)
    reason = f"it has {privilege}" if privilege else "its entry says `workspace: none`"
    return (
        f"its entry names `{WORKSPACE_REF}`, but it does not see the workspace, because {reason}; "
        f"say `workspace: read`"
    )


def insert_workspace(text: str, workspace: str) -> str:
    """Return an argument or the value of a variable with the path of the workspace in place of its reference."""
    return text.replace(WORKSPACE_REF, workspace)
