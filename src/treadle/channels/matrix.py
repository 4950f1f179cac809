"""Matrix, through the client-server API with matrix-nio."""

import io
import json
import re
from collections.abc import Awaitable, Mapping
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import quote

import aiohttp
import msgspec
from msgspec import Struct
from nio import (  # pyright: ignore[reportMissingTypeStubs] -- it has none
    AsyncClient,
    AsyncClientConfig,
    EncryptionError,
    GroupEncryptionError,
    LocalProtocolError,
    LoginError,
    MatrixRoom,
    RoomGetStateEventError,
    RoomSendResponse,
    SyncResponse,
    WhoamiResponse,
)

from treadle.channels.download import download
from treadle.channels.incoming import read_all
from treadle.channels.markdown import MATRIX, PLAIN, render
from treadle.channels.matrix_device import (
    MatrixDevice,
    decrypt_file,
    decrypt_late,
    exchange_keys,
    has_unreadable,
    is_from_device_of,
    name_encrypted_file,
)
from treadle.channels.matrix_identity import check_device, sign_device
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

T = TypeVar("T")
SYNC_MILLISECONDS = 30_000
MEDIA = ("m.image", "m.file", "m.audio", "m.video")
REFUSALS = ("M_FORBIDDEN", "M_NOT_FOUND", "M_TOO_LARGE", "M_INVALID_PARAM", "M_BAD_JSON", "M_UNRECOGNIZED")
LATE_KEY_MILLISECONDS = 2_000
"""How long the key of a message may arrive after the message."""
UNREADABLE = (
    "I cannot read your message: it is encrypted, and its key has not reached me. Please send it again. If that "
    "does not help, invite me to a new room."
)
FORGED = "its encryption key does not belong to the sender"
FALLBACK_CHARACTERS = 200
MAX_CONTENT_BYTES = 44_000
"""Bytes of a message before encryption, which makes them a third more. An event has at most 65,536."""
NOT_SENT = (
    aiohttp.ClientError, OSError, TimeoutError, LocalProtocolError, EncryptionError, GroupEncryptionError,
)  # fmt: skip
"""What a client raises when a message did not reach the homeserver."""
CLIENT_SETTINGS: dict[str, Any] = {"max_limit_exceeded": 0, "max_timeouts": 0}
TRAITS = Traits(
    max_characters=3_500,  # encrypted JSON has up to 12 bytes for a character
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
    recovery_key: str = ""
    """Opens the secret storage of the account, so that other clients trust this device in encrypted rooms."""

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
        config = AsyncClientConfig(encryption_enabled=False, **CLIENT_SETTINGS)
        self._client = AsyncClient(self._settings.homeserver, self._settings.user, device, config=config)
        self._device: MatrixDevice | None = None
        self._session: aiohttp.ClientSession | None = None
        self.traits = TRAITS

    def use_folder(self, folder: Path) -> None:
        """Encrypt in rooms that are encrypted, with keys that are kept in this folder."""
        self._device = MatrixDevice(folder)
        self._client = self._device.open_client(self._settings.homeserver, self._settings.user, CLIENT_SETTINGS)

    async def check(self) -> str:
        settings = self._settings
        try:
            await self._log_in()
            problem = await self._verify_device() if self._device is not None else ""
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ChannelError(f"{settings.homeserver} cannot be reached: {error}") from None
        return f"{self._client.user_id}. {problem}" if problem else str(self._client.user_id)

    async def _log_in(self) -> None:
        settings = self._settings
        if settings.access_token:
            self._client.access_token = settings.access_token
            found = await self._client.whoami()
            if not isinstance(found, WhoamiResponse):
                raise ChannelError(f"Matrix rejects the access token: {_describe_answer(found)}")
            device = found.device_id or str(self._client.device_id)
            self._client.restore_login(found.user_id, device, settings.access_token)
        else:
            answer = await self._client.login(settings.password, "Treadle")
            if isinstance(answer, LoginError):
                raise ChannelError(f"Matrix rejects the password of {settings.user}: {_describe_answer(answer)}")

    async def _verify_device(self) -> str:
        """Publish the keys of this device and sign them. Return why other clients will not trust it, if so."""
        assert self._device is not None
        await check_device(self._client)
        await exchange_keys(self._client)
        settings, file = self._settings, self._device.identity_file
        return await sign_device(self._client, file, settings.password, settings.recovery_key)

    async def receive(self, receiver: Receiver) -> None:
        since = await receiver.cursor()
        if self._device is not None:
            await self._ask(self._device.catch_up(self._client, since))
        is_first = True
        while True:
            answers = [await self._sync(0 if is_first else SYNC_MILLISECONDS, since, is_first)]
            if since is not None and has_unreadable(answers[0]) and self._device is not None:
                answers.append(await self._sync(LATE_KEY_MILLISECONDS, answers[0].next_batch, False))
                decrypt_late(self._client, answers[0])
            found: list[Incoming] = []
            for answer in answers:
                for room_id in answer.rooms.invite:
                    await self._client.join(room_id)
                if since is not None:  # the first synchronisation shows what was said before the bot was there
                    for room_id, room in answer.rooms.join.items():
                        found += read_all(cast("list[Any]", room.timeline.events), partial(self._read, room_id))
            position = answers[-1].next_batch
            await receiver.accept(found, position)
            if self._device is not None and position != since:
                self._device.keep_position(position)
            since, is_first = position, False

    async def _sync(self, milliseconds: int, since: str | None, is_first: bool) -> SyncResponse:
        answer = await self._ask(self._client.sync(milliseconds, since=since, full_state=is_first))
        if not isinstance(answer, SyncResponse):
            raise ChannelError(f"the synchronisation failed: {_describe_answer(answer)}")
        if self._device is not None:
            await self._ask(exchange_keys(self._client))
        return answer

    async def _ask(self, request: Awaitable[T]) -> T:
        try:
            return await request
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ChannelError(f"the connection was lost: {error or type(error).__name__}") from None

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
        # Clients that know no edits show the beginning. The whole text twice may be more than an event can have.
        shown = {"msgtype": fresh["msgtype"], "body": f"* {fresh['body'][:FALLBACK_CHARACTERS]}"}
        content = {**shown, "m.new_content": fresh, "m.relates_to": relation}
        await self._put(room_id, content, f"{message.key}/{message.text}/{message.is_draft}")

    async def show_typing(self, conversation: str) -> None:
        await self._client.room_typing(conversation.partition("/")[0], True, 30_000)

    async def fetch(self, attachment: IncomingFile, max_bytes: int) -> bytes:
        uri, _, key = attachment.file_id.partition("#")
        found = _MEDIA_URI.fullmatch(uri)
        if found is None:
            raise ChannelRefused("its address is not valid")
        path = f"/_matrix/client/v1/media/download/{quote(found[1], safe='')}/{found[2]}"
        headers = {"Authorization": f"Bearer {self._client.access_token}"}
        if self._session is None:
            self._session = aiohttp.ClientSession()
        url = self._settings.homeserver.rstrip("/") + path
        data = await download(self._session, url, max_bytes, headers)
        return decrypt_file(data, key) if key else data

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
            return Incoming(event_id, room_id, problem=UNREADABLE, is_addressed=is_direct, **common)
        if getattr(event, "decrypted", False) and not is_from_device_of(self._client, event, sender):
            common["distrust"] = FORGED
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
            await self._find_room(room_id)
            if self._client.should_query_keys:
                await self._client.keys_query()
            answer = await self._client.room_send(
                room_id, "m.room.message", content, transaction, ignore_unverified_devices=True
            )
        except NOT_SENT as error:
            raise ChannelError(f"the message was not sent: {error or type(error).__name__}") from None
        if isinstance(answer, RoomSendResponse):
            return str(answer.event_id)
        raise _explain(answer)

    async def _find_room(self, room_id: str) -> MatrixRoom | None:
        """Return a room, with its encryption known. None: this channel does not encrypt."""
        if self._device is None:
            return None
        if room_id not in self._client.rooms:
            answer = await self._client.room_get_state_event(room_id, "m.room.encryption")
            is_refused = isinstance(answer, RoomGetStateEventError)
            if is_refused and answer.status_code != "M_NOT_FOUND":
                raise _explain(answer)
            room = MatrixRoom(room_id, str(self._client.user_id), encrypted=not is_refused)
            self._client.rooms.setdefault(room_id, room)
        return self._client.rooms[room_id]

    async def _send_file(self, room_id: str, thread: str, key: str, file: OutgoingFile) -> str:
        size = len(file.data)
        try:
            room = await self._find_room(room_id)
            answer, keys = await self._client.upload(
                io.BytesIO(file.data),
                file.media_type,
                file.name,
                room is not None and room.encrypted,
                filesize=size,
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ChannelError(f"the file was not uploaded: {error or type(error).__name__}") from None
        uri = getattr(answer, "content_uri", None)
        if uri is None:
            raise _explain(answer)
        kind = "m.image" if file.media_type.startswith("image/") else "m.file"
        info = {"mimetype": file.media_type, "size": size}
        where = {"file": {**keys, "url": uri}} if keys else {"url": uri}
        content: dict[str, Any] = {"msgtype": kind, "body": file.name, **where, "info": info}
        if thread:
            content["m.relates_to"] = {"rel_type": "m.thread", "event_id": thread}
        return await self._put(room_id, content, key)


def _content(text: str) -> dict[str, Any]:
    """Return a notice: bots do not answer notices of other bots."""
    html = render(text, MATRIX).replace("\n", "<br>")
    html = re.sub(r"<pre>.*?</pre>", lambda block: block[0].replace("<br>", "\n"), html, flags=re.DOTALL)
    plain = {"msgtype": "m.notice", "body": render(text, PLAIN)}
    content = {**plain, "format": "org.matrix.custom.html", "formatted_body": html}
    return content if len(json.dumps(content)) <= MAX_CONTENT_BYTES else plain


def _attachments(content: dict[str, Any]) -> tuple[IncomingFile, ...]:
    info = cast("dict[str, Any]", content.get("info") or {})
    file = cast("dict[str, Any]", content.get("file") or {})
    url = str(file.get("url") or content.get("url") or "")
    file_id = name_encrypted_file(url, file) if file else url
    if not file_id.startswith("mxc://"):
        return ()
    size = info.get("size")
    name, kind = str(content.get("body", "")), str(info.get("mimetype", ""))
    return (IncomingFile(file_id, name, kind, size if isinstance(size, int) else 0),)


def _explain(answer: Any) -> ChannelError:
    if answer.status_code == "M_LIMIT_EXCEEDED":
        return ChannelBusy(_describe_answer(answer), (answer.retry_after_ms or 5000) / 1000)
    kind = ChannelRefused if answer.status_code in REFUSALS else ChannelError
    return kind(_describe_answer(answer))


def _describe_answer(answer: Any) -> str:
    return f"{getattr(answer, 'message', '') or answer} ({getattr(answer, 'status_code', '')})"
