"""What users and agents say in a run: the texts that people search."""

from typing import Final, Literal

from treadle.domain.events import EventData, MessageSteered, RunEnd, RunForked, UserMessage

Speaker = Literal["message", "answer"]
SAID_TYPES: Final = ("user_message", "message_steered", "run_forked", "run_end")
"""The events that have such a text."""


def read_said(data: EventData) -> tuple[Speaker, str] | None:
    """Return the message of a user or the answer of an agent in an event; None for other events."""
    match data:
        case UserMessage(message=message) | MessageSteered(message=message):
            return "message", message.text
        case RunForked(asked=asked):
            return "message", asked
        case RunEnd(text=answer):
            return "answer", answer
        case _:
            return None
