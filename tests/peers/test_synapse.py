"""Matrix, with a real Synapse. `make peers` installs it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.channels.home import write_home
from tests.channels.synapse import PYTHON, serve_synapse
from tests.channels.test_telegram import echo
from tests.engine.running import opened
from treadle.channels.matrix import Matrix
from treadle.domain.channels import Person
from treadle.testing.channels import check_channel

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="Synapse is not installed: make peers")
BOT, ANNA = "@bot:localhost", "@anna:localhost"


def test_people_and_agents_talk_in_rooms(tmp_path: Path) -> None:
    async def story() -> None:
        async with serve_synapse(tmp_path) as synapse:
            await synapse.register("bot")
            token, ben = await synapse.register("anna"), await synapse.register("ben")
            settings = {"homeserver": synapse.url, "user": BOT, "password": "{{vault:MATRIX}}"}
            write_home(tmp_path, {"matrix": {"agent": "hero", "settings": settings}}, {"MATRIX": "password"})
            async with opened(tmp_path, echo()) as engine:
                manager: Any = engine.context.channels()
                person = Person("matrix", ANNA, "Anna", "anna", ("direct", "groups"), 0.0)
                await manager.store.keep_person(person)
                async with manager.run_in_background():
                    room = await synapse.make_room(token, BOT)
                    while await manager.store.cursor("matrix") is None:  # noqa: ASYNC110 -- a row of a database
                        await asyncio.sleep(0.05)
                    await joined(synapse, token, room)
                    await synapse.write(token, room, "1", body="one **two**")
                    await synapse.wait_for_text(token, room, BOT, "you said: one two")
                    stranger = await synapse.make_room(ben, BOT)
                    await joined(synapse, ben, stranger)
                    await synapse.write(ben, stranger, "2", body="let me in")
                    while not (said := await synapse.texts(ben, stranger, BOT)):  # noqa: ASYNC110 -- another process
                        await asyncio.sleep(0.1)
                    assert "pairing code" in said[0]
                    await synapse.write(token, room, "3", body="beep", msgtype="m.notice")
                    await synapse.write(token, room, "4", body="last")
                    said = await synapse.wait_for_text(token, room, BOT, "you said: last")
                    assert said == ["you said: one two", "you said: last"], "notices are not answered"
            assert (await check_contract(synapse, token, room)) is None

    asyncio.run(story())


async def joined(synapse: Any, token: str, room: str) -> None:
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
