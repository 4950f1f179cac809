"""A homeserver that lies about encrypted rooms of Matrix, and files that are damaged."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.channels.encrypted_person import open_person
from tests.channels.fake_matrix import BOT, PASSWORD, FakeMatrix, serve_fake_matrix
from tests.channels.test_matrix_encryption import ANNA, RECOVERY_KEY, ROOM, check, serve_bot, store_secret
from tests.patience import HANG_SECONDS
from treadle.channels.matrix import Matrix
from treadle.ports.channel import ChannelError, Outgoing, OutgoingFile
from treadle.testing.channels import PNG


def make_room() -> FakeMatrix:
    fake = FakeMatrix()
    fake.add_room(ROOM, ANNA, is_encrypted=True)
    return fake


def hide_encryption(fake: FakeMatrix) -> None:
    for event in fake.events:
        if event["type"] == "m.room.encryption":
            event["type"] = "m.room.hidden"


async def write_and_wait(anna: Any, text: str) -> None:
    await anna.write(ROOM, text)
    await anna.wait_for_text(ROOM, f"you said: {text}")


async def test_clear_text_in_an_encrypted_room_is_not_accepted(tmp_path: Path) -> None:
    fake = make_room()
    async with (
        asyncio.timeout(HANG_SECONDS),
        serve_fake_matrix(fake),
        open_person(fake.url, ANNA, PASSWORD, BOT, tmp_path / "anna") as anna,
    ):
        async with serve_bot(fake, tmp_path) as engine:
            await write_and_wait(anna, "first")
            await fake.write(ANNA, ROOM, "send me the keys")
            await write_and_wait(anna, "second")
            assert len(await engine.context.service.runs()) == 2
        hide_encryption(fake)
        async with serve_bot(fake, tmp_path) as engine:
            await fake.write(ANNA, ROOM, "send me the keys")
            await write_and_wait(anna, "third")
            assert len(await engine.context.service.runs()) == 3
        assert anna.texts(ROOM) == [f"you said: {text}" for text in ("first", "second", "third")]


async def test_a_message_that_is_delivered_again_as_another_one_is_not_accepted(tmp_path: Path) -> None:
    fake = make_room()
    async with (
        asyncio.timeout(HANG_SECONDS),
        serve_fake_matrix(fake),
        open_person(fake.url, ANNA, PASSWORD, BOT, tmp_path / "anna") as anna,
    ):
        async with serve_bot(fake, tmp_path):
            await write_and_wait(anna, "pay 100")
            kinds = [(each["type"], each["sender"]) for each in fake.events]
            paid = fake.events[kinds.index(("m.room.encrypted", ANNA))]
            await fake.replay(paid)
            await write_and_wait(anna, "second")
        await fake.replay(paid)
        async with serve_bot(fake, tmp_path) as engine:
            await fake.replay(paid)
            await write_and_wait(anna, "third")
            assert len(await engine.context.service.runs()) == 3
        assert anna.texts(ROOM) == [f"you said: {text}" for text in ("pay 100", "second", "third")]


def count_rows(folder: Path, file: str, table: str) -> int:
    path = folder / "home" / "channels" / "matrix" / file
    with closing(sqlite3.connect(path)) as database:
        return database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608 -- a name of this test


async def test_old_records_are_deleted_and_their_messages_are_still_not_accepted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = make_room()
    async with (
        asyncio.timeout(HANG_SECONDS),
        serve_fake_matrix(fake),
        open_person(fake.url, ANNA, PASSWORD, BOT, tmp_path / "anna") as anna,
    ):
        async with serve_bot(fake, tmp_path):
            for text in ("pay 100", "second", "third"):
                await write_and_wait(anna, text)
        kinds = [(each["type"], each["sender"]) for each in fake.events]
        paid = fake.events[kinds.index(("m.room.encrypted", ANNA))]
        keys = count_rows(tmp_path, "keys.db", "megolminboundsessions")
        assert count_rows(tmp_path, "decrypted.db", "decrypted") > keys
        monkeypatch.setattr("treadle.channels.runner.RETENTION_SECONDS", -60.0)
        async with serve_bot(fake, tmp_path) as engine:
            await fake.replay(paid)
            await write_and_wait(anna, "fourth")  # the key opens what comes later
            assert len(await engine.context.service.runs()) == 4
        assert anna.texts(ROOM).count("you said: pay 100") == 1
        async with serve_bot(fake, tmp_path) as engine:
            await fake.replay(paid)
            await write_and_wait(anna, "fifth")
            assert len(await engine.context.service.runs()) == 5
            keys = count_rows(tmp_path, "keys.db", "megolminboundsessions")
            left = count_rows(tmp_path, "decrypted.db", "decrypted")
            assert left <= keys + 2, "the last one of each key, and those since the cleaning"
        monkeypatch.setattr("treadle.channels.matrix_device.UNUSED_SECONDS", -120.0)
        async with serve_bot(fake, tmp_path):
            while count_rows(tmp_path, "decrypted.db", "decrypted"):  # noqa: ASYNC110 -- rows of a database
                await asyncio.sleep(0.01)
            assert count_rows(tmp_path, "keys.db", "megolminboundsessions") == 0


async def test_a_room_that_was_encrypted_stays_encrypted(tmp_path: Path) -> None:
    async def send(fake: FakeMatrix, key: str) -> None:
        """Send before the first synchronisation, as after a restart."""
        channel = Matrix("matrix", {"homeserver": fake.url, "user": BOT, "password": PASSWORD})
        channel.use_folder(tmp_path)
        await channel.check()
        await channel.send(Outgoing(key, ROOM, "secret report"))
        await channel.send(Outgoing(f"{key}/file", ROOM, "", files=(OutgoingFile("a.png", "image/png", PNG),)))
        await channel.close()

    async def scenario() -> None:
        fake = make_room()
        async with asyncio.timeout(HANG_SECONDS), serve_fake_matrix(fake):
            await send(fake, "one")
            hide_encryption(fake)
            await send(fake, "two")
        sent = [each["type"] for each in fake.events if each["sender"] == BOT and "state_key" not in each]
        assert sent == ["m.room.encrypted"] * 4
        assert PNG not in [data for _, data in fake.media.values()]

    await scenario()


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("keys.db", "garbage", "the encryption keys cannot be read: "),
        ("decrypted.db", "garbage" * 100, "the encryption keys cannot be read: "),
        ("device", "\u1234", "device is damaged"),
        ("identity", "{}", "identity is damaged"),
        ("identity", '{"master": "a", "self_signing": "b", "user_signing": "c"}', "identity is damaged"),
    ],
)
async def test_a_damaged_file_is_named(tmp_path: Path, name: str, content: str, reason: str) -> None:
    fake = FakeMatrix()
    async with serve_fake_matrix(fake):
        settings = {"homeserver": fake.url, "user": BOT, "password": PASSWORD}
        assert await check(settings, tmp_path) == BOT
        (tmp_path / name).write_text(content)
        with pytest.raises((ChannelError, ValueError), match=reason):
            await check(settings, tmp_path)


async def test_the_recovery_key_replaces_a_damaged_identity(tmp_path: Path) -> None:
    fake = FakeMatrix()
    async with serve_fake_matrix(fake):
        settings = {"homeserver": fake.url, "user": BOT, "password": PASSWORD}
        assert await check(settings, tmp_path) == BOT
        store_secret(fake, json.loads((tmp_path / "identity").read_text())["self_signing"])
        (tmp_path / "identity").write_text("{}")
        assert await check({**settings, "recovery_key": RECOVERY_KEY}, tmp_path) == BOT


async def test_a_homeserver_that_answers_no_object_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response(["no"], status=500)

    fake = FakeMatrix()
    monkeypatch.setattr(fake, "query_keys", answer)
    async with serve_fake_matrix(fake):
        with pytest.raises(ChannelError, match="status 500 without an object"):
            await check({"homeserver": fake.url, "user": BOT, "password": PASSWORD}, tmp_path)
