"""Slack: direct messages, threads, buttons, Socket Mode that delivers again, and the Web API's errors."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.channels.fake_slack import APP_TOKEN, BOT_USER, TOKEN, FakeSlack, serve_fake_slack
from tests.channels.home import AGENT, write_home
from tests.channels.test_telegram import echo
from tests.engine.running import opened
from tests.patience import HANG_SECONDS
from treadle.channels.slack import Slack
from treadle.domain.channels import Person
from treadle.ports.channel import ChannelError, Incoming, Outgoing, OutgoingFile
from treadle.testing.channels import PNG, check_channel
from treadle.testing.models import FunctionModel, say

ANNA = Person(
    channel="slack", sender="UANNA", name="Anna", user="slack|UANNA", grants=("direct", "groups"), added_at=0.0
)


async def test_slack_keeps_the_contract_of_channels() -> None:
    fake = FakeSlack()
    async with serve_fake_slack(fake):
        channel = Slack("slack", {"token": TOKEN, "app_token": APP_TOKEN, "url": fake.url})

        async def texts() -> list[str]:
            return fake.texts("C1")

        await check_channel(channel, "C1", "nowhere", texts)
        await channel.close()


async def test_people_are_answered_in_direct_messages_and_threads(tmp_path: Path) -> None:
    fake = FakeSlack()
    async with serve_fake_slack(fake):
        settings = {"token": "{{vault:BOT}}", "app_token": "{{vault:APP}}", "url": fake.url}
        write_home(tmp_path, {"slack": {"agent": "hero", "settings": settings}}, {"BOT": TOKEN, "APP": APP_TOKEN})
        async with opened(tmp_path, echo()) as engine:
            manager: Any = engine.context.channels()
            await manager.store.save_person(ANNA)
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
                assert answer["text"] == "you said: UANNA: in a channel"
                assert not fake.unacknowledged


def test_swapped_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="token is an app-level token"):
        Slack("slack", {"token": APP_TOKEN, "app_token": APP_TOKEN})
    with pytest.raises(ValueError, match="app_token is not an app-level token"):
        Slack("slack", {"token": TOKEN, "app_token": TOKEN})


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
    mention = read(type="app_mention", user="U1", text="hi", channel_type=None)
    assert mention is not None
    assert not mention.is_direct
    direct = read(user="U1", text="hi", channel="D1", channel_type=None)
    assert direct is not None
    assert direct.is_direct, "not every event says the type of its channel"
    assert direct.sender_name == "U1", "without signs that a name may not have"


class StuckSlack(FakeSlack):
    """Slack that completes uploads and does not answer while `is_stuck`."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.is_stuck = True
        self._name = name
        """The file whose upload is not answered."""

    async def answer(self, request: web.Request) -> web.Response:
        response = await super().answer(request)
        is_last = request.match_info["method"] == "files.completeUploadExternal"
        if self.is_stuck and is_last and self.sent[-1]["text"] == f"[file {self._name}]":
            await asyncio.Event().wait()
        return response


@pytest.mark.parametrize("name", ["chart.png", "my report.pdf"])
async def test_a_file_appears_once_when_the_server_ends_while_it_is_sent(tmp_path: Path, name: str) -> None:
    def answer(_: object) -> Any:
        return say("see ![chart](chart.png) and ![](my%20report.pdf)")

    fake = StuckSlack(name)
    async with serve_fake_slack(fake):
        settings = {"token": "{{vault:BOT}}", "app_token": "{{vault:APP}}", "url": fake.url}
        channels = {"slack": {"agent": "hero", "settings": settings}}
        write_home(tmp_path, channels, {"BOT": TOKEN, "APP": APP_TOKEN}, AGENT + "tools: [read_file]\n")
        workspace = tmp_path / "home" / "workspaces" / "hero"
        workspace.mkdir(parents=True)
        (workspace / "chart.png").write_bytes(PNG)
        (workspace / "my report.pdf").write_bytes(b"%PDF-1.7")
        async with opened(tmp_path, FunctionModel(answer)) as engine:
            manager: Any = engine.context.channels()
            await manager.store.save_person(ANNA)
            async with manager.run_in_background():
                await fake.write("UANNA", "draw")
                await fake.wait_for(lambda: f"[file {name}]" in fake.texts("DUANNA"), HANG_SECONDS)
        fake.is_stuck = False
        async with opened(tmp_path, FunctionModel(answer)) as engine:
            manager = engine.context.channels()
            async with manager.run_in_background():
                while (await manager.list())[0].unsent:  # noqa: ASYNC110 -- a row of a database
                    await asyncio.sleep(0.01)
        assert fake.texts("DUANNA") == [
            "see chart and my report.pdf",
            "[file chart.png]",
            "[file my report.pdf]",
        ]


async def test_a_file_that_was_uploaded_but_not_shared_is_sent_again() -> None:
    fake = FakeSlack()
    async with serve_fake_slack(fake):
        channel = Slack("slack", {"token": TOKEN, "app_token": APP_TOKEN, "url": fake.url})
        message = Outgoing("k", "UANNA", "", files=(OutgoingFile("a.png", "image/png", PNG),))
        file_id = await channel.upload(message)
        assert not await channel.is_shared(file_id)
        await channel.share(file_id, message)
        assert await channel.is_shared(file_id)
        assert fake.texts("DUANNA") == ["[file a.png]"]
        with pytest.raises(ChannelError):
            await channel.share(file_id, message)
        await channel.close()


async def test_messages_to_a_person_are_edited_in_the_direct_message() -> None:
    fake = FakeSlack()
    async with serve_fake_slack(fake):
        for _ in range(2):  # another process knows nothing of the first one
            channel = Slack("slack", {"token": TOKEN, "app_token": APP_TOKEN, "url": fake.url})
            sent = await channel.send(Outgoing("k", "UANNA", "a draft", is_draft=True))
            await channel.edit(sent, Outgoing("k", "UANNA", "the answer"))
            await channel.close()
        assert fake.texts("DUANNA") == ["the answer"]


async def test_a_missing_scope_is_named() -> None:
    fake = FakeSlack()
    async with serve_fake_slack(fake):
        lacks = {"ok": False, "error": "missing_scope", "needed": "im:write", "provided": "chat:write"}
        fake.errors["conversations.open"] = [(200, lacks, {})]
        channel = Slack("slack", {"token": TOKEN, "app_token": APP_TOKEN, "url": fake.url})
        with pytest.raises(ChannelError, match="lacks the scope im:write"):
            await channel.send(Outgoing("k", "UANNA", "hello"))
        await channel.close()


async def test_a_connection_that_slack_refreshes_is_opened_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.channels.slack.MIN_CONNECTED_SECONDS", 0.0)
    fake = FakeSlack()
    async with asyncio.timeout(HANG_SECONDS), serve_fake_slack(fake):
        settings = {"token": "{{vault:BOT}}", "app_token": "{{vault:APP}}", "url": fake.url}
        write_home(tmp_path, {"slack": {"agent": "hero", "settings": settings}}, {"BOT": TOKEN, "APP": APP_TOKEN})
        async with opened(tmp_path, echo()) as engine:
            manager: Any = engine.context.channels()
            await manager.store.save_person(ANNA)
            async with manager.run_in_background():
                await fake.write("UANNA", "one")
                await fake.wait_for(lambda: fake.texts("DUANNA") == ["you said: one"])
                await fake.refresh()
                await fake.write("UANNA", "two")
                await fake.wait_for(lambda: fake.texts("DUANNA") == ["you said: one", "you said: two"])
                [view] = await manager.list()
                assert (view.status, view.reason) == ("connected", "")
