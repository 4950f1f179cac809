"""Encrypted rooms of Matrix: with a fake homeserver, and a person whose client is matrix-nio. The same with a real
homeserver is in `tests/peers/test_synapse.py`."""

import asyncio
import hmac
import json
from base64 import b64encode
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import vodozemac
from aiohttp import web
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from nio import Api  # pyright: ignore[reportMissingTypeStubs]

from tests.channels.encrypted_person import open_person, serve_matrix
from tests.channels.fake_matrix import BOT, PASSWORD, TOKEN, FakeMatrix, serve_fake_matrix
from tests.channels.test_sent_files import fill_workspace
from tests.patience import HANG_SECONDS
from treadle.channels.matrix import Matrix
from treadle.channels.matrix_identity import SELF_SIGNING, decode_recovery_key
from treadle.ports.channel import ChannelError
from treadle.testing.channels import PNG

ANNA, BEN = "@anna:fake.example", "@ben:fake.example"
ROOM = "!room:fake.example"
MAX_EVENT_BYTES = 65_536
RECOVERY_KEY = "EsTc LW2K PGiF wKEA 3As5 g5c4 BXwk qeeJ ZJV8 Q9fu gUMN UE4d"


def serve_bot(
    fake: FakeMatrix, folder: Path, *, streaming: bool = False, cursor: str | None = None
) -> AbstractAsyncContextManager[Any]:
    settings = {"homeserver": fake.url, "user": BOT, "password": "{{vault:MATRIX}}"}
    channel = {"agent": "hero", "settings": settings, "streaming": streaming}
    return serve_matrix(folder, channel, PASSWORD, ANNA, BEN, cursor=cursor)


async def test_people_and_agents_talk_in_an_encrypted_room(tmp_path: Path) -> None:
    fake = FakeMatrix()
    fake.add_room(ROOM, ANNA, is_encrypted=True)
    fill_workspace(tmp_path)
    async with asyncio.timeout(HANG_SECONDS), serve_fake_matrix(fake):
        async with (
            serve_bot(fake, tmp_path, streaming=True),
            open_person(fake.url, ANNA, PASSWORD, BOT, tmp_path / "anna") as anna,
        ):
            await anna.write(ROOM, "one **two**")
            await anna.wait_for_text(ROOM, "you said: one two")
            long = "漢" * 3400
            await anna.write(ROOM, long)
            await anna.wait_for_text(ROOM, f"you said: {long}")
            await anna.write(ROOM, "![chart](chart.png)")
            await anna.wait_for_text(ROOM, "chart.png")
            [image] = anna.files
            assert await anna.read_file(image) == PNG
            await anna.write_file(ROOM, "notes.txt", b"all about looms")
            await anna.wait_for(ROOM, lambda texts: "all about looms" in texts[-1])
        async with open_person(fake.url, ANNA, PASSWORD, BOT, tmp_path / "anna") as anna:
            await anna.write(ROOM, "are you there?")  # the server is stopped
            async with serve_bot(fake, tmp_path):
                await anna.wait_for_text(ROOM, "you said: are you there?")
    kinds = {each["type"] for each in fake.events if each["room_id"] == ROOM and "state_key" not in each}
    assert kinds == {"m.room.encrypted"}
    assert "you said" not in json.dumps(fake.events)
    assert PNG not in [data for _, data in fake.media.values()]
    assert max(len(json.dumps(each)) for each in fake.events) < MAX_EVENT_BYTES
    devices = fake.keys.query({"device_keys": {BOT: []}})["device_keys"][BOT]
    assert len(devices) == 1, "a restart keeps the device"


async def test_a_message_that_another_device_encrypted_is_not_accepted(tmp_path: Path) -> None:
    """The homeserver names the sender of a message, and only the keys prove it."""

    fake = FakeMatrix()
    fake.add_room(ROOM, ANNA, is_encrypted=True)
    async with (
        asyncio.timeout(HANG_SECONDS),
        serve_fake_matrix(fake),
        serve_bot(fake, tmp_path) as engine,
        open_person(fake.url, ANNA, PASSWORD, BOT, tmp_path / "anna") as anna,
    ):
        await anna.write(ROOM, "first")
        await anna.wait_for_text(ROOM, "you said: first")
        fake.relabel = (ANNA, BEN)
        await anna.write(ROOM, "send me the keys")
        fake.relabel = None
        await anna.write(ROOM, "last")
        await anna.wait_for_text(ROOM, "you said: last")
        assert anna.texts(ROOM) == ["you said: first", "you said: last"]
        assert len(await engine.context.service.runs()) == 2


async def test_a_server_that_takes_over_reads_messages_sent_to_its_device_meanwhile(tmp_path: Path) -> None:
    """Two homes are two devices of the account. The position of one must not skip the keys of the other."""

    fake = FakeMatrix()
    fake.add_room(ROOM, ANNA, is_encrypted=True)
    async with (
        asyncio.timeout(HANG_SECONDS),
        serve_fake_matrix(fake),
        open_person(fake.url, ANNA, PASSWORD, BOT, tmp_path / "anna") as anna,
    ):
        async with serve_bot(fake, tmp_path / "one"):
            await anna.write(ROOM, "to the first")
            await anna.wait_for_text(ROOM, "you said: to the first")
        [device] = fake.keys.query({"device_keys": {BOT: []}})["device_keys"][BOT]
        await fake.write_to_device(ANNA, BOT, device, 250)  # more than one answer of a homeserver has
        async with serve_bot(fake, tmp_path / "two"):
            await anna.write(ROOM, "to the second")
            await anna.wait_for_text(ROOM, "you said: to the second")
            position = str(len(fake.log))
        await anna.write(ROOM, "to the first again")
        async with serve_bot(fake, tmp_path / "one", cursor=position):
            await anna.wait_for_text(ROOM, "you said: to the first again")
    assert len(fake.keys.query({"device_keys": {BOT: []}})["device_keys"][BOT]) == 2


def test_a_recovery_key_is_decoded() -> None:
    """The key and its bytes are an example of the public clients."""
    shown = RECOVERY_KEY
    wanted = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"
    assert decode_recovery_key(shown).hex() == wanted
    assert decode_recovery_key(shown.replace(" ", "")).hex() == wanted
    for wrong, reason in (
        (shown[:-1] + "e", "not complete"),
        (shown[:-5], "not complete"),
        ("", "not complete"),
        (shown.replace("T", "0"), "character `0`"),
        (shown * 3, "not complete"),
    ):
        with pytest.raises(ChannelError, match=reason):
            decode_recovery_key(wrong)


async def test_the_device_is_signed_by_the_identity_of_its_account(tmp_path: Path) -> None:
    """An account without an identity gets one. Another device needs the recovery key of the account."""

    fake = FakeMatrix()
    settings = {"homeserver": fake.url, "user": BOT, "password": PASSWORD}
    async with serve_fake_matrix(fake):
        settings["homeserver"] = fake.url
        assert await check(settings, tmp_path / "one") == BOT
        assert await check(settings, tmp_path / "one") == BOT, "the identity is kept"
        assert count_signed(fake) == (1, 1)
        assert "`recovery_key`" in await check(settings, tmp_path / "two")
        assert count_signed(fake) == (1, 2)
        store_secret(fake, json.loads((tmp_path / "one" / "identity").read_text())["self_signing"])
        assert await check({**settings, "recovery_key": RECOVERY_KEY}, tmp_path / "two") == BOT
        assert count_signed(fake) == (2, 2)
        fake.account_data[SELF_SIGNING]["encrypted"]["k"]["mac"] = "AAAA"
        with pytest.raises(ChannelError, match="does not belong to the account"):
            await check({**settings, "recovery_key": RECOVERY_KEY}, tmp_path / "three")
        fake.keys.identities.clear()
        token = {"homeserver": fake.url, "user": BOT, "access_token": TOKEN}
        assert "only with its password" in await check(token, tmp_path / "three")


async def test_device_keys_that_the_homeserver_invents_are_not_signed(tmp_path: Path) -> None:
    """A homeserver that lies would read the messages with keys of its own."""

    fake = FakeMatrix()
    async with serve_fake_matrix(fake):
        settings = {"homeserver": fake.url, "user": BOT, "password": PASSWORD}
        assert await check(settings, tmp_path / "one") == BOT
        [device] = fake.keys.query({"device_keys": {BOT: []}})["device_keys"][BOT].values()
        name = f"curve25519:{device['device_id']}"
        device["keys"][name] = device["keys"][name][::-1]
        device["signatures"] = {}
        with pytest.raises(ChannelError, match="other encryption keys"):
            await check(settings, tmp_path / "one")
        assert device["signatures"] == {}
        device["keys"][name] = device["keys"][name][::-1]
        token = {"homeserver": fake.url, "user": BOT, "access_token": TOKEN}
        before = json.dumps(device)
        with pytest.raises(ChannelError, match="no other program uses"):  # the device of the folder `one`
            await check(token, tmp_path / "two")
        assert json.dumps(device) == before


async def test_a_homeserver_without_cross_signing_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"errcode": "M_UNRECOGNIZED", "error": "Unrecognized request"}, status=404)

    fake = FakeMatrix()
    monkeypatch.setattr(fake, "upload_identity", refuse)
    async with serve_fake_matrix(fake):
        settings = {"homeserver": fake.url, "user": BOT, "password": PASSWORD}
        assert "(Unrecognized request)" in await check(settings, tmp_path / "one")


async def check(settings: dict[str, Any], folder: Path) -> str:
    """Return the account, or what limits its connection."""
    await asyncio.to_thread(folder.mkdir, exist_ok=True)
    channel = Matrix("matrix", settings)
    channel.use_folder(folder)
    try:
        account = await channel.check()
        return channel.limitation or account
    finally:
        await channel.close()


def count_signed(fake: FakeMatrix) -> tuple[int, int]:
    """Return how many devices of the bot are signed, as another library sees it, and how many there are."""
    found = fake.keys.query({"device_keys": {BOT: []}})
    [key] = found["self_signing_keys"][BOT]["keys"].values()
    devices = list(found["device_keys"][BOT].values())
    return sum(is_signed(device, key) for device in devices), len(devices)


def is_signed(device: dict[str, Any], key: str, user: str = BOT) -> bool:
    signature = device["signatures"][user].get(f"ed25519:{key}")
    content = {name: value for name, value in device.items() if name not in ("signatures", "unsigned")}
    if signature is None:
        return False
    public = vodozemac.Ed25519PublicKey.from_base64(key)
    public.verify_signature(
        Api.to_canonical_json(content).encode(), vodozemac.Ed25519Signature.from_base64(signature)
    )
    return True


def store_secret(fake: FakeMatrix, seed: str) -> None:
    """Store a key as clients do, so that the recovery key opens it."""
    derived = HKDF(SHA256(), 64, bytes(32), SELF_SIGNING.encode()).derive(decode_recovery_key(RECOVERY_KEY))
    encryptor = Cipher(AES(derived[:32]), CTR(bytes(16))).encryptor()
    ciphertext = encryptor.update(seed.encode()) + encryptor.finalize()
    mac = hmac.digest(derived[32:], ciphertext, "sha256")
    secret = {name: b64encode(value).decode() for name, value in (("ciphertext", ciphertext), ("mac", mac))}
    fake.account_data["m.secret_storage.default_key"] = {"key": "k"}
    fake.account_data[SELF_SIGNING] = {"encrypted": {"k": {**secret, "iv": b64encode(bytes(16)).decode()}}}
