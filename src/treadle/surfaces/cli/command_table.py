"""The commands of `treadle`: which there are, and the module that each is loaded from when it is used."""

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from treadle.surfaces.cli.command_line import CliCommand, Group


class Entry(NamedTuple):
    """A command or a group of commands of `treadle`."""

    module: str
    """In the package `commands`."""
    summary: str


COMMANDS = {
    "init": Entry("init", "Set up a model: find one, store a key, test it and save it."),
    "chat": Entry("chat", "Open the terminal UI: chat, steer, approve and search."),
    "run": Entry("run", "Run an agent on one message and stream the answer."),
    "serve": Entry("serve", "Serve the agents of the home over HTTP until Ctrl-C."),
    "acp": Entry("acp", "Serve an editor over the Agent Client Protocol."),
    "open": Entry("open", "Open the dashboard of the running server in a browser, signed in."),
    "openapi": Entry("serve", "Print the OpenAPI description of the HTTP API."),
    "worker": Entry("serve", "Start a worker for a PostgreSQL database."),
    "doctor": Entry("doctor", "Check the configuration, the providers and every guard, and print what is missing."),
    "usage": Entry("usage", "Show runs, calls, tokens, cost and credits."),
    "backup": Entry("backup", "Write a backup of the home to one file and verify it."),
    "restore": Entry("backup", "Restore a home from a backup, after verifying the whole file."),
    "migrate": Entry("migrate", "Copy a database with its whole history to PostgreSQL and verify all rows."),
    "prune": Entry("prune", "Delete old sessions permanently."),
    "completion": Entry("completion", "Print the script that completes commands in a shell."),
}
GROUPS = {
    "runs": Entry("runs", "List, inspect, resume, fork and cancel runs."),
    "sessions": Entry("sessions", "List, inspect, rename and delete sessions."),
    "agents": Entry("agents", "Manage agents."),
    "eval": Entry("evaluations", "Test agents with suites of cases, and compare versions and models."),
    "approvals": Entry("approvals", "List and decide approvals."),
    "models": Entry("models", "List, test and download models."),
    "memory": Entry("memory", "Manage what agents remember."),
    "skills": Entry("skills", "Inspect and approve skills."),
    "mcp": Entry("mcp", "Use MCP servers as tools, and offer agents as tools to MCP clients."),
    "channels": Entry("channels", "Let people write to agents on Telegram, Matrix, Slack and by mail."),
    "plugins": Entry("plugins", "List and approve hooks of installed packages."),
    "vault": Entry("vault", "Manage secrets and grant them to agents."),
    "tokens": Entry("tokens", "Manage access tokens for the HTTP API."),
    "schedules": Entry("schedules", "Send messages to agents at set times."),
    "hooks": Entry("inbound_webhooks", "Receive signed messages for agents (inbound webhooks)."),
    "webhooks": Entry("webhooks", "Send events to other services, signed."),
}


def load_group(entry: Entry) -> "Group":
    """Import the module of a command or group."""
    group: Group = import_module(f"treadle.surfaces.cli.commands.{entry.module}").group
    group.summary = entry.summary
    return group


def find_command(words: Sequence[str]) -> "CliCommand | None":
    """Return the command that words such as `runs list` begin with, or None."""
    if words and words[0] in COMMANDS:
        return load_group(COMMANDS[words[0]]).commands[words[0]]
    if len(words) > 1 and words[0] in GROUPS:
        return load_group(GROUPS[words[0]]).commands.get(words[1])
    return None


def all_commands() -> Iterator["CliCommand"]:
    """Yield every command, with all modules loaded."""
    for name, entry in COMMANDS.items():
        yield load_group(entry).commands[name]
    for entry in GROUPS.values():
        yield from load_group(entry).commands.values()
