"""Encrypted rooms of Matrix: with a fake homeserver, and a person whose client is matrix-nio. The same with a real
homeserver is in `tests/peers/test_synapse.py`."""

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from tests.channels.encrypted_person import open_person, serve_matrix
from tests.channels.test_sent_files import fill_workspace
from tests.patience import HANG_SECONDS
from treadle.testing.channels import PNG
from treadle.testing.matrix import BOT, PASSWORD, FakeMatrix, serve_fake_matrix

ANNA, BEN = "@anna:fake.example", "@ben:fake.example"
ROOM = "!room:fake.example"
MAX_EVENT_BYTES = 65_536


def serve_bot(fake: FakeMatrix, folder: Path, *, streaming: bool = False) -> AbstractAsyncContextManager[Any]:
    settings = {"homeserver": fake.url, "user": BOT, "password": "{{vault:MATRIX}}"}
    channel = {"agent": "hero", "settings": settings, "streaming": streaming}
    return serve_matrix(folder, channel, PASSWORD, ANNA, BEN)


def test_people_and_agents_talk_in_an_encrypted_room(tmp_path: Path) -> None:
    async def work() -> None:
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
                await anna.write(ROOM, "are you there?")  # nobody is
                async with serve_bot(fake, tmp_path):
                    await anna.wait_for_text(ROOM, "you said: are you there?")
        kinds = {each["type"] for each in fake.events if each["room_id"] == ROOM and "state_key" not in each}
        assert kinds == {"m.room.encrypted"}
        assert "you said" not in json.dumps(fake.events)
        assert PNG not in [data for _, data in fake.media.values()]
        assert max(len(json.dumps(each)) for each in fake.events) < MAX_EVENT_BYTES
        assert len([each for each in fake.log if each.get("keys_of") == BOT]) == 1, "a restart keeps the device"

    asyncio.run(work())


def test_a_message_that_another_device_encrypted_is_not_accepted(tmp_path: Path) -> None:
    """The homeserver names the sender of a message, and only the keys prove it."""

    async def work() -> None:
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

    asyncio.run(work())


def test_a_server_that_takes_over_reads_what_was_sent_to_its_device_meanwhile(tmp_path: Path) -> None:
    """Two homes are two devices of the account. The position of one must not skip the keys of the other."""

    async def work() -> None:
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
            async with serve_bot(fake, tmp_path / "two"):
                await anna.write(ROOM, "to the second")
                await anna.wait_for_text(ROOM, "you said: to the second")
                position = str(len(fake.log))
            await anna.write(ROOM, "to the first again")
            async with serve_bot(fake, tmp_path / "one") as engine:
                assert await engine.context.channels().store.cursor("matrix") != position
                await anna.wait_for_text(ROOM, "you said: to the first again")
        assert len([each for each in fake.log if each.get("keys_of") == BOT]) == 2

    asyncio.run(work())
