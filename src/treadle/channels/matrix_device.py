"""The device of a Matrix account: its encryption keys, kept in a folder, and how far this device has read."""

import os
import re
import secrets
import sqlite3
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import msgspec
import peewee  # pyright: ignore[reportMissingTypeStubs] -- it has none
import vodozemac
from msgspec import Struct
from nio import (  # pyright: ignore[reportMissingTypeStubs] -- it has none
    AsyncClient,
    AsyncClientConfig,
    EncryptionError,
    ErrorResponse,
    MegolmEvent,
    SyncResponse,
)
from nio.crypto import InboundGroupSession  # pyright: ignore[reportMissingTypeStubs] -- it has none
from nio.crypto.attachments import decrypt_attachment  # pyright: ignore[reportMissingTypeStubs] -- it has none
from nio.store.models import ForwardedChains, MegolmInboundSessions  # pyright: ignore[reportMissingTypeStubs] -- it has none

from treadle.ports.channel import ChannelError, ChannelRefused

NO_ROOMS: dict[str, Any] = {"room": {"rooms": []}}
DAMAGED = (peewee.DatabaseError, sqlite3.DatabaseError)
"""What is raised for files that are not those of a device."""
RESTORE = "Restore the folder of the channel from a copy, or delete it: then the agent continues as a new device."
UNUSED_SECONDS = 365 * 86_400.0
"""Clients begin a new key after a week or a hundred messages, unless a room says otherwise. The key of a quiet room
may be in use for much longer."""
UNUSED_INDEX = -1
"""The position of a record that says only when a key was first seen."""
_DEVICE_ID = re.compile(r"[A-Za-z0-9._~=/+-]{1,100}")
_STORE_KEY = "treadle"
"""The folder is private to the user, so its files need no secret of their own."""


class FileKey(Struct, frozen=True):
    """What decrypts a file of an encrypted room."""

    key: str
    iv: str
    sha256: str


class DecryptedMessages:
    """Which messages were decrypted, in a file: the event of each key and position. Used as a mapping by the
    library, whose own one forgets them when the process ends. `clean` bounds it."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=NORMAL")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS decrypted (sender_key TEXT, session_id TEXT, message_index INTEGER, "
            "event_id TEXT, sent_at INTEGER, recorded_at REAL NOT NULL DEFAULT 0, "
            "PRIMARY KEY (sender_key, session_id, message_index)) WITHOUT ROWID"
        )

    def __getitem__(self, key: tuple[str, str, int]) -> tuple[str, int]:
        query = "SELECT event_id, sent_at FROM decrypted WHERE (sender_key, session_id, message_index) = (?, ?, ?)"
        found = self._database.execute(query, key).fetchone()
        if found is None:
            raise KeyError(key)
        return found

    def __setitem__(self, key: tuple[str, str, int], event: tuple[str, int]) -> None:
        # The time of the homeserver is not used to clean: it could be any.
        values = (*key, *event, time.time())
        self._database.execute("INSERT OR REPLACE INTO decrypted VALUES (?, ?, ?, ?, ?, ?)", values)

    def note_session(self, sender_key: str, session_id: str) -> None:
        """Record a key that has decrypted nothing yet, so that it is deleted if it never does."""
        query = "SELECT 1 FROM decrypted WHERE (sender_key, session_id) = (?, ?)"
        if self._database.execute(query, (sender_key, session_id)).fetchone() is None:
            self[sender_key, session_id, UNUSED_INDEX] = ("", 0)

    def list_sessions(self, before: float) -> list[tuple[str, str, int, float]]:
        """Return keys with records from before a time: the last position of these, and when the key last decrypted
        something."""
        query = (
            "SELECT sender_key, session_id, max(message_index) FILTER (WHERE recorded_at < ?), max(recorded_at) "
            "FROM decrypted GROUP BY sender_key, session_id HAVING min(recorded_at) < ?"
        )
        return self._database.execute(query, (before, before)).fetchall()

    def forget(self, sender_key: str, session_id: str, index: int) -> None:
        """Delete the records of a key at positions before this one."""
        query = "DELETE FROM decrypted WHERE (sender_key, session_id) = (?, ?) AND message_index < ?"
        self._database.execute(query, (sender_key, session_id, index))

    def forget_session(self, sender_key: str, session_id: str) -> None:
        query = "DELETE FROM decrypted WHERE (sender_key, session_id) = (?, ?)"
        self._database.execute(query, (sender_key, session_id))

    def close(self) -> None:
        self._database.close()


class MatrixDevice:
    """A device whose keys are in a folder. Without the folder it becomes another device: the keys of a device that
    others know must not change."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._id_file = folder / "device"
        self._position_file = folder / "position"
        self.identity_file = folder / "identity"
        self._decrypted: DecryptedMessages | None = None

    def open_client(self, homeserver: str, user: str, settings: dict[str, Any]) -> AsyncClient:
        """Return a client that encrypts. It loads the keys when it logs in."""
        config = AsyncClientConfig(encryption_enabled=True, store_name="keys.db", pickle_key=_STORE_KEY, **settings)
        return AsyncClient(homeserver, user, self._read_id(), str(self._folder), config)

    def refuse_replays(self, client: AsyncClient) -> None:
        """Decrypt each message once, also after a restart. The client must be logged in."""
        assert client.olm is not None
        if self._decrypted is None:
            self._decrypted = DecryptedMessages(self._folder / "decrypted.db")
        client.olm.message_index_store = cast("Any", self._decrypted)

    def clean(self, client: AsyncClient, before: float) -> None:
        """Delete the records of messages that were decrypted before a time. The keys are advanced past these
        messages first, so that they cannot be decrypted again. A key that was not used for a year is deleted."""
        if self._decrypted is None or client.olm is None:
            return
        sessions = {(each.sender_key, each.id): each for each in client.olm.inbound_group_store}
        for sender_key, session_id in sessions:
            self._decrypted.note_session(sender_key, session_id)
        for sender_key, session_id, index, used_at in self._decrypted.list_sessions(before):
            session = sessions.get((sender_key, session_id))
            if session is None or used_at < before - UNUSED_SECONDS:
                if session is not None:
                    delete_session(client, session)
                self._decrypted.forget_session(sender_key, session_id)
                continue
            if index >= session.first_known_index:
                advance_session(client, session, index + 1)
            # The last record stays: it says when the key was last used.
            self._decrypted.forget(sender_key, session_id, index)

    def close(self) -> None:
        if self._decrypted is not None:
            self._decrypted.close()
            self._decrypted = None

    def _read_id(self) -> str:
        if not self._id_file.exists():
            _write(self._id_file, f"TREADLE{secrets.token_hex(5).upper()}")
        found = self._id_file.read_bytes().decode("ascii", "replace").strip()
        if not _DEVICE_ID.fullmatch(found):
            raise ValueError(f"{self._id_file} is damaged. {RESTORE}")
        return found

    def save_position(self, position: str) -> None:
        """Record how far this device has read, after what was read is stored."""
        _write(self._position_file, position)

    async def catch_up(self, client: AsyncClient, since: str | None) -> None:
        """Receive the keys that were sent to this device while another server held the channel. A position of
        another device would skip them."""
        position = self._position_file.read_text() if self._position_file.exists() else ""
        while position and position != since:
            answer = await client.sync(0, NO_ROOMS, position)
            client.next_batch = ""  # the next answer may end at the same position, and must be read too
            if not isinstance(answer, SyncResponse):
                raise ChannelError(f"the keys of this device were not received: {answer}")
            if not answer.to_device_events or answer.next_batch == position:
                break
            position = answer.next_batch  # a homeserver gives 100 of them at once


async def exchange_keys(client: AsyncClient) -> None:
    """Do what other devices need to write to this one, and this one to them."""
    if client.should_upload_keys:
        _check(await client.keys_upload())
    if client.should_query_keys:
        _check(await client.keys_query())
    if client.should_claim_keys:
        wanted: dict[str, Iterable[str]] = {**client.get_users_for_key_claiming()}
        _check(await client.keys_claim(wanted))
    await client.send_to_device_messages()


def _check(answer: Any) -> None:
    if isinstance(answer, ErrorResponse):
        raise ChannelError(f"the homeserver rejects the encryption keys: {answer.message} ({answer.status_code})")


def decrypt_late(client: AsyncClient, answer: SyncResponse) -> None:
    """Decrypt the messages of an answer whose keys arrived after it."""
    for room in answer.rooms.join.values():
        events = cast("list[Any]", room.timeline.events)
        for index, event in enumerate(events):
            if isinstance(event, MegolmEvent):
                try:
                    events[index] = client.decrypt_event(event)
                except EncryptionError:
                    continue


def lacks_key(client: AsyncClient, answer: SyncResponse) -> bool:
    """Return whether an answer has messages whose keys are missing."""
    return any(
        isinstance(event, MegolmEvent) and _find_session(client, room_id, event) is None
        for room_id, room in answer.rooms.join.items()
        for event in cast("list[Any]", room.timeline.events)
    )


def _find_session(client: AsyncClient, room_id: str, event: MegolmEvent) -> Any:
    if client.olm is None:
        return None
    return client.olm.inbound_group_store.get(room_id, str(event.sender_key), str(event.session_id))


def is_replay(client: AsyncClient, room_id: str, event: Any) -> bool:
    """Return whether an event was not decrypted although its key is here: it was delivered before under another
    ID. A homeserver could have commands executed again that way."""
    session = _find_session(client, room_id, event) if isinstance(event, MegolmEvent) else None
    try:
        return session is not None and bool(session.decrypt(event.ciphertext))
    except (vodozemac.MegolmDecryptionException, vodozemac.DecodeException):
        return False  # the key opens only later messages


def advance_session(client: AsyncClient, session: InboundGroupSession, index: int) -> None:
    """Make a key open only messages at this position and later ones, as stored too."""
    assert client.olm is not None
    fresh = InboundGroupSession.import_session(
        session.export_session(index),
        session.ed25519,
        session.sender_key,
        session.room_id,
        session.forwarding_chain,
    )
    client.olm.save_inbound_group_session(fresh)
    client.olm.inbound_group_store[session.room_id][session.sender_key][session.id] = fresh


def delete_session(client: AsyncClient, session: InboundGroupSession) -> None:
    """Delete a key. Messages that it encrypted cannot be decrypted any more."""
    assert client.olm is not None
    client.olm.inbound_group_store[session.room_id][session.sender_key].pop(session.id, None)
    store = cast("Any", client.store)
    with store.database.bind_ctx(store.models):
        chains, keys = cast("Any", ForwardedChains), cast("Any", MegolmInboundSessions)
        chains.delete().where(chains.session == session.id).execute()
        keys.delete().where(keys.session_id == session.id).execute()


def is_encrypted(client: AsyncClient, room_id: str) -> bool:
    """Return whether a room is encrypted or ever was, as far as this device knows. Encryption cannot be switched
    off, so a homeserver that says otherwise lies."""
    room = client.rooms.get(room_id)
    return client.olm is not None and (room_id in client.encrypted_rooms or (room is not None and room.encrypted))


def remember_encrypted(client: AsyncClient, room_id: str) -> None:
    client.encrypted_rooms.add(room_id)
    if client.store is not None:
        cast("Any", client.store).save_encrypted_rooms({room_id})


def is_from_device_of(client: AsyncClient, event: Any, user: str) -> bool:
    """Return whether a decrypted event was encrypted by a device of this user. The homeserver names the sender, and
    only the keys prove it."""
    devices = client.device_store.active_user_devices(user)
    return any(device.curve25519 == event.sender_key for device in devices)


def name_encrypted_file(url: str, file: dict[str, Any]) -> str:
    """Return the ID of a file of an encrypted room: its address, and what decrypts it. Empty if that is missing."""
    try:
        key = FileKey(str(file["key"]["k"]), str(file["iv"]), str(file["hashes"]["sha256"]))
    except (KeyError, TypeError):
        return ""
    return f"{url}#{urlsafe_b64encode(msgspec.json.encode(key)).decode()}"


def decrypt_file(data: bytes, fragment: str) -> bytes:
    """Return the content of a file whose ID has this fragment."""
    try:
        key = msgspec.json.decode(urlsafe_b64decode(fragment), type=FileKey)
        return decrypt_attachment(data, key.key, key.sha256, key.iv)
    except (EncryptionError, ValueError):
        raise ChannelRefused("it cannot be decrypted") from None


def _write(path: Path, text: str) -> None:
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text)
    os.replace(fresh, path)
