"""What can be asked of a session itself, between its runs. Every surface takes the same words."""

from msgspec import Struct

from treadle.domain.errors import UsageError


class CompactSession(Struct, frozen=True, tag="compact", tag_field="kind", omit_defaults=True):
    """Fold the middle of the conversation into a summary now."""

    focus: str = ""
    """What the summary should keep above all."""


class ResetSession(Struct, frozen=True, tag="reset", tag_field="kind"):
    """Go on with an empty conversation."""


class UndoSession(Struct, frozen=True, tag="undo", tag_field="kind"):
    """Take the latest compaction or reset back."""


class PinMessage(Struct, frozen=True, tag="pin", tag_field="kind", omit_defaults=True):
    """Keep a message through every compaction: this text, or what the user said last."""

    text: str = ""


class AskMemory(Struct, frozen=True, tag="memory", tag_field="kind", omit_defaults=True):
    """What the agent remembers; with a text, what fits it."""

    text: str = ""


class AskUsage(Struct, frozen=True, tag="usage", tag_field="kind"):
    """What the session has used."""


SessionCommand = CompactSession | ResetSession | UndoSession | PinMessage | AskMemory | AskUsage
"""Each is a run of its own in the session, that answers no message."""


def format_command(command: SessionCommand) -> str:
    """The command as it is typed."""
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
    """The command that a text is, if it is one: a slash and a word that we know, at the very beginning. Another
    word behind a slash may be a path, and is a message like any other."""
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
            raise UsageError(f"{head} takes nothing behind it; found `{argument}`.")
        case "/reset":
            return ResetSession()
        case "/undo":
            return UndoSession()
        case "/usage":
            return AskUsage()
        case _:
            return None
