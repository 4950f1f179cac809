"""Matrix, with a fake homeserver. `tests/peers/test_synapse.py` talks to a real one."""

import asyncio
from pathlib import Path
from typing import Any

from tests.channels.fake_matrix import BOT, PASSWORD, FakeMatrix, serve_fake_matrix
from tests.channels.home import write_home
from tests.channels.test_sent_files import READER, fill_workspace
from tests.channels.test_telegram import echo
from tests.engine.running import opened
from tests.patience import HANG_SECONDS
from treadle.channels.matrix import Matrix
from treadle.domain.channels import Person
from treadle.ports.channel import IncomingFile
from treadle.ports.channel_store import ChannelStore
from treadle.testing.channels import PNG, check_channel
from treadle.testing.models import FunctionModel, ScriptedModel, say

ANNA, BEN = "@anna:fake.example", "@ben:fake.example"
ROOM, GROUP = "!room:fake.example", "!group:fake.example"


async def test_matrix_keeps_the_contract_of_channels() -> None:
    fake = FakeMatrix()
    fake.add_room(ROOM, ANNA)
    async with serve_fake_matrix(fake):
        channel = Matrix("matrix", {"homeserver": fake.url, "user": BOT, "password": PASSWORD})
        await channel.check()

        async def texts() -> list[str]:
            return fake.texts(ROOM)

        await check_channel(channel, ROOM, "!nowhere:fake.example", texts)
        assert fake.texts(ROOM)[-1] == "chart.png"
        assert list(fake.media.values()) == [("image/png", PNG)]
        assert await channel.fetch(IncomingFile("mxc://fake.example/media0"), 1000) == PNG
        await channel.close()


async def test_messages_in_rooms_and_groups_and_their_files_are_answered(tmp_path: Path) -> None:
    fake = FakeMatrix()
    fake.add_room(ROOM, ANNA)
    fake.add_room(GROUP, ANNA, BEN)
    async with asyncio.timeout(HANG_SECONDS), serve_fake_matrix(fake):
        settings = {"homeserver": fake.url, "user": BOT, "password": "{{vault:MATRIX}}"}
        channels = {"matrix": {"agent": "hero", "settings": settings, "streaming": False}}
        write_home(tmp_path, channels, {"MATRIX": PASSWORD}, READER)
        fill_workspace(tmp_path)
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
                while await manager.store.cursor("matrix") is None:  # noqa: ASYNC110 -- a row of a database
                    await asyncio.sleep(0.01)
                await converse(fake, manager.store)


async def converse(fake: FakeMatrix, store: ChannelStore) -> None:
    await fake.write(ANNA, ROOM, "![chart](chart.png)")
    await fake.wait_for(lambda: fake.texts(ROOM) == ["you said: chart", "chart.png"])
    await fake.write(ANNA, GROUP, "not for you")
    await fake.write(ANNA, GROUP, f"{BOT}: hello")
    [answer] = await fake.wait_for(lambda: bot_events(fake, GROUP))
    assert fake.texts(GROUP) == ["you said: anna: hello"]
    sent = {"message_id": answer["event_id"], "conversation": GROUP}
    while await store.find_sent("matrix", **sent) is None:  # noqa: ASYNC110 -- a row of a database
        await asyncio.sleep(0.01)
    relation = {"m.in_reply_to": {"event_id": answer["event_id"]}}
    await fake.write(BEN, GROUP, "me too", **{"m.relates_to": relation})
    await fake.write(ANNA, GROUP, "and a reply", **{"m.relates_to": relation})
    await fake.wait_for(lambda: len(fake.texts(GROUP)) == 2)
    assert fake.texts(GROUP)[-1] == "you said: anna: and a reply"
    await fake.invite(ROOM, BEN)
    await fake.write(ANNA, ROOM, "is anyone else here?")
    await fake.write(ANNA, ROOM, f"{BOT} now a group")
    await fake.wait_for(lambda: fake.texts(ROOM)[-1] == "you said: anna: now a group")
    assert len(fake.texts(ROOM)) == 3


def bot_events(fake: FakeMatrix, room_id: str) -> list[dict[str, Any]]:
    found = [each for each in fake.events if (each["room_id"], each["sender"]) == (room_id, BOT)]
    return [each for each in found if each["type"] == "m.room.message"]


async def test_a_message_whose_key_is_missing_is_answered_with_the_reason(tmp_path: Path) -> None:
    fake = FakeMatrix()
    fake.add_room(ROOM, ANNA)
    fake.add_room(GROUP, ANNA, BEN)
    async with asyncio.timeout(HANG_SECONDS), serve_fake_matrix(fake):
        settings = {"homeserver": fake.url, "user": BOT, "password": "{{vault:MATRIX}}"}
        write_home(tmp_path, {"matrix": {"agent": "hero", "settings": settings}}, {"MATRIX": PASSWORD})
        async with opened(tmp_path, ScriptedModel()) as engine:  # any call of the model would fail
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
                while await manager.store.cursor("matrix") is None:  # noqa: ASYNC110 -- a row of a database
                    await asyncio.sleep(0.01)
                for room in (GROUP, ROOM):
                    await fake.write_encrypted(ANNA, room)
                [text] = await fake.wait_for(lambda: fake.texts(ROOM))
                assert "its key has not reached me" in text
                assert fake.texts(GROUP) == []
                assert await engine.context.service.runs() == []


async def test_a_rate_limited_request_is_retried_after_the_requested_time(tmp_path: Path) -> None:
    fake = FakeMatrix()
    fake.add_room(ROOM, ANNA)
    fake.errors = [(429, {"errcode": "M_LIMIT_EXCEEDED", "error": "slow down", "retry_after_ms": 100})]
    async with asyncio.timeout(HANG_SECONDS), serve_fake_matrix(fake):
        settings = {"homeserver": fake.url, "user": BOT, "password": "{{vault:MATRIX}}"}
        channels = {"matrix": {"agent": "hero", "settings": settings}}
        write_home(tmp_path, channels, {"MATRIX": PASSWORD})
        async with opened(tmp_path, FunctionModel(lambda _: say("patience"))) as engine:
            manager: Any = engine.context.channels()
            await manager.store.save_person(
                Person(channel="matrix", sender=ANNA, name="Anna", user="anna", grants=("direct",), added_at=0.0)
            )
            async with manager.run_in_background():
                while await manager.store.cursor("matrix") is None:  # noqa: ASYNC110 -- a row of a database
                    await asyncio.sleep(0.01)
                await fake.write(ANNA, ROOM, "hi")
                await fake.wait_for(lambda: fake.texts(ROOM) == ["patience"])
