"""Slack: what was written while no server was connected is read in the background, from all conversations."""

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from tests.channels.fake_slack import APP_TOKEN, BOT_USER, TOKEN, FakeSlack, serve_fake_slack
from tests.channels.home import write_home
from tests.channels.test_slack import ANNA
from tests.channels.test_telegram import echo
from tests.engine.running import opened
from tests.patience import HANG_SECONDS
from treadle.channels.slack_history import SlackPosition
from treadle.domain.channels import Person
from treadle.ports.channel import Incoming

BEN = Person(channel="slack", sender="UBEN", name="Ben", user="slack|UBEN", grants=("direct",), added_at=0.0)
MANY = [f"C{number}" for number in range(100, 165)]
OF_EACH_KIND = (*MANY, "G1", "GM1")
"""Public channels, a private one, and a direct message of a group."""


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.channels.slack_history.PACE_SECONDS", 0.0)


def write_slack_home(folder: Path, fake: FakeSlack) -> None:
    settings = {"token": "{{vault:BOT}}", "app_token": "{{vault:APP}}", "url": fake.url}
    limits = {"messages_per_minute": 1000}
    channel = {"agent": "hero", "settings": settings, "streaming": False, "mode": "queue", "limits": limits}
    write_home(folder, {"slack": channel}, {"BOT": TOKEN, "APP": APP_TOKEN})


class RecordingSlack(FakeSlack):
    """Slack that records which histories are read from when, and answers only `most` of these requests."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[tuple[str, str]] = []
        self.most = 1_000_000

    async def answer(self, request: web.Request) -> web.Response:
        if request.match_info["method"] == "conversations.history":
            values = dict(await request.post())
            if len(self.read) >= self.most:
                async with self._changed:
                    self._changed.notify_all()
                await asyncio.Event().wait()
            self.read.append((str(values["channel"]), str(values["oldest"])))
        return await super().answer(request)


async def test_messages_written_while_no_server_was_connected_are_read(tmp_path: Path) -> None:
    fake = FakeSlack()
    async with asyncio.timeout(HANG_SECONDS), serve_fake_slack(fake):
        settings = {"token": "{{vault:BOT}}", "app_token": "{{vault:APP}}", "url": fake.url}
        limits = {"messages_per_minute": 1000}
        channel = {"agent": "hero", "settings": settings, "streaming": False, "mode": "queue", "limits": limits}
        write_home(tmp_path, {"slack": channel}, {"BOT": TOKEN, "APP": APP_TOKEN})
        async with opened(tmp_path, echo()) as engine:
            manager: Any = engine.context.channels()
            await manager.store.save_person(ANNA)
            async with manager.run_in_background():
                await fake.write("UANNA", "hello")
                thread = await fake.write("UANNA", f"<@{BOT_USER}> in a channel", channel="C1")
                await fake.wait_for(lambda: fake.texts("DUANNA") and fake.texts("C1"))
                await fake.wait_for(lambda: not fake.unacknowledged)
            wanted = [f"message {number}" for number in range(40)]
            for text in wanted:
                await fake.write("UANNA", text, is_lost=True)
            reply = {"thread_ts": thread, "parent_user_id": BOT_USER}
            await fake.write("UANNA", "not for the bot", channel="C1", is_lost=True)
            await fake.write("UANNA", "and then?", channel="C1", is_lost=True, **reply)
            await fake.write("UANNA", f"<@{BOT_USER}> again", channel="C1", is_lost=True)
            fake.errors["conversations.history"] = [
                (429, {"ok": False, "error": "ratelimited"}, {"Retry-After": "0"})
            ]
            async with manager.run_in_background():
                await fake.write("UANNA", "live")
                await fake.wait_for(lambda: "you said: live" in fake.texts("DUANNA"))
                said = [f"you said: {text}" for text in ("hello", *wanted, "live")]
                assert fake.texts("DUANNA") == said, "all of them, once, in order"
                await fake.wait_for(lambda: len(fake.texts("C1")) == 3)
                assert "and then?" in "".join(fake.texts("C1"))
                assert "not for the bot" not in "".join(fake.texts("C1"))


async def test_messages_of_conversations_that_were_never_used_are_read(tmp_path: Path) -> None:
    fake = FakeSlack()
    async with asyncio.timeout(HANG_SECONDS), serve_fake_slack(fake):
        write_slack_home(tmp_path, fake)
        async with opened(tmp_path, echo()) as engine:
            manager: Any = engine.context.channels()
            await manager.store.save_person(ANNA)
            await manager.store.save_person(BEN)
            async with manager.run_in_background():
                await fake.write("UANNA", "hello")
                await fake.wait_for(lambda: fake.texts("DUANNA"))
                await fake.wait_for(lambda: not fake.unacknowledged)
            for place in OF_EACH_KIND:
                await fake.write("UANNA", f"<@{BOT_USER}> in {place}", channel=place, is_lost=True)
            begun = await fake.write("UCARL", "a thread of others", channel="C9", is_lost=True)
            await fake.write("UANNA", f"<@{BOT_USER}> reply", channel="C9", is_lost=True, thread_ts=begun)
            await fake.write("UBEN", "one", is_lost=True)
            async with manager.run_in_background():
                await fake.write("UBEN", "two")
                await fake.wait_for(lambda: all(fake.texts(place) for place in (*OF_EACH_KIND, "C9")))
                await fake.wait_for(lambda: len(fake.texts("DUBEN")) == 2)
                await fake.wait_for(lambda: not fake.unacknowledged)
            assert fake.texts("DUBEN") == ["you said: one", "you said: two"], "a new message waits"
            assert [len(fake.texts(place)) for place in OF_EACH_KIND] == [1] * len(OF_EACH_KIND)
            [answer] = [each for each in fake.sent if each["channel"] == "C9"]
            assert answer["thread_ts"] == begun


async def test_the_next_server_continues_at_the_last_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.channels.slack_history.OVERLAP_SECONDS", 0.0)

    fake = RecordingSlack()
    async with asyncio.timeout(HANG_SECONDS), serve_fake_slack(fake):
        write_slack_home(tmp_path, fake)
        async with opened(tmp_path, echo()) as engine:
            manager: Any = engine.context.channels()
            await manager.store.save_person(ANNA)
            began = fake._next()  # pyright: ignore[reportPrivateUsage]
            await manager.store.receive("slack", [], f'{{"seen": "{began}"}}', 0.0)
            for place in MANY:
                await fake.write("UANNA", f"<@{BOT_USER}> in {place}", channel=place, is_lost=True)
            fake.most = 40
            async with manager.run_in_background():
                await fake.wait_for(lambda: len(fake.read) == fake.most)
                await fake.wait_for(lambda: sum(1 for place in MANY if fake.texts(place)) >= 39)
            fake.most, before = 1_000_000, list(fake.read)
            assert {since for _, since in before} == {began}
            async with manager.run_in_background():
                await fake.wait_for(lambda: all(fake.texts(place) for place in MANY))
                while SlackPosition(await manager.store.cursor("slack")).gaps:  # noqa: ASYNC110 -- a row
                    await asyncio.sleep(0.01)
            assert [len(fake.texts(place)) for place in MANY] == [1] * len(MANY), "once"
            again = {place for place, since in fake.read[40:] if since == began}
            done = {place for place, _ in before[:38]}
            assert not again & done, "what was read before is read from the second gap on only"
            assert {place for place, _ in fake.read[40:]} == set(MANY)


def test_the_position_stays_small_and_does_not_go_back_too_far() -> None:
    now = time.time()
    position = SlackPosition('{"seen": "7.0"}')
    for _ in range(10):
        position.open_gap(now)
    assert len(position.gaps) == 4
    assert float(position.gaps[0].since) >= now - 29 * 86_400 - 1, "older messages could be answered twice"
    fresh = SlackPosition(None)
    fresh.open_gap(now)
    assert not fresh.gaps, "nothing was missed before the first connection"
    fresh.note(Incoming(f"C1/{now + 5:.6f}", "C1", "U1", is_addressed=False))
    assert fresh.seen == f"{now:.6f}", "not every message of others is noted"
    assert msgspec.json.decode(fresh.encode())["seen"] == fresh.seen


async def test_a_history_that_may_not_be_read_does_not_stop_the_channel(tmp_path: Path) -> None:
    fake = FakeSlack()
    async with asyncio.timeout(HANG_SECONDS), serve_fake_slack(fake):
        settings = {"token": "{{vault:BOT}}", "app_token": "{{vault:APP}}", "url": fake.url}
        write_home(tmp_path, {"slack": {"agent": "hero", "settings": settings}}, {"BOT": TOKEN, "APP": APP_TOKEN})
        async with opened(tmp_path, echo()) as engine:
            manager: Any = engine.context.channels()
            await manager.store.save_person(ANNA)
            await manager.store.receive("slack", [], f'{{"seen": "{time.time():.6f}"}}', 0.0)
            await manager.store.receive("slack", [Incoming("m", "C9", "UANNA")], None, 0.0)
            await fake.write("UANNA", "lost", is_lost=True)
            refused = {"ok": False, "error": "missing_scope", "needed": "im:history"}
            fake.errors["users.conversations"] = [(200, refused, {})]
            fake.errors["conversations.history"] = [(200, {"ok": False, "error": "channel_not_found"}, {})]
            async with manager.run_in_background():
                await fake.write("UANNA", "hello")
                # What was lost is read too if the message comes before all lists have been tried.
                await fake.wait_for(lambda: fake.texts("DUANNA")[-1:] == ["you said: hello"])
