"""Sanitising of messages from a platform: nothing that a stranger sends may stop a channel."""

import logging
from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from treadle.domain.messages import make_sendable
from treadle.ports.channel import Incoming, IncomingFile

logger = logging.getLogger(__name__)

MAX_NAME_CHARACTERS = 100


def read_all(items: Iterable[Any], read: Callable[[Any], Incoming | None]) -> list[Incoming]:
    """Return the messages in what a platform delivered. What cannot be read is logged and left out: otherwise the
    platform would deliver it again forever."""
    found: list[Incoming] = []
    for item in items:
        try:
            message = read(item)
        except Exception as error:
            logger.warning("a message was left out because it cannot be read: %s", error or type(error).__name__)
        else:
            found += () if message is None else (message,)
    return found


def clean_message(message: Incoming) -> Incoming:
    """Return a message whose texts every database can store, with a name on one line."""
    return replace(
        message,
        message_id=make_sendable(message.message_id),
        conversation=make_sendable(message.conversation),
        parent=make_sendable(message.parent),
        sender=make_sendable(message.sender),
        sender_name=clean_name(message.sender_name),
        text=make_sendable(message.text),
        attachments=tuple(_clean_file(each) for each in message.attachments),
        target=make_sendable(message.target),
        value=make_sendable(message.value),
        reply_to=make_sendable(message.reply_to),
        album=make_sendable(message.album),
    )


def clean_name(name: str) -> str:
    """Return a display name on one line, without characters that change how text is shown."""
    shown = "".join(each if each.isprintable() else " " for each in make_sendable(name))
    return " ".join(shown.split())[:MAX_NAME_CHARACTERS]


def _clean_file(file: IncomingFile) -> IncomingFile:
    return IncomingFile(
        make_sendable(file.file_id), clean_name(file.name), make_sendable(file.media_type), max(file.size, 0)
    )
