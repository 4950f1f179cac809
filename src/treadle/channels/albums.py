"""Albums: several files that a person sent at once, and that a platform delivers one by one."""

from collections.abc import Sequence

from msgspec.structs import replace

from treadle.ports.channel import Incoming
from treadle.ports.channel_store import ChannelStore, InboxItem
from treadle.ports.clock import Clock

ALBUM_SECONDS = 1.0
"""How long the other parts of an album are waited for."""


async def merge_album(channel: str, item: InboxItem, store: ChannelStore, clock: Clock) -> Incoming:
    """Return the message of an album with the files of all parts that have arrived. The other parts are done.

    The merged message is stored before they are, so nothing is lost or doubled when the process dies in between."""
    found = await store.inbox(channel, item.message.conversation)
    parts = [each.message for each in found if each.state == "new" and _is_part(each.message, item.message)]
    merged = _merge(item.message, parts)
    await store.replace_received(channel, merged)
    for part in parts:
        if part.message_id != item.message.message_id:
            await store.finish(channel, [], clock.now(), message_id=part.message_id)
    return merged


def _is_part(message: Incoming, first: Incoming) -> bool:
    return (message.album, message.sender, message.kind) == (first.album, first.sender, "message")


def _merge(first: Incoming, parts: Sequence[Incoming]) -> Incoming:
    files = {file.file_id: file for part in (first, *parts) for file in part.attachments}
    texts = dict.fromkeys(part.text.strip() for part in (first, *parts) if part.text.strip())
    return replace(first, text="\n\n".join(texts), attachments=tuple(files.values()))
