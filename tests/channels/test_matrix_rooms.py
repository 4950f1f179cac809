"""Rooms of Matrix: messages that a synchronisation leaves out, invitations, captions and mentions."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from aiohttp import web

from tests.channels.encrypted_person import open_person, serve_matrix
from tests.channels.fake_matrix import BOT, PASSWORD, TOKEN, FakeMatrix, serve_fake_matrix
from tests.channels.test_matrix_encryption import ANNA, BEN, ROOM, serve_bot
from tests.patience import HANG_SECONDS
from treadle.channels import matrix
from treadle.channels.matrix import Matrix
from treadle.ports.channel import Incoming

GROUP, EVIL = "!group:fake.example", "!evil:fake.example"


class Recorder:
    """A receiver that records what it is given."""

    def __init__(self, cursor: str) -> None:
        self.accepted: list[Incoming] = []
        self.batches: list[int] = []
        self.news = asyncio.Event()
        self._cursor = cursor

    async def accept(self, messages: Sequence[Incoming], cursor: str | None = None) -> None:
        self.accepted += messages
        self.batches.append(len(messages))
        self._cursor = cursor or self._cursor
        self.news.set()

    async def cursor(self) -> str:
        return self._cursor

    async def conversations(self, after: str | None, limit: int) -> Sequence[str]:
        return ()

    def report_connected(self, account: str) -> None: ...

    async def wait_for(self, count: int) -> list[Incoming]:
        async with asyncio.timeout(HANG_SECONDS):
            while len(self.accepted) < count:
                self.news.clear()
                await self.news.wait()
        return self.accepted


async def receive(fake: FakeMatrix, cursor: str, count: int) -> Recorder:
    """Read a number of messages after a position, as a server that was away does."""
    channel = Matrix("matrix", {"homeserver": fake.url, "user": BOT, "access_token": TOKEN})
    recorder = Recorder(cursor)
    await channel.check()
    reading = asyncio.create_task(channel.receive(recorder))
    try:
        await recorder.wait_for(count)
    finally:
        reading.cancel()
        await asyncio.wait([reading])
        await channel.close()
    return recorder


async def test_messages_that_a_synchronisation_leaves_out_are_read() -> None:
    fake = FakeMatrix()
    fake.add_room(ROOM, ANNA)
    fake.add_room(GROUP, ANNA, BEN)
    await fake.write(ANNA, ROOM, "before")
    cursor = str(len(fake.log))
    for number in range(250):
        await fake.write(ANNA, ROOM, f"{number}")
        await fake.write(ANNA, GROUP, f"{BOT}: {number}")
    async with serve_fake_matrix(fake):
        found = (await receive(fake, cursor, 500)).accepted
    for room in (ROOM, GROUP):
        texts = [each.text for each in found if each.conversation == room]
        assert texts == [f"{number}" for number in range(250)], "all of them, once, in order"


async def test_missed_messages_are_held_in_memory_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "MAX_HELD_EVENTS", 100)
    fake = FakeMatrix()
    fake.add_room(ROOM, ANNA)
    cursor = str(len(fake.log))
    for number in range(350):
        await fake.write(ANNA, ROOM, f"{number}")
    async with serve_fake_matrix(fake):
        recorder = await receive(fake, cursor, 350)
    assert [each.text for each in recorder.accepted] == [f"{number}" for number in range(350)]
    assert max(recorder.batches) <= 100


async def test_a_room_whose_history_cannot_be_read_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"errcode": "M_UNKNOWN", "error": "broken room"}, status=500)

    fake = FakeMatrix()
    monkeypatch.setattr(fake, "list_messages", refuse)
    monkeypatch.setattr("treadle.channels.matrix_rooms.REFUSAL_SECONDS", 0.0)
    fake.add_room(ROOM, ANNA)
    fake.add_room(GROUP, ANNA, BEN)
    cursor = str(len(fake.log))
    for number in range(30):
        await fake.write(ANNA, ROOM, f"{number}")
    await fake.write(ANNA, GROUP, f"{BOT}: hello")
    async with serve_fake_matrix(fake):
        found = (await receive(fake, cursor, 11)).accepted
    assert [each.text for each in found] == [*(f"{number}" for number in range(20, 30)), "hello"]


async def test_messages_written_while_the_server_is_stopped_are_answered_in_encrypted_rooms_too(
    tmp_path: Path,
) -> None:
    fake = FakeMatrix()
    fake.add_room(ROOM, ANNA, is_encrypted=True)
    settings = {"homeserver": fake.url, "user": BOT, "password": "{{vault:MATRIX}}"}
    limits = {"messages_per_minute": 1000}
    async with (
        asyncio.timeout(HANG_SECONDS),
        serve_fake_matrix(fake),
        open_person(fake.url, ANNA, PASSWORD, BOT, tmp_path / "anna") as anna,
    ):
        settings["homeserver"] = fake.url
        channel = {"agent": "hero", "settings": settings, "streaming": False, "mode": "queue", "limits": limits}
        async with serve_matrix(tmp_path, channel, PASSWORD, ANNA):
            await anna.write(ROOM, "first")
            await anna.wait_for_text(ROOM, "you said: first")
        for number in range(15):
            await anna.write(ROOM, f"{number}")
        async with serve_matrix(tmp_path, channel, PASSWORD, ANNA):
            said = await anna.wait_for(ROOM, lambda texts: len(texts) == 16)
            assert said[1:] == [f"you said: {number}" for number in range(15)]


@pytest.mark.parametrize("failure", ["hangs", "breaks", "is refused"])
async def test_an_invitation_that_cannot_be_accepted_does_not_stop_the_channel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    joins: list[str] = []

    async def fail(request: web.Request) -> web.Response:
        joins.append(request.match_info["room"])
        if failure == "hangs":
            await asyncio.Event().wait()
        if failure == "breaks" and request.transport is not None:
            request.transport.close()
        return web.Response(status=504, text="<html>gateway timeout</html>")

    fake = FakeMatrix()
    monkeypatch.setattr(fake, "join", fail)
    fake.add_room(ROOM, ANNA)
    fake.add_room(EVIL, BEN, has_bot=False)
    async with asyncio.timeout(HANG_SECONDS), serve_fake_matrix(fake), serve_bot(fake, tmp_path) as engine:
        await fake.invite(EVIL, BOT)
        for text in ("one", "two"):
            await fake.write(ANNA, ROOM, text)
            await fake.wait_for(lambda text=text: f"you said: {text}" in fake.texts(ROOM))
        assert engine.context.channels()._runners["matrix"].status == "connected"
        assert joins == [EVIL]


async def test_many_invitations_of_one_user_do_not_delay_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeMatrix()
    join, tried = fake.join, list[str]()

    async def join_or_hang(request: web.Request) -> web.Response:
        tried.append(request.match_info["room"])
        if request.match_info["room"] != ROOM:
            await asyncio.Event().wait()
        return await join(request)

    monkeypatch.setattr(fake, "join", join_or_hang)
    rooms = [fake.add_room(f"!spam{number}:fake.example", BEN, has_bot=False) for number in range(50)]
    fake.add_room(ROOM, ANNA, has_bot=False)
    async with asyncio.timeout(HANG_SECONDS), serve_fake_matrix(fake), serve_bot(fake, tmp_path):
        for room in (*rooms, ROOM):
            await fake.invite(room, BOT)
        await fake.wait_for(lambda: fake.rooms[ROOM][BOT] == "join")
        await fake.write(ANNA, ROOM, "welcome")
        await fake.wait_for(lambda: "you said: welcome" in fake.texts(ROOM))
        assert len(tried) == 2, "one room of each of the two users"


async def test_the_caption_of_a_file_is_its_text_and_the_display_name_a_mention() -> None:
    fake = FakeMatrix()
    fake.add_room(ROOM, ANNA)
    fake.add_room(GROUP, ANNA, BEN)
    member = next(each for each in fake.log if each.get("room_id") == GROUP and each["state_key"] == BOT)
    member["content"]["displayname"] = "Treadle Bot"
    cursor = str(len(fake.log))
    image = {"msgtype": "m.image", "url": "mxc://fake.example/dog", "info": {"mimetype": "image/png"}}
    await fake.write(ANNA, ROOM, "What breed is it?", **image, filename="dog.png")
    await fake.write(ANNA, ROOM, "dog.png", **image, filename="dog.png")
    await fake.write(ANNA, ROOM, "dog.png", **image)
    mentions = {"m.mentions": {"user_ids": [BOT]}}
    await fake.write(ANNA, GROUP, "Treadle Bot: /stop", **mentions)
    await fake.write(ANNA, GROUP, "Treadle Bot /stop", **mentions)
    await fake.write(ANNA, ROOM, "bot is a short word")
    async with serve_fake_matrix(fake):
        found = (await receive(fake, cursor, 6)).accepted
    direct = [each for each in found if each.conversation == ROOM]
    assert [each.text for each in direct] == ["What breed is it?", "", "", "bot is a short word"]
    assert [file.name for each in direct for file in each.attachments] == ["dog.png"] * 3
    assert [(each.text, each.is_addressed) for each in found if each.conversation == GROUP] == [
        ("/stop", True),
        ("/stop", True),
    ]
