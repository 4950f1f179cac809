"""The commands that begin with a slash. Session commands go to the agent's session; the others are the UI's own."""

from collections.abc import Sequence
from typing import NamedTuple

from treadle.surfaces.tui.suggestions import Suggestion, rank


class Slash(NamedTuple):
    """A command."""

    name: str
    help: str
    argument: str = ""
    """What follows it, for help."""
    is_session: bool = False
    """The session performs it, as a run of its own."""


COMMANDS: tuple[Slash, ...] = (
    Slash("/help", "Show all keys and commands."),
    Slash("/new", "Start a new session."),
    Slash("/sessions", "Search, open, rename, delete and fork sessions.", "[TEXT]"),
    Slash("/mode", "Choose how much the agent may do without asking.", "[ask|accept_edits|plan|auto]"),
    Slash("/model", "Choose the model of this session.", "[PROVIDER/MODEL]"),
    Slash("/agent", "Choose the agent.", "[NAME]"),
    Slash("/fork", "Fork from an earlier message of this session."),
    Slash("/rewind", "Restore the files, the conversation or both as they were before a message."),
    Slash("/rename", "Rename this session.", "TITLE"),
    Slash(
        "/diff",
        "Show what this session, or its last message, has changed in files; with two runs: compare them.",
        "[last|RUN OTHER]",
    ),
    Slash("/init", "Let the agent write AGENTS.md, with what agents should know about this project.", "[NOTES]"),
    Slash("/review", "Let the agent review the changes that are not committed.", "[WHAT]"),
    Slash("/context", "Show what fills the context window."),
    Slash("/mcp", "Show the MCP servers and their tools."),
    Slash("/permissions", "Show what the agent may do without asking; remove what you allowed.", "[remove N]"),
    Slash("/cost", "Show the tokens and the cost of this session, run by run."),
    Slash("/feedback", "Say whether the latest run was good or bad, with a note.", "good|bad [NOTE]"),
    Slash("/output", "Show the whole output of a tool call."),
    Slash("/export", "Write the transcript to a Markdown file.", "[FILE]"),
    Slash("/copy", "Copy the last answer, or its last code block.", "[code]"),
    Slash("/attach", "Attach an image or a text file.", "FILE"),
    Slash("/queue", "Queue a message for after the run.", "TEXT"),
    Slash("/unqueue", "Remove the last queued message."),
    Slash("/resume", "Resume an interrupted run."),
    Slash("/cancel", "Cancel the run."),
    Slash("/theme", "Choose a theme, or the next one.", "[dark|light|plain|NAME]"),
    Slash("/thinking", "Show or hide the model's thinking."),
    Slash("/details", "Show or hide the details of tool calls."),
    Slash("/bell", "Turn the bell on or off."),
    Slash("/select", "Turn copying of selected text on or off."),
    Slash("/mouse", "Turn the mouse on or off, from the next start."),
    Slash("/quit", "Quit."),
    Slash("/compact", "Summarise the conversation to free context.", "[FOCUS]", is_session=True),
    Slash("/memory", "Show what the agent remembers.", "[TEXT]", is_session=True),
    Slash("/pin", "Keep a message through every compaction.", "[TEXT]", is_session=True),
    Slash("/reset", "Continue with an empty conversation.", is_session=True),
    Slash("/undo", "Undo the latest compaction or reset.", is_session=True),
    Slash("/usage", "Show what the session has used.", is_session=True),
)
ALIASES = {"/exit": "/quit", "/clear": "/new", "/models": "/model", "/agents": "/agent", "/?": "/help"}
_BY_NAME = {each.name: each for each in COMMANDS}


def find_command(text: str) -> tuple[Slash, str] | None:
    """Return the command that a message is, and its argument; None for a message. A path is a message."""
    head, _, argument = text.strip().partition(" ")
    name = head.lower()
    command = _BY_NAME.get(ALIASES.get(name, name))
    return None if command is None else (command, argument.strip())


def looks_like_command(text: str) -> bool:
    """Return whether a message begins with a slash and a single word, which is not a path."""
    head = text.strip().partition(" ")[0]
    return len(head) > 1 and head[0] == "/" and head[1:].isalpha()


def suggest_commands(typed: str, own: Sequence[Suggestion] = ()) -> list[Suggestion]:
    """Return the commands that fit what was typed after the slash. `own` are those of files and skills."""
    helps = {each.text: each.help for each in own} | {each.name: each.help for each in COMMANDS}
    names = list(helps) if own else [each.name for each in COMMANDS]
    wanted = typed.lower()
    if not wanted.removeprefix("/"):
        found = names
    else:
        found = [name for name in names if name.startswith(wanted)] or rank(wanted.removeprefix("/"), names)
    return [Suggestion(name, helps[name]) for name in found]


def list_commands() -> list[tuple[str, str]]:
    """Return all commands with what they do."""
    return [(f"{each.name} {each.argument}".strip(), each.help) for each in COMMANDS]
