"""The device of a Matrix account: its encryption keys, kept in a folder, and how far this device has read."""

import os
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct
from nio import (  # pyright: ignore[reportMissingTypeStubs] -- it has none
    AsyncClient,
    AsyncClientConfig,
    EncryptionError,
    ErrorResponse,
    MegolmEvent,
    SyncResponse,
)
from nio.crypto.attachments import decrypt_attachment  # pyright: ignore[reportMissingTypeStubs] -- it has none

from treadle.ports.channel import ChannelError, ChannelRefused

NO_ROOMS: dict[str, Any] = {"room": {"rooms": []}}
_STORE_KEY = "treadle"
"""The folder is private to the user, so its files need no secret of their own."""


class FileKey(Struct, frozen=True):
    """What decrypts a file of an encrypted room."""

    key: str
    iv: str
    sha256: str


class MatrixDevice:
    """A device whose keys are in a folder. Without the folder it becomes another device: the keys of a device that
    others know must not change."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._id_file = folder / "device"
        self._position_file = folder / "position"
        self.identity_file = folder / "identity"

    def open_client(self, homeserver: str, user: str, settings: dict[str, Any]) -> AsyncClient:
        """Return a client that encrypts. It loads the keys when it logs in."""
        config = AsyncClientConfig(encryption_enabled=True, store_name="keys.db", pickle_key=_STORE_KEY, **settings)
        return AsyncClient(homeserver, user, self._read_id(), str(self._folder), config)

    def _read_id(self) -> str:
        if not self._id_file.exists():
            _write(self._id_file, f"TREADLE{secrets.token_hex(5).upper()}")
        return self._id_file.read_text().strip()

    def keep_position(self, position: str) -> None:
        """Record how far this device has read, after what was read is stored."""
        _write(self._position_file, position)

    async def catch_up(self, client: AsyncClient, since: str | None) -> None:
        """Receive the keys that were sent to this device while another server held the channel. A position of
        another device would skip them."""
        position = self._position_file.read_text() if self._position_file.exists() else ""
        if position and position != since:
            await client.sync(0, NO_ROOMS, position)
            client.next_batch = ""  # the next answer may end at the same position, and must be read too


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


def has_unreadable(answer: SyncResponse) -> bool:
    """Return whether an answer has messages whose keys are missing."""
    rooms = answer.rooms.join.values()
    return any(
        isinstance(event, MegolmEvent) for room in rooms for event in cast("list[Any]", room.timeline.events)
    )


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
