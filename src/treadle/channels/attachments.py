"""Files of messages: images and text go to the agent, within limits. Everything else is named to it."""

import base64
import logging

from treadle.domain.channels import ChannelLimits
from treadle.domain.messages import Image, Text, make_sendable
from treadle.ports.channel import BatchChannel, Channel, ChannelRefused, IncomingFile

logger = logging.getLogger(__name__)

MAX_TEXT_CHARACTERS = 60_000
"""Characters of one text file."""
MAX_TOTAL_BYTES = 12_000_000
"""Bytes of all images of one message: what providers accept in a request, with room for the conversation."""
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_DOCUMENTS = (b"%PDF-", b"%!PS")
"""The first bytes of documents that may consist of letters only, and are not text."""


async def load_attachments(
    attachments: tuple[IncomingFile, ...], channel: Channel, limits: ChannelLimits
) -> tuple[Text | Image, ...]:
    """Return what the agent gets of the attachments. What it does not get is named in a text, with the reason."""
    found: list[Text | Image] = []
    refused: list[str] = []
    total = 0
    wanted = attachments[: limits.attachments]
    batch = await _fetch_together(wanted, channel, limits.attachment_bytes)
    for attachment in wanted:
        part = await _load(attachment, channel, limits.attachment_bytes, batch)
        if isinstance(part, Image):
            total += len(part.data) * 3 // 4
            if total > MAX_TOTAL_BYTES:
                part = f"the images of one message have more than {MAX_TOTAL_BYTES // 1_000_000} MB"
        if isinstance(part, str):
            refused.append(f"{_name(attachment)}: {part}")
        else:
            found.append(part)
    if more := attachments[limits.attachments :]:
        refused.append(f"{len(more)} more files: a message may have {limits.attachments}")
    if refused:
        found.append(Text("[Attachments that were not accepted: " + "; ".join(refused) + "]"))
    return tuple(found)


async def _fetch_together(
    attachments: tuple[IncomingFile, ...], channel: Channel, max_bytes: int
) -> dict[str, bytes | ChannelRefused]:
    """Return what the platform delivers in one piece, by the ID of the file."""
    wanted = [each for each in attachments if each.size <= max_bytes]
    if not wanted or not isinstance(channel, BatchChannel):
        return {}
    try:
        found = await channel.fetch_all(wanted, max_bytes)
    except Exception as error:
        logger.warning("%d attachments: %s", len(wanted), error)
        return {each.file_id: ChannelRefused("it could not be fetched") for each in wanted}
    return {each.file_id: data for each, data in zip(wanted, found, strict=True)}


async def _load(
    attachment: IncomingFile, channel: Channel, max_bytes: int, batch: dict[str, bytes | ChannelRefused]
) -> Text | Image | str:
    """Return the part for one attachment, or why there is none."""
    if attachment.size > max_bytes:
        return (
            f"it has {attachment.size} bytes, and at most {max_bytes} are accepted "
            "(`limits.attachment_bytes` of the channel)"
        )
    try:
        data = batch.pop(attachment.file_id, None)
        if isinstance(data, ChannelRefused):
            raise data
        if data is None:
            data = await channel.fetch(attachment, max_bytes)
    except ChannelRefused as error:
        return str(error)
    except Exception as error:
        logger.warning("attachment %s: %s", attachment.file_id, error)
        return "it could not be fetched"
    kind = _find_image_type(data)
    if kind is not None:
        return Image(kind, base64.b64encode(data).decode())
    return _read_text(attachment, data)


def _find_image_type(data: bytes) -> str | None:
    """Return the type of an image by its first bytes. The type that the sender claims does not count."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _MAGIC if data.startswith(magic)), None)


def _read_text(attachment: IncomingFile, data: bytes) -> Text | str:
    """Return the text of a file, or why there is none. Whatever type the sender claims, the content decides."""
    try:
        text = None if b"\0" in data or data.startswith(_DOCUMENTS) else make_sendable(data.decode())
    except UnicodeDecodeError:
        text = None
    if text is None:
        kind = attachment.media_type or "unknown"
        is_text = kind.lower().startswith("text/")
        return "it is not text in UTF-8" if is_text else f"files of the type {kind} are not accepted"
    cut = "" if len(text) <= MAX_TEXT_CHARACTERS else f"\n[cut after {MAX_TEXT_CHARACTERS} characters]"
    return Text(f"[File {_name(attachment)}]\n{text[:MAX_TEXT_CHARACTERS]}{cut}")


def _name(attachment: IncomingFile) -> str:
    printable = "".join(each for each in attachment.name if each.isprintable())
    return printable[:100] or "a file without a name"
