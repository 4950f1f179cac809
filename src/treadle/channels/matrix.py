"""Matrix, through the client-server API with matrix-nio."""

import io
import json
import re
import time
from collections.abc import Awaitable, Mapping
from contextlib import aclosing
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
from treadle.channels.markdown import MATRIX, PLAIN, measure, render
from treadle.channels.matrix_device import (
    DAMAGED,
    RESTORE,
    MatrixDevice,
    decrypt_file,
    decrypt_late,
    exchange_keys,
    is_encrypted,
    lacks_key,
    remember_encrypted,
)
from treadle.channels.matrix_events import read_event
from treadle.channels.matrix_identity import check_device, sign_device
from treadle.channels.matrix_rooms import Invitations, read_gap
from treadle.ports.channel import (
    ChannelBusy,
    ChannelError,
    ChannelRefused,
    ContentRefused,
    Incoming,
    IncomingFile,
    Outgoing,
    OutgoingFile,
    Receiver,
    Traits,
)

T = TypeVar("T")
SYNC_MILLISECONDS = 30_000
REFUSALS = ("M_FORBIDDEN", "M_NOT_FOUND", "M_UNRECOGNIZED")
CONTENT_REFUSALS = ("M_TOO_LARGE", "M_INVALID_PARAM", "M_BAD_JSON")
LATE_KEY_SECONDS = 2.0
"""How long the key of a message may arrive after the message."""
MAX_HELD_EVENTS = 2_000
"""Events of a room that are held in memory before they are passed on."""
FALLBACK_CHARACTERS = 200
MAX_CONTENT_BYTES = 44_000
"""Bytes of a message before encryption, which makes them a third more. An event has at most 65,536."""
NO_ANSWER = (aiohttp.ClientError, OSError, TimeoutError)
NOT_SENT = (*NO_ANSWER, LocalProtocolError, EncryptionError, GroupEncryptionError)
"""What a client raises when a message did not reach the homeserver."""
CLIENT_SETTINGS: dict[str, Any] = {"max_limit_exceeded": 0, "max_timeouts": 0}
TRAITS = Traits(
    max_characters=3_500,  # encrypted JSON has up to 12 bytes for a character
    measure=lambda text: measure(text, PLAIN),
    can_edit=True,
    deduplicates=True,
    edit_seconds=1.5,
    typing_seconds=20.0,
    max_file_bytes=50_000_000,  # the default of Synapse; a homeserver may accept less
)
_MEDIA_URI = re.compile(r"mxc://([A-Za-z0-9.\-]+(?::\d+)?|\[[0-9A-Fa-f:.]+\](?::\d+)?)/([A-Za-z0-9_\-]+)")
"""A sender writes this address: nothing else of the homeserver may be read through it."""


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
    """Implements `ports.channel.CleanedChannel`. A conversation is a room ID, or `ROOM/EVENT` for a thread."""

    def __init__(self, name: str, settings: Mapping[str, Any]) -> None:
        try:
            self._settings = msgspec.convert(dict(settings), MatrixSettings)
        except msgspec.ValidationError as error:
            raise ValueError(f"settings: {error}") from None
        # Transaction IDs are remembered for each device, so the device is always the same.
        device = f"TREADLE{blake2b(name.encode(), digest_size=4).hexdigest().upper()}"
        config = AsyncClientConfig(encryption_enabled=False, **CLIENT_SETTINGS)
        self._client = AsyncClient(self._settings.homeserver, self._settings.user, device, config=config)
        self._invitations = Invitations(self._client)
        self.limitation = ""
        """Why the device is not verified; empty: it is."""
        self._device: MatrixDevice | None = None
        self._session: aiohttp.ClientSession | None = None
        self.traits = TRAITS

    def use_folder(self, folder: Path) -> None:
        """Encrypt in rooms that are encrypted, with keys that are kept in this folder."""
        self._device = MatrixDevice(folder)
        self._client = self._device.open_client(self._settings.homeserver, self._settings.user, CLIENT_SETTINGS)
        self._invitations = Invitations(self._client)

    async def check(self) -> str:
        settings = self._settings
        try:
            await self._log_in()
            self.limitation = await self._verify_device() if self._device is not None else ""
        except NO_ANSWER as error:
            raise ChannelError(f"{settings.homeserver} cannot be reached: {error}") from None
        except DAMAGED as error:
            raise ChannelError(f"the encryption keys cannot be read: {error}. {RESTORE}") from None
        return str(self._client.user_id)

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
        self._device.refuse_replays(self._client)
        await check_device(self._client)
        await exchange_keys(self._client)
        settings, file = self._settings, self._device.identity_file
        return await sign_device(self._client, file, settings.password, settings.recovery_key)

    async def receive(self, receiver: Receiver) -> None:
        since = await receiver.cursor()
        if self._device is not None:
            await self._await_response(self._device.catch_up(self._client, since))
        is_first = True
        while True:
            answers = await self._read_new_events(receiver, since, is_first)
            found: list[Incoming] = []
            for answer in answers:
                if since is not None:  # the first synchronisation shows what was said before the bot was there
                    for room_id, room in answer.rooms.join.items():
                        found += self._read(room_id, cast("list[Any]", room.timeline.events))
            position = answers[-1].next_batch
            await receiver.accept(found, position)
            if self._device is not None and position != since:
                self._device.save_position(position)
            for answer in answers:
                for room_id, invitation in answer.rooms.invite.items():
                    self._invitations.accept(room_id, cast("list[Any]", invitation.invite_state))
            since, is_first = position, False

    async def _read_new_events(self, receiver: Receiver, since: str | None, is_first: bool) -> list[SyncResponse]:
        """Return what is new. Messages whose keys are missing are decrypted if these arrive a little later."""
        answers = [await self._sync(0 if is_first else SYNC_MILLISECONDS, since, is_first)]
        if since is None:
            return answers
        await self._fill_gaps(receiver, answers[0], since)
        deadline = time.monotonic() + LATE_KEY_SECONDS
        while self._device is not None and any(lacks_key(self._client, each) for each in answers):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            position = answers[-1].next_batch
            answers.append(await self._sync(max(1, int(left * 1000)), position, False))
            await self._fill_gaps(receiver, answers[-1], position)
            for answer in answers:
                decrypt_late(self._client, answer)
        return answers

    async def _fill_gaps(self, receiver: Receiver, answer: SyncResponse, since: str) -> None:
        """Add the events that a homeserver has left out because there are too many. Of very many, the oldest are
        passed on at once, and again if the process ends before the position is stored."""
        for room_id, room in answer.rooms.join.items():
            missed: list[Any] = []
            end = room.timeline.prev_batch
            if not room.timeline.limited or not end:
                continue
            try:
                async with aclosing(read_gap(self._client, room_id, since, end)) as pages:
                    async for page in pages:
                        missed += page
                        if len(missed) >= MAX_HELD_EVENTS:
                            await receiver.accept(self._read(room_id, missed))
                            missed.clear()
            except NO_ANSWER as error:
                raise _make_connection_error(error) from None
            cast("list[Any]", room.timeline.events)[:0] = missed

    def _read(self, room_id: str, events: list[Any]) -> list[Incoming]:
        return read_all(events, partial(read_event, self._client, room_id))

    async def _sync(self, milliseconds: int, since: str | None, is_first: bool) -> SyncResponse:
        answer = await self._await_response(self._client.sync(milliseconds, since=since, full_state=is_first))
        if not isinstance(answer, SyncResponse):
            raise ChannelError(f"the synchronisation failed: {_describe_answer(answer)}")
        if self._device is not None:
            await self._await_response(exchange_keys(self._client))
        return answer

    async def _await_response(self, request: Awaitable[T]) -> T:
        try:
            return await request
        except NO_ANSWER as error:
            raise _make_connection_error(error) from None

    async def send(self, message: Outgoing) -> str:
        room_id, _, thread = message.conversation.partition("/")
        if message.files:
            return await self._send_file(room_id, thread, message.key, message.files[0])
        content = _make_content(message.text + (" …" if message.is_draft else ""))
        if thread:
            content["m.relates_to"] = {"rel_type": "m.thread", "event_id": thread}
        return await self._send_content(room_id, content, message.key)

    async def edit(self, message_id: str, message: Outgoing) -> None:
        room_id = message.conversation.partition("/")[0]
        fresh = _make_content(message.text + (" …" if message.is_draft else ""))
        relation = {"rel_type": "m.replace", "event_id": message_id}
        # Clients that know no edits show the beginning. The whole text twice may be more than an event can have.
        shown = {"msgtype": fresh["msgtype"], "body": f"* {fresh['body'][:FALLBACK_CHARACTERS]}"}
        content = {**shown, "m.new_content": fresh, "m.relates_to": relation}
        await self._send_content(room_id, content, f"{message.key}/{message.text}/{message.is_draft}")

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

    async def clean(self, before: float) -> None:
        """Delete what refuses replays of messages from before a time, and make these messages unreadable."""
        if self._device is not None:
            self._device.clean(self._client, before)

    async def close(self) -> None:
        await self._invitations.close()
        if self._device is not None:
            self._device.close()
        if self._session is not None:
            await self._session.close()
        await self._client.close()

    # ── Writing ──

    async def _send_content(self, room_id: str, content: dict[str, Any], key: str) -> str:
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
            if not is_refused:
                remember_encrypted(self._client, room_id)
            # A room that was encrypted stays so, whatever the homeserver says.
            encrypted = is_encrypted(self._client, room_id)
            room = MatrixRoom(room_id, str(self._client.user_id), encrypted=encrypted)
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
        except NO_ANSWER as error:
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
        return await self._send_content(room_id, content, key)


def _make_content(text: str) -> dict[str, Any]:
    """Return a notice: bots do not answer notices of other bots."""
    html = render(text, MATRIX).replace("\n", "<br>")
    html = re.sub(r"<pre>.*?</pre>", lambda block: block[0].replace("<br>", "\n"), html, flags=re.DOTALL)
    plain = {"msgtype": "m.notice", "body": render(text, PLAIN)}
    content = {**plain, "format": "org.matrix.custom.html", "formatted_body": html}
    return content if len(json.dumps(content)) <= MAX_CONTENT_BYTES else plain


def _make_connection_error(error: BaseException) -> ChannelError:
    return ChannelError(f"the connection was lost: {error or type(error).__name__}")


def _explain(answer: Any) -> ChannelError:
    if answer.status_code == "M_LIMIT_EXCEEDED":
        return ChannelBusy(_describe_answer(answer), (answer.retry_after_ms or 5000) / 1000)
    if answer.status_code in CONTENT_REFUSALS:
        return ContentRefused(_describe_answer(answer))
    kind = ChannelRefused if answer.status_code in REFUSALS else ChannelError
    return kind(_describe_answer(answer))


def _describe_answer(answer: Any) -> str:
    return f"{getattr(answer, 'message', '') or answer} ({getattr(answer, 'status_code', '')})"
