"""Matrix, with a real Synapse. `make peers` installs it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.channels.encrypted_person import open_person, serve_matrix
from tests.channels.home import write_home
from tests.channels.synapse import PYTHON, serve_synapse
from tests.channels.test_matrix_encryption import is_signed
from tests.channels.test_sent_files import fill_workspace
from tests.channels.test_telegram import echo
from tests.engine.running import opened
from treadle.channels.matrix import Matrix
from treadle.domain.channels import Person
from treadle.testing.channels import PNG, check_channel

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="Synapse is not installed: make peers")
BOT, ANNA = "@bot:localhost", "@anna:localhost"


async def test_people_and_agents_talk_in_rooms(tmp_path: Path) -> None:
    async with serve_synapse(tmp_path) as synapse:
        await synapse.register("bot")
        token, ben = await synapse.register("anna"), await synapse.register("ben")
        settings = {"homeserver": synapse.url, "user": BOT, "password": "{{vault:MATRIX}}"}
        write_home(tmp_path, {"matrix": {"agent": "hero", "settings": settings}}, {"MATRIX": "password"})
        async with opened(tmp_path, echo()) as engine:
            manager: Any = engine.context.channels()
            person = Person(
                channel="matrix",
                sender=ANNA,
                name="Anna",
                user="anna",
                grants=("direct", "groups"),
                added_at=0.0,
            )
            await manager.store.save_person(person)
            async with manager.run_in_background():
                room = await synapse.make_room(token, BOT)
                while await manager.store.cursor("matrix") is None:  # noqa: ASYNC110 -- a row of a database
                    await asyncio.sleep(0.05)
                await wait_until_joined(synapse, token, room)
                await synapse.write(token, room, "1", body="one **two**")
                await synapse.wait_for_text(token, room, BOT, "you said: one two")
                stranger = await synapse.make_room(ben, BOT)
                await wait_until_joined(synapse, ben, stranger)
                await synapse.write(ben, stranger, "2", body="let me in")
                while not (said := await synapse.texts(ben, stranger, BOT)):  # noqa: ASYNC110 -- another process
                    await asyncio.sleep(0.1)
                assert "pairing code" in said[0]
                await synapse.write(token, room, "3", body="beep", msgtype="m.notice")
                await synapse.write(token, room, "4", body="last")
                said = await synapse.wait_for_text(token, room, BOT, "you said: last")
                assert said == ["you said: one two", "you said: last"], "notices are not answered"
        assert (await check_contract(synapse, token, room)) is None


async def test_people_and_agents_talk_in_encrypted_rooms(tmp_path: Path) -> None:
    fill_workspace(tmp_path)
    async with serve_synapse(tmp_path) as synapse:
        await synapse.register("bot")
        token = await synapse.register("anna")
        settings = {"homeserver": synapse.url, "user": BOT, "password": "{{vault:MATRIX}}"}
        channel = {"agent": "hero", "settings": settings}
        async with serve_matrix(tmp_path, channel, "password", ANNA):
            room = await synapse.make_room(token, BOT, is_encrypted=True)
            await wait_until_joined(synapse, token, room)
            async with open_person(synapse.url, ANNA, "password", BOT, tmp_path / "anna") as anna:
                await anna.write(room, "one **two**")
                await anna.wait_for_text(room, "you said: one two")
                long = "漢" * 3400
                await anna.write(room, long)
                await anna.wait_for_text(room, f"you said: {long}")
                await anna.write(room, "![chart](chart.png)")
                await anna.wait_for_text(room, "chart.png")
                assert await anna.read_file(anna.files[0]) == PNG
                await anna.write_file(room, "notes.txt", b"all about looms")
                await anna.wait_for(room, lambda texts: "all about looms" in texts[-1])
        async with open_person(synapse.url, ANNA, "password", BOT, tmp_path / "anna") as anna:
            await anna.write(room, "are you there?")  # the server is stopped
            async with serve_matrix(tmp_path, channel, "password", ANNA):
                await anna.wait_for_text(room, "you said: are you there?")
        assert await synapse.texts(token, room, BOT) == [], "no text is readable on the server"
        keys = await synapse.call("POST", "/_matrix/client/v3/keys/query", {"device_keys": {BOT: []}}, token)
        [key] = keys["self_signing_keys"][BOT]["keys"].values()
        signed = [is_signed(device, key, BOT) for device in keys["device_keys"][BOT].values()]
        assert signed == [True], "clients that demand it trust the device"


async def test_messages_written_while_the_server_is_stopped_are_answered(tmp_path: Path) -> None:
    """A homeserver shows 10 events of a room at once, and 100 in each further request."""

    async with serve_synapse(tmp_path) as synapse:
        await synapse.register("bot")
        token = await synapse.register("anna")
        settings = {"homeserver": synapse.url, "user": BOT, "password": "{{vault:MATRIX}}"}
        limits = {"messages_per_minute": 1000}
        channel = {"agent": "hero", "settings": settings, "streaming": False, "mode": "queue", "limits": limits}
        async with serve_matrix(tmp_path, channel, "password", ANNA):
            room = await synapse.make_room(token, BOT)
            await wait_until_joined(synapse, token, room)
            await synapse.write(token, room, "0", body="first")
            await synapse.wait_for_text(token, room, BOT, "you said: first")
        wanted = [f"message {number}" for number in range(120)]
        for text in wanted:
            await synapse.write(token, room, text.replace(" ", ""), body=text)
        async with serve_matrix(tmp_path, channel, "password", ANNA):
            said = await synapse.wait_for_text(token, room, BOT, f"you said: {wanted[-1]}")
            assert said[1:] == [f"you said: {text}" for text in wanted]


async def wait_until_joined(synapse: Any, token: str, room: str) -> None:
    async with asyncio.timeout(60):
        path = f"/_matrix/client/v3/rooms/{room}/joined_members"
        while BOT not in (await synapse.call("GET", path, None, token))["joined"]:  # noqa: ASYNC110 -- another process
            await asyncio.sleep(0.05)


async def check_contract(synapse: Any, token: str, room: str) -> None:
    channel = Matrix("matrix", {"homeserver": synapse.url, "user": BOT, "password": "password"})
    await channel.check()

    async def texts() -> Any:
        return await synapse.texts(token, room, BOT)

    await check_channel(channel, room, "!nowhere:localhost", texts)
    await channel.close()
