"""Matrix, through the client-server API with matrix-nio."""

import io
import re
from collections.abc import Mapping
from functools import partial
from hashlib import blake2b
from typing import Any, cast
from urllib.parse import quote

import aiohttp
import msgspec
from msgspec import Struct
from nio import (  # pyright: ignore[reportMissingTypeStubs] -- it has none
    AsyncClient,
    AsyncClientConfig,
    LocalProtocolError,
    LoginError,
    RoomSendResponse,
    SyncResponse,
    WhoamiResponse,
)

from treadle.channels.download import download
from treadle.channels.incoming import read_all
from treadle.channels.markdown import MATRIX, PLAIN, render
from treadle.ports.channel import (
    ChannelBusy,
    ChannelError,
    ChannelRefused,
    Incoming,
    IncomingFile,
    Outgoing,
    OutgoingFile,
    Receiver,
    Traits,
)

SYNC_MILLISECONDS = 30_000
MEDIA = ("m.image", "m.file", "m.audio", "m.video")
REFUSALS = ("M_FORBIDDEN", "M_NOT_FOUND", "M_TOO_LARGE", "M_INVALID_PARAM", "M_BAD_JSON", "M_UNRECOGNIZED")
ENCRYPTED = (
    "I cannot read this room: it is encrypted, and encrypted rooms are not supported. Invite me to a room without "
    "encryption."
)
TRAITS = Traits(
    max_characters=16_000,  # an event has at most 64 kB, and carries plain text and HTML
    can_edit=True,
    deduplicates=True,
    edit_seconds=1.5,
    typing_seconds=20.0,
    max_file_bytes=50_000_000,  # the default of Synapse; a homeserver may accept less
)
_MEDIA_URI = re.compile(r"mxc://([A-Za-z0-9.\-]+(?::\d+)?|\[[0-9A-Fa-f:.]+\](?::\d+)?)/([A-Za-z0-9_\-]+)")
"""A sender writes this address: nothing else of the homeserver may be read through it."""
_QUOTE = re.compile(r"\A(?:> .*\n?)+\n?")


class MatrixSettings(Struct, frozen=True, forbid_unknown_fields=True):
    homeserver: str
    """The URL of the homeserver."""
    user: str
    """The user ID, such as `@treadle:example.org`."""
    password: str = ""
    access_token: str = ""

    def __post_init__(self) -> None:
        if bool(self.password) == bool(self.access_token):
            raise ValueError("either `password` or `access_token` is needed")


class Matrix:
    """Implements `ports.channel.Channel`. A conversation is a room ID, or `ROOM/EVENT` for a thread."""

    def __init__(self, name: str, settings: Mapping[str, Any]) -> None:
        try:
            self._settings = msgspec.convert(dict(settings), MatrixSettings)
        except msgspec.ValidationError as error:
            raise ValueError(f"settings: {error}") from None
        # Transaction IDs are remembered for each device, so the device is always the same.
        device = f"TREADLE{blake2b(name.encode(), digest_size=4).hexdigest().upper()}"
        config = AsyncClientConfig(max_limit_exceeded=0, max_timeouts=0, encryption_enabled=False)
        self._client = AsyncClient(self._settings.homeserver, self._settings.user, device, config=config)
        self._session: aiohttp.ClientSession | None = None
        self.traits = TRAITS

    async def check(self) -> str:
        settings = self._settings
        try:
            if settings.access_token:
                self._client.access_token = settings.access_token
                found = await self._client.whoami()
                if not isinstance(found, WhoamiResponse):
                    raise ChannelError(f"Matrix rejects the access token: {_said(found)}")
                self._client.user_id = found.user_id
                self._client.device_id = found.device_id or self._client.device_id
            else:
                answer = await self._client.login(settings.password, "Treadle")
                if isinstance(answer, LoginError):
                    raise ChannelError(f"Matrix rejects the password of {settings.user}: {_said(answer)}")
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ChannelError(f"{settings.homeserver} cannot be reached: {error}") from None
        return str(self._client.user_id)

    async def receive(self, receiver: Receiver) -> None:
        since = await receiver.cursor()
        is_first = True
        while True:
            wait = 0 if is_first else SYNC_MILLISECONDS
            try:
                answer = await self._client.sync(wait, since=since, full_state=is_first)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                raise ChannelError(f"the connection was lost: {error or type(error).__name__}") from None
            if not isinstance(answer, SyncResponse):
                raise ChannelError(f"the synchronisation failed: {_said(answer)}")
            for room_id in answer.rooms.invite:
                await self._client.join(room_id)
            found: list[Incoming] = []
            if since is not None:  # the first synchronisation shows what was said before the bot was there
                for room_id, room in answer.rooms.join.items():
                    found += read_all(cast("list[Any]", room.timeline.events), partial(self._read, room_id))
            await receiver.accept(found, answer.next_batch)
            since, is_first = answer.next_batch, False

    async def send(self, message: Outgoing) -> str:
        room_id, _, thread = message.conversation.partition("/")
        if message.files:
            return await self._send_file(room_id, thread, message.key, message.files[0])
        content = _content(message.text + (" …" if message.is_draft else ""))
        if thread:
            content["m.relates_to"] = {"rel_type": "m.thread", "event_id": thread}
        return await self._put(room_id, content, message.key)

    async def edit(self, message_id: str, message: Outgoing) -> None:
        room_id = message.conversation.partition("/")[0]
        fresh = _content(message.text + (" …" if message.is_draft else ""))
        relation = {"rel_type": "m.replace", "event_id": message_id}
        content = {**fresh, "body": f"* {fresh['body']}", "m.new_content": fresh, "m.relates_to": relation}
        await self._put(room_id, content, f"{message.key}/{message.text}/{message.is_draft}")

    async def show_typing(self, conversation: str) -> None:
        await self._client.room_typing(conversation.partition("/")[0], True, 30_000)

    async def fetch(self, attachment: IncomingFile, max_bytes: int) -> bytes:
        found = _MEDIA_URI.fullmatch(attachment.file_id)
        if found is None:
            raise ChannelRefused("its address is not valid")
        path = f"/_matrix/client/v1/media/download/{quote(found[1], safe='')}/{found[2]}"
        headers = {"Authorization": f"Bearer {self._client.access_token}"}
        if self._session is None:
            self._session = aiohttp.ClientSession()
        return await download(self._session, self._settings.homeserver.rstrip("/") + path, max_bytes, headers)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
        await self._client.close()

    # ── Reading ──

    def _read(self, room_id: str, event: Any) -> Incoming | None:
        source = cast("dict[str, Any]", event.source)
        kind, sender = source.get("type"), str(source.get("sender", ""))
        content = cast("dict[str, Any]", source.get("content") or {})
        if sender == self._client.user_id or not sender:
            return None
        room = self._client.rooms.get(room_id)
        is_direct = room is not None and room.joined_count + room.invited_count <= 2
        name = (room.user_name(sender) if room is not None else None) or sender
        common: dict[str, Any] = {"sender": sender, "sender_name": name, "is_direct": is_direct}
        event_id = str(source["event_id"])
        if kind == "m.room.redaction":
            target = str(source.get("redacts") or content.get("redacts") or "")
            return Incoming(event_id, room_id, kind="delete", target=target, **common)
        if kind == "m.room.encrypted":  # whether it mentions the bot is encrypted too
            return Incoming(event_id, room_id, problem=ENCRYPTED, is_addressed=is_direct, **common)
        if kind != "m.room.message":
            return None
        relation = cast("dict[str, Any]", content.get("m.relates_to") or {})
        if relation.get("rel_type") == "m.replace":
            fresh = cast("dict[str, Any]", content.get("m.new_content") or {})
            text, target = self._strip_mention(str(fresh.get("body", ""))), str(relation.get("event_id", ""))
            return Incoming(event_id, room_id, text=text, kind="edit", target=target, **common)
        reply_to = str(cast("dict[str, Any]", relation.get("m.in_reply_to") or {}).get("event_id", ""))
        thread = str(relation.get("event_id", "")) if relation.get("rel_type") == "m.thread" else ""
        body = str(content.get("body", ""))
        body = _QUOTE.sub("", body) if reply_to else body  # what others said does not address the bot
        is_file = content.get("msgtype") in MEDIA
        return Incoming(
            event_id,
            f"{room_id}/{thread}" if thread else room_id,
            text="" if is_file else self._strip_mention(body),
            attachments=_attachments(content) if is_file else (),
            is_addressed=is_direct or self._is_addressed(content, body),
            is_bot=content.get("msgtype") == "m.notice",
            reply_to=reply_to or thread,
            parent=room_id if thread else "",
            **common,
        )

    def _is_addressed(self, content: dict[str, Any], body: str) -> bool:
        """Return whether a message mentions the bot: as clients mark it, or in the text of one that does not."""
        user = str(self._client.user_id)
        if "m.mentions" in content:
            mentions = cast("dict[str, Any]", content["m.mentions"] or {})
            return user in cast("list[Any]", mentions.get("user_ids") or [])
        return re.search(rf"(?<![\w@]){re.escape(user)}(?![\w-]|:\d|\.\w)", body) is not None

    def _strip_mention(self, text: str) -> str:
        user = str(self._client.user_id)
        for name in (user, user.partition(":")[0].lstrip("@")):
            if text.lower().startswith((f"{name}:".lower(), f"{name} ".lower())) or text == name:
                return text[len(name) :].lstrip(": ").strip()
        return text

    # ── Writing ──

    async def _put(self, room_id: str, content: dict[str, Any], key: str) -> str:
        transaction = blake2b(key.encode("utf-8", "replace"), digest_size=20).hexdigest()
        try:
            answer = await self._client.room_send(room_id, "m.room.message", content, transaction)
        except (aiohttp.ClientError, OSError, TimeoutError, LocalProtocolError) as error:
            raise ChannelError(f"the message was not sent: {error or type(error).__name__}") from None
        if isinstance(answer, RoomSendResponse):
            return str(answer.event_id)
        raise _explain(answer)

    async def _send_file(self, room_id: str, thread: str, key: str, file: OutgoingFile) -> str:
        size = len(file.data)
        try:
            answer, _ = await self._client.upload(io.BytesIO(file.data), file.media_type, file.name, filesize=size)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ChannelError(f"the file was not uploaded: {error or type(error).__name__}") from None
        uri = getattr(answer, "content_uri", None)
        if uri is None:
            raise _explain(answer)
        kind = "m.image" if file.media_type.startswith("image/") else "m.file"
        info = {"mimetype": file.media_type, "size": size}
        content: dict[str, Any] = {"msgtype": kind, "body": file.name, "url": uri, "info": info}
        if thread:
            content["m.relates_to"] = {"rel_type": "m.thread", "event_id": thread}
        return await self._put(room_id, content, key)


def _content(text: str) -> dict[str, Any]:
    """Return a notice: bots do not answer notices of other bots."""
    html = render(text, MATRIX).replace("\n", "<br>")
    html = re.sub(r"<pre>.*?</pre>", lambda block: block[0].replace("<br>", "\n"), html, flags=re.DOTALL)
    return {
        "msgtype": "m.notice",
        "body": render(text, PLAIN),
        "format": "org.matrix.custom.html",
        "formatted_body": html,
    }


def _attachments(content: dict[str, Any]) -> tuple[IncomingFile, ...]:
    info = cast("dict[str, Any]", content.get("info") or {})
    url = str(content.get("url") or "")
    if not url.startswith("mxc://"):
        return ()
    size = info.get("size")
    name, kind = str(content.get("body", "")), str(info.get("mimetype", ""))
    return (IncomingFile(url, name, kind, size if isinstance(size, int) else 0),)


def _explain(answer: Any) -> ChannelError:
    if answer.status_code == "M_LIMIT_EXCEEDED":
        return ChannelBusy(_said(answer), (answer.retry_after_ms or 5000) / 1000)
    kind = ChannelRefused if answer.status_code in REFUSALS else ChannelError
    return kind(_said(answer))


def _said(answer: Any) -> str:
    return f"{getattr(answer, 'message', '') or answer} ({getattr(answer, 'status_code', '')})"
