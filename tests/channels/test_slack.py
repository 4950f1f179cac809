"""Slack: direct messages, threads, buttons, Socket Mode that delivers again, and the Web API's errors."""

import asyncio
from pathlib import Path
from typing import Any

from tests.channels.home import write_home
from tests.channels.test_telegram import echo
from tests.engine.running import opened
from treadle.channels.slack import Slack
from treadle.domain.channels import Person
from treadle.ports.channel import Incoming
from treadle.testing.channels import check_channel
from treadle.testing.slack import APP_TOKEN, BOT_USER, TOKEN, FakeSlack, serve_fake_slack

ANNA = Person("slack", "UANNA", "Anna", "slack|UANNA", ("direct", "groups"), 0.0)


def test_it_keeps_the_contract() -> None:
    async def story() -> None:
        fake = FakeSlack()
        async with serve_fake_slack(fake):
            channel = Slack("slack", {"token": TOKEN, "app_token": APP_TOKEN, "url": fake.url})

            async def texts() -> list[str]:
                return fake.texts("C1")

            await check_channel(channel, "C1", "nowhere", texts)
            await channel.close()

    asyncio.run(story())


def test_people_are_answered_in_direct_messages_and_threads(tmp_path: Path) -> None:
    async def story() -> None:
        fake = FakeSlack()
        async with serve_fake_slack(fake):
            settings = {"token": "{{vault:BOT}}", "app_token": "{{vault:APP}}", "url": fake.url}
            write_home(
                tmp_path, {"slack": {"agent": "hero", "settings": settings}}, {"BOT": TOKEN, "APP": APP_TOKEN}
            )
            async with opened(tmp_path, echo()) as engine:
                manager: Any = engine.context.channels()
                await manager.store.keep_person(ANNA)
                async with manager.run_in_background():
                    await fake.write("UANNA", "hello")
                    await fake.wait_for(lambda: fake.texts("DUANNA") == ["you said: hello"])
                    fake.errors["chat.postMessage"] = [
                        (429, {"ok": False, "error": "ratelimited"}, {"Retry-After": "0"})
                    ]
                    ts = await fake.write("UANNA", f"<@{BOT_USER}> in a channel", channel="C1")
                    await fake.write("UANNA", "not for the bot", channel="C1")
                    await fake.wait_for(lambda: fake.texts("C1"))
                    [answer] = [each for each in fake.sent if each["channel"] == "C1"]
                    assert answer["thread_ts"] == ts, "a mention begins a thread"
                    assert answer["text"] == "you said: <@UANNA>: in a channel".replace("<", "&lt;").replace(
                        ">", "&gt;"
                    )
                    assert not fake.unacknowledged

    asyncio.run(story())


def test_incoming_events_are_parsed() -> None:
    channel = Slack("slack", {"token": TOKEN, "app_token": APP_TOKEN})
    channel._bot_user = BOT_USER  # pyright: ignore[reportPrivateUsage]

    def read(**event: Any) -> Incoming | None:
        found = {"type": "message", "channel": "C1", "ts": "2.0", "channel_type": "channel", **event}
        envelope = {"type": "events_api", "payload": {"event": found}}
        return channel._read(envelope)  # pyright: ignore[reportPrivateUsage]

    bot = read(bot_id="B1", subtype="bot_message", text="beep")
    assert bot is not None
    assert bot.is_bot
    old, new = {"user": "U1", "text": "a", "ts": "1.0"}, {"user": "U1", "text": "b", "ts": "1.0"}
    edit = read(subtype="message_changed", message=new, previous_message=old)
    assert edit is not None
    assert (edit.kind, edit.target, edit.text) == ("edit", "C1/1.0", "b")
    gone = read(subtype="message_deleted", deleted_ts="1.0", previous_message=old)
    assert gone is not None
    assert (gone.kind, gone.target, gone.sender) == ("delete", "C1/1.0", "U1")
    assert read(subtype="channel_join", user="U1") is None
    assert read(user=BOT_USER, text="my own") is None
