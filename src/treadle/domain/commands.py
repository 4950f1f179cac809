"""Session commands. All surfaces accept the same words."""

import re

from msgspec import Struct

from treadle.domain.errors import UsageError
from treadle.domain.suggestions import find_closest


class CompactSession(Struct, frozen=True, tag="compact", tag_field="kind", omit_defaults=True):
    """Replace the middle of the transcript with a summary now."""

    focus: str = ""
    """What the summary should keep above all."""


class ResetSession(Struct, frozen=True, tag="reset", tag_field="kind"):
    """Continue with an empty transcript."""


class UndoSession(Struct, frozen=True, tag="undo", tag_field="kind"):
    """Undo the latest compaction or reset."""


class PinMessage(Struct, frozen=True, tag="pin", tag_field="kind", omit_defaults=True):
    """Keep a message through every compaction: this text, or the user's last message."""

    text: str = ""


class AskMemory(Struct, frozen=True, tag="memory", tag_field="kind", omit_defaults=True):
    """Show what the agent remembers, optionally only what fits a text."""

    text: str = ""


class AskUsage(Struct, frozen=True, tag="usage", tag_field="kind"):
    """Show what the session has used."""


COMMAND_NAMES = ("/compact", "/memory", "/pin", "/reset", "/undo", "/usage")
PlainCommand = ResetSession | UndoSession | PinMessage | AskMemory | AskUsage
"""Commands that the engine executes without a model."""
SessionCommand = CompactSession | PlainCommand
"""Each is a run of its own in the session that answers no message."""


def format_command(command: SessionCommand) -> str:
    """Return the command as it is typed."""
    match command:
        case CompactSession(argument):
            return f"/compact {argument}".strip()
        case PinMessage(argument):
            return f"/pin {argument}".strip()
        case AskMemory(argument):
            return f"/memory {argument}".strip()
        case ResetSession():
            return "/reset"
        case UndoSession():
            return "/undo"
        case AskUsage():
            return "/usage"


def parse_command(text: str) -> SessionCommand | None:
    """Return the command in a text, or None.

    A command is a slash and a known word at the beginning. Any other word after a slash may be a path, and is a
    message."""
    if not text.lstrip().startswith("/"):
        return None
    head, *rest = text.split(maxsplit=1)
    argument = "".join(rest).strip()
    match head.lower():
        case "/compact":
            return CompactSession(argument)
        case "/pin":
            return PinMessage(argument)
        case "/memory":
            return AskMemory(argument)
        case "/reset" | "/undo" | "/usage" if argument:
            raise UsageError(f"{head} takes no argument; found `{argument}`.")
        case "/reset":
            return ResetSession()
        case "/undo":
            return UndoSession()
        case "/usage":
            return AskUsage()
        case _:
            return None


def refuse_unknown_command(text: str) -> None:
    """Raise UsageError for a message that begins with a slash and a word, such as `/rest`, that is not a command. A
    path such as /etc/hosts is a message."""
    word = text.split(maxsplit=1)[0].lower() if text.split() else ""
    if re.fullmatch(r"/[a-z]+", word) and word not in COMMAND_NAMES:
        near = find_closest(word, COMMAND_NAMES)
        meant = f" Did you mean {near}?" if near else ""
        raise UsageError(f"There is no command {word}.{meant} Commands: {', '.join(COMMAND_NAMES)}.")
