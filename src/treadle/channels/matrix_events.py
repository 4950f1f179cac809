"""Reading the events of Matrix rooms: what people wrote, edited and deleted."""

import re
from typing import Any, cast

from nio import AsyncClient  # pyright: ignore[reportMissingTypeStubs] -- it has none

from treadle.channels.matrix_device import is_encrypted, is_from_device_of, is_replay, name_encrypted_file
from treadle.ports.channel import Incoming, IncomingFile

MEDIA = ("m.image", "m.file", "m.audio", "m.video")
UNREADABLE = (
    "I cannot read your message: it is encrypted, and its key has not reached me. Please send it again. If that "
    "does not help, invite me to a new room."
)
FORGED = "its encryption key does not belong to the sender"
CLEAR = "it is not encrypted, but the room is"
REPLAYED = "the homeserver delivered it before as another message"
_QUOTE = re.compile(r"\A(?:> .*\n?)+\n?")


def read_event(client: AsyncClient, room_id: str, event: Any) -> Incoming | None:
    """Return what a person did, or None if an event is of no interest."""
    source = cast("dict[str, Any]", event.source)
    kind, sender = source.get("type"), str(source.get("sender", ""))
    content = cast("dict[str, Any]", source.get("content") or {})
    if sender == client.user_id or not sender:
        return None
    room = client.rooms.get(room_id)
    is_direct = room is not None and room.joined_count + room.invited_count <= 2
    name = (room.user_name(sender) if room is not None else None) or sender
    common: dict[str, Any] = {"sender": sender, "sender_name": name, "is_direct": is_direct}
    event_id = str(source["event_id"])
    if kind == "m.room.redaction":  # never encrypted
        target = str(source.get("redacts") or content.get("redacts") or "")
        return Incoming(event_id, room_id, kind="delete", target=target, **common)
    if kind == "m.room.encrypted":  # whether it mentions the bot is encrypted too
        distrust = REPLAYED if is_replay(client, room_id, event) else ""
        return Incoming(event_id, room_id, problem=UNREADABLE, distrust=distrust, is_addressed=is_direct, **common)
    if kind != "m.room.message":
        return None
    common["distrust"] = _explain_distrust(client, room_id, event, sender)
    relation = cast("dict[str, Any]", content.get("m.relates_to") or {})
    if relation.get("rel_type") == "m.replace":
        fresh = cast("dict[str, Any]", content.get("m.new_content") or {})
        text, target = _read_text(client, room_id, fresh, ""), str(relation.get("event_id", ""))
        return Incoming(event_id, room_id, text=text, kind="edit", target=target, **common)
    reply_to = str(cast("dict[str, Any]", relation.get("m.in_reply_to") or {}).get("event_id", ""))
    thread = str(relation.get("event_id", "")) if relation.get("rel_type") == "m.thread" else ""
    return Incoming(
        event_id,
        f"{room_id}/{thread}" if thread else room_id,
        text=_read_text(client, room_id, content, reply_to),
        attachments=_attachments(content) if content.get("msgtype") in MEDIA else (),
        is_addressed=is_direct or _is_addressed(client, content, _read_body(content, reply_to)),
        is_bot=content.get("msgtype") == "m.notice",
        reply_to=reply_to or thread,
        parent=room_id if thread else "",
        **common,
    )


def _explain_distrust(client: AsyncClient, room_id: str, event: Any, sender: str) -> str:
    """Return why a message may be forged by the homeserver, or an empty text. In an encrypted room only the keys
    prove who wrote."""
    if getattr(event, "decrypted", False):
        return "" if is_from_device_of(client, event, sender) else FORGED
    return CLEAR if is_encrypted(client, room_id) else ""


# ── Text ──


def _read_body(content: dict[str, Any], reply_to: str) -> str:
    """Return what the author wrote. With a file that is its caption, if another field has the file's name."""
    body = str(content.get("body", ""))
    if content.get("msgtype") in MEDIA:
        return body if content.get("filename") not in (None, "", body) else ""
    return _QUOTE.sub("", body) if reply_to else body  # what others said does not address the bot


def _read_text(client: AsyncClient, room_id: str, content: dict[str, Any], reply_to: str) -> str:
    return _strip_mention(client, room_id, content, _read_body(content, reply_to))


def _is_addressed(client: AsyncClient, content: dict[str, Any], body: str) -> bool:
    """Return whether a message mentions the bot: as clients mark it, or in the text of one that does not."""
    if "m.mentions" in content:
        return _is_marked(client, content)
    user = str(client.user_id)
    return re.search(rf"(?<![\w@]){re.escape(user)}(?![\w-]|:\d|\.\w)", body) is not None


def _is_marked(client: AsyncClient, content: dict[str, Any]) -> bool:
    mentions = cast("dict[str, Any]", content.get("m.mentions") or {})
    return str(client.user_id) in cast("list[Any]", mentions.get("user_ids") or [])


def _strip_mention(client: AsyncClient, room_id: str, content: dict[str, Any], text: str) -> str:
    """Return a text without the name of the bot at its beginning: the ID, its first part or the display name."""
    user, room = str(client.user_id), client.rooms.get(room_id)
    own = None if room is None else room.users.get(user)
    shown = "" if own is None else str(own.display_name or "")
    for name in (user, shown, user.partition(":")[0].lstrip("@")):
        if not name or not text.lower().startswith(name.lower()):
            continue
        rest = text[len(name) :]
        # Without a mark of the client, a name before a space may be the subject of a sentence.
        is_named = name == user or _is_marked(client, content)
        if not rest or rest[0] in ":," or (rest[0].isspace() and is_named):
            return rest.lstrip(":, \n").strip()
    return text


# ── Files ──


def _attachments(content: dict[str, Any]) -> tuple[IncomingFile, ...]:
    info = cast("dict[str, Any]", content.get("info") or {})
    file = cast("dict[str, Any]", content.get("file") or {})
    url = str(file.get("url") or content.get("url") or "")
    file_id = name_encrypted_file(url, file) if file else url
    if not file_id.startswith("mxc://"):
        return ()
    size = info.get("size")
    name, kind = str(content.get("filename") or content.get("body", "")), str(info.get("mimetype", ""))
    return (IncomingFile(file_id, name, kind, size if isinstance(size, int) else 0),)
