"""Calls that do not run, and exceptions of tools as facts."""

from msgspec import Struct

from treadle.core.tools.ledger import Call
from treadle.domain.events import CallErrorCause, CallErrorKind, EventData, ToolCallError
from treadle.domain.excerpts import Excerpt, place_excerpt


class CallRefused(Exception):
    """The call does not run, or not now. Its events say why."""

    def __init__(self, *events: EventData) -> None:
        super().__init__()
        self.events = events


class CallFailure(Struct, frozen=True, gc=False):
    """The facts about a failed call, besides the text that the model is told."""

    kind: CallErrorKind = "failed"
    cause: CallErrorCause | None = None
    excerpt: Excerpt | None = None
    exception: str = ""
    limit: float | None = None


def describe_exception(tool: str, raised: BaseException) -> tuple[CallFailure, str]:
    """Return the facts about an exception that a tool raised, and the text for the model."""
    kind, message = type(raised).__name__, str(raised)
    before = f"`{tool}` failed: {kind}: "
    failure = CallFailure(cause="raised", excerpt=place_excerpt(before, message), exception=kind)
    return failure, f"{before}{message}."


def make_failure(call: Call, raised: Exception) -> CallRefused:
    """Return the refusal of a call whose tool raised an exception before it ran."""
    failure, text = describe_exception(call.name, raised)
    return CallRefused(
        ToolCallError(
            call.call_id,
            call.name,
            "failed",
            text,
            excerpt=failure.excerpt,
            cause=failure.cause,
            exception=failure.exception,
        )
    )
