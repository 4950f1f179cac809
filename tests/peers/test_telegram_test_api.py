"""The Telegram adapter against `telegram-test-api`, an emulator of the Bot API of npm. `make peers` installs it.

It has messages, edits, buttons and updates. It has no files, no long polling and no errors of the Bot API."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import treadle
from tests.channels.home import AGENT, write_home
from tests.channels.test_telegram import echo
from tests.engine.running import opened
from tests.patience import HANG_SECONDS
from tests.peers.node import serve_script, skip_without
from treadle.api.engine import HostedEngine
from treadle.channels.telegram import Telegram
from treadle.operations.channel_manager import ApprovedPairing
from treadle.ports.channel import Button, Outgoing
from treadle.ports.model import Model
from treadle.testing.models import ScriptedModel, ask, call, say

pytestmark = skip_without("telegram-test-api")

TOKEN = "666:AA-token-of-the-peer"
ANNA, GROUP = 11, -100
BOT = "TestNameBot"
SCRIPT = """
import TelegramServer from "telegram-test-api";
const server = new TelegramServer({host: "127.0.0.1", port: "0", storeTimeout: 3600});
await server.start();
console.log(`http://127.0.0.1:${server.server.address().port}`);
"""


class Emulator:
    """People on the emulated Telegram."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = url
        self._session = session

    async def write(self, sender: int, text: str, chat: int | None = None, **more: Any) -> None:
        await self._post("sendMessage", {**self._place(sender, chat), "text": text, **more})

    async def press(self, sender: int, message_id: int, data: str, chat: int | None = None) -> None:
        message = {**self._place(sender, chat), "message_id": message_id}
        await self._post("sendCallback", {"from": message["from"], "message": message, "data": data})

    async def sent(self, chat: int) -> list[dict[str, Any]]:
        """Return the messages of the bot in a chat, as they are now."""
        history = await self._post("getUpdatesHistory", {"token": TOKEN})
        return [each for each in history if str(each.get("message", {}).get("chat_id")) == str(chat)]

    async def texts(self, chat: int) -> list[str]:
        return [each["message"]["text"] for each in await self.sent(chat)]

    async def wait_for(self, chat: int, condition: Callable[[list[str]], bool]) -> list[dict[str, Any]]:
        """Wait until the texts of the bot in a chat fulfil a condition. Return the messages."""
        async with asyncio.timeout(HANG_SECONDS):
            while not condition(await self.texts(chat)):  # noqa: ASYNC110 -- a server
                await asyncio.sleep(0.05)
        return await self.sent(chat)

    @staticmethod
    def _place(sender: int, chat: int | None) -> dict[str, Any]:
        person = {"id": sender, "first_name": f"Person {sender}", "is_bot": False}
        private = {"id": sender, "type": "private", "first_name": person["first_name"]}
        return {"from": person, "chat": private if chat is None else {"id": chat, "type": "supergroup"}, "date": 1}

    async def _post(self, method: str, values: dict[str, Any]) -> Any:
        async with self._session.post(f"{self.url}/{method}", json={"botToken": TOKEN, **values}) as response:
            assert response.status == 200
            return (await response.json())["result"]


@pytest.fixture
def url() -> Generator[str, None, None]:
    with serve_script(SCRIPT) as address:
        yield address


@asynccontextmanager
async def chatting(
    folder: Path, url: str, model: Model, agent: str = AGENT, *tools: Any
) -> AsyncGenerator[tuple[HostedEngine, Emulator], None]:
    """An engine that is connected to the emulator."""
    settings = {"token": "{{vault:TELEGRAM_TOKEN}}", "url": url}
    channels = {"telegram": {"agent": "hero", "settings": settings}}
    write_home(folder, channels, {"TELEGRAM_TOKEN": TOKEN}, agent)
    async with aiohttp.ClientSession() as session, opened(folder, model) as engine:
        engine.add_tools(*tools)
        async with engine.context.channels().run_in_background():
            yield engine, Emulator(url, session)


async def admit(engine: HostedEngine, emulator: Emulator, sender: int, *grants: Any) -> None:
    await emulator.write(sender, "hello")
    [message] = await emulator.wait_for(sender, lambda texts: len(texts) == 1)
    code = message["message"]["text"].split("pairing code is ")[1].removeprefix("<code>")[:8]
    await engine.context.channels().approve(ApprovedPairing(code, grants))
    await emulator.wait_for(sender, lambda texts: "You are paired" in texts[-1])


async def test_messages_are_sent_with_buttons_and_edited(url: str) -> None:
    channel = Telegram("telegram", {"token": TOKEN, "url": url})
    async with aiohttp.ClientSession() as session:
        emulator = Emulator(url, session)
        assert await channel.check() == f"@{BOT}"
        buttons = (Button("Yes", "approve"), Button("No", "deny"))
        first = await channel.send(Outgoing("k/1", str(ANNA), "**one** <two>", buttons))
        second = await channel.send(Outgoing("k/2", str(ANNA), "a draft", is_draft=True))
        await channel.edit(second, Outgoing("k/2", str(ANNA), "the answer"))
        await channel.edit(second, Outgoing("k/2", str(ANNA), "the answer"))
        assert first != second
        assert await emulator.texts(ANNA) == ["<b>one</b> &lt;two&gt;", "the answer"]
        [sent, _] = await emulator.sent(ANNA)
        assert sent["message"]["parse_mode"] == "HTML"
        rows = sent["message"]["reply_markup"]["inline_keyboard"]
        assert [row[0]["callback_data"] for row in rows] == ["approve", "deny"]
    await channel.close()


async def test_a_person_is_paired_and_answered_in_order(url: str, tmp_path: Path) -> None:
    async with chatting(tmp_path, url, echo()) as (engine, emulator):
        await admit(engine, emulator, ANNA, "direct", "groups")
        for text in ("one", "two", "three"):
            await emulator.write(ANNA, text)
            await emulator.wait_for(ANNA, lambda texts, text=text: texts[-1] == f"you said: {text}")
        assert (await emulator.texts(ANNA))[2:] == ["you said: one", "you said: two", "you said: three"]
        mention = {"type": "mention", "offset": 0, "length": len(BOT) + 1}
        await emulator.write(ANNA, "not for the bot", GROUP)
        await emulator.write(ANNA, f"@{BOT} hi", GROUP, entities=[mention])
        await emulator.wait_for(GROUP, bool)
        assert await emulator.texts(GROUP) == ["you said: Person 11: hi"]
        [view] = await engine.context.channels().list()
        assert (view.status, view.account) == ("connected", f"@{BOT}")


async def test_an_approval_is_decided_with_a_button(url: str, tmp_path: Path) -> None:
    done: list[str] = []

    @treadle.tool(effect="external")
    async def act(what: str) -> str:
        """Act.

        Args:
            what: What to do.
        """
        done.append(what)
        return "done"

    model = ScriptedModel(ask(call("act", what="it")), say("finished"))
    agent = AGENT + "tools: [act]\napprovals: {default: ask}\n"
    async with chatting(tmp_path, url, model, agent, act) as (engine, emulator):
        await admit(engine, emulator, ANNA, "direct", "approve")
        await emulator.write(ANNA, "do it")
        prompt = (await emulator.wait_for(ANNA, lambda texts: "act" in texts[-1]))[-1]
        await emulator.press(ANNA, prompt["messageId"], "approve")
        await emulator.wait_for(ANNA, lambda texts: texts[-1] == "finished")
        assert done == ["it"]
        [decided] = [each for each in await emulator.sent(ANNA) if each["messageId"] == prompt["messageId"]]
        assert "Approved" in decided["message"]["text"], "the prompt shows the decision"
