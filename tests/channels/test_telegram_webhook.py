"""Telegram in webhook mode, with a real server: the secret, a kill between two messages, and back to polling.
Albums, which both modes deliver in parts."""

import asyncio
import signal
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from bench.channels import ANSWER, Killer, answer

from tests.channels.fake_telegram import TOKEN, FakeTelegram, serve_fake_telegram
from tests.channels.home import chatting, telegram_settings, write_home
from tests.channels.test_bad_input import PNG
from tests.channels.test_telegram import ANNA, GROUP, MENTION
from tests.patience import HANG_SECONDS
from treadle.config.database_url import sqlite_path
from treadle.config.home import Home
from treadle.domain.channels import Person
from treadle.domain.events import UserMessage
from treadle.domain.messages import Image
from treadle.stores.sqlite.channels import SqliteChannels
from treadle.stores.sqlite.connection import open_database
from treadle.stores.sqlite.writer import InlineWriter
from treadle.testing.models import FunctionModel, say

AGENT = "name: hero\nmodel: bench/x\nmemory: {recall: 0, remember: false}\n"


def find_free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@asynccontextmanager
async def serve_model() -> AsyncGenerator[str, None]:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


async def prepare(folder: Path, fake: FakeTelegram, model: str, webhook: str) -> Path:
    settings = telegram_settings(fake, streaming=False, mode="queue")
    settings["settings"]["webhook"] = webhook
    home = write_home(folder, {"telegram": settings}, {"TELEGRAM_TOKEN": TOKEN}, AGENT)
    provider = f"providers: {{bench: {{base_url: {model}, api_mode: chat_completions, needs_key: false}}}}\n"
    with (home / "config.yaml").open("a") as config:
        config.write(provider)
    writer = InlineWriter(open_database(sqlite_path(Home(home).database_url)))
    await SqliteChannels(writer).save_person(
        Person(channel="telegram", sender=str(ANNA), name="Anna", user="anna", grants=("direct",), added_at=0.0)
    )
    await writer.close()
    return home


async def test_messages_are_posted_with_the_secret_and_stored_once(tmp_path: Path) -> None:
    fake, port = FakeTelegram(), find_free_port()
    async with serve_model() as model, serve_fake_telegram(fake):
        home = await prepare(tmp_path, fake, model, f"http://127.0.0.1:{port}")
        killer = Killer(home, 1)
        process = await killer.start(port)
        await fake.write(ANNA, "one")
        await fake.wait_for(lambda: f"{ANSWER}one" in fake.texts(ANNA), HANG_SECONDS)
        assert fake.webhook is not None
        assert fake.webhook["url"] == f"http://127.0.0.1:{port}/v1/channels/telegram/webhook"
        assert fake.webhook["max_connections"] == 1, "messages keep their order"
        await refuse_forged(fake.webhook["url"])
        process.send_signal(signal.SIGKILL)
        await process.wait()
        for text in ("two", "three"):
            await fake.write(ANNA, text)
        process = await killer.start(port)
        await fake.wait_for(lambda: f"{ANSWER}three" in fake.texts(ANNA)[-1], HANG_SECONDS)
        await fake.repeat({"message": {**MESSAGE, "message_id": 1}})
        await fake.write(ANNA, "four")
        await fake.wait_for(lambda: f"{ANSWER}four" in fake.texts(ANNA)[-1], HANG_SECONDS)
        process.terminate()
        await process.wait()
        assert fake.texts(ANNA) == [f"{ANSWER}{text}" for text in ("one", "two", "three", "four")]


MESSAGE = {
    "date": 1,
    "text": "one",
    "chat": {"id": ANNA, "type": "private"},
    "from": {"id": ANNA, "first_name": "A"},
}


async def refuse_forged(url: str) -> None:
    update = {"update_id": 99, "message": {**MESSAGE, "message_id": 99, "text": "forged"}}
    headers: list[dict[str, str]] = [{}, {"X-Telegram-Bot-Api-Secret-Token": "guess"}]
    async with aiohttp.ClientSession() as session:
        for each in headers:
            async with session.post(url, json=update, headers=each) as response:
                assert response.status == 401
        other = url.replace("/telegram/", "/nothing/")
        async with session.post(other, json=update, headers=headers[1]) as response:
            assert response.status == 401


async def test_a_channel_without_a_webhook_polls_again(tmp_path: Path) -> None:
    async with chatting(tmp_path, FunctionModel(lambda _: say("polled"))) as chat:
        await chat.admit(ANNA)
        await chat.fake.write(ANNA, "hi")
        await chat.says(ANNA, "polled")
    fake = FakeTelegram()
    fake.webhook = {"url": "http://127.0.0.1:9/gone"}
    async with serve_fake_telegram(fake):
        from treadle.channels.telegram import Telegram

        channel: Any = Telegram("telegram", {"token": TOKEN, "url": fake.url})
        receiving = asyncio.create_task(channel.receive(None))
        await fake.wait_for(lambda: fake.webhook is None)
        receiving.cancel()
        await asyncio.wait({receiving})
        assert not channel.verify({"x-telegram-bot-api-secret-token": channel._secret}), "it does not listen"
        await channel.close()


async def test_an_album_is_one_message(tmp_path: Path) -> None:
    async with chatting(tmp_path, FunctionModel(lambda _: say("seen"))) as chat:
        await chat.admit(ANNA, "direct", "groups")
        chat.fake.files = {f"f{number}": PNG + bytes([number]) for number in range(4)}
        for place, entities in ((None, []), (GROUP, [MENTION])):
            for number in range(3):
                photo = [{"file_id": f"f{number}", "file_size": len(PNG)}]
                caption: dict[str, Any] = {"caption": "@treadle_test_bot look", "caption_entities": entities}
                more = caption if number == 0 else {}
                await chat.fake.write(ANNA, chat=place, photo=photo, media_group_id="g1", **more)
            target = ANNA if place is None else place
            await chat.says(target, "seen")
        runs = await chat.engine.context.service.runs()
        assert len(runs) == 2
        for run in runs:
            events = [event.data async for event in chat.engine.context.service.read_stored(run.origin.run_id)]
            [message] = [each.message for each in events if isinstance(each, UserMessage)]
            assert sum(isinstance(part, Image) for part in message.parts) == 3
        assert chat.fake.texts(ANNA) + chat.fake.texts(GROUP) == ["seen", "seen"]
