"""The Slack adapter against `emulate`, an emulator of Slack's Web API of npm. `make peers` installs it.

It checks scopes, membership and uploads as Slack does. It has no Socket Mode, which the fake of `treadle.testing`
serves, and it does not deduplicate by `client_msg_id`."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web
from msgspec.structs import replace

from tests.channels.fake_slack import APP_TOKEN, TOKEN, FakeSlack
from tests.channels.home import write_home
from tests.channels.test_sent_files import READER, fill_workspace
from tests.engine.running import opened
from tests.patience import HANG_SECONDS
from tests.peers.node import serve_script, skip_without
from treadle.channels.slack import TRAITS, Slack
from treadle.domain.channels import Person
from treadle.ports.channel import ChannelRefused, IncomingFile, Outgoing, OutgoingFile
from treadle.ports.model import ModelRequest
from treadle.testing.channels import PNG, check_channel
from treadle.testing.models import FunctionModel, say

pytestmark = skip_without("emulate")

ANNA_TOKEN = "xoxp-anna"
GENERAL = "C000000001"
PAGE = Path(__file__).parents[2] / "docs" / "channels" / "slack.md"
SCRIPT = """
import {createEmulator} from "emulate";
const seed = JSON.parse(process.argv[1]);
const slack = await createEmulator({service: "slack", port: 0, seed: {slack: seed}});
console.log(slack.url);
"""


def find_scopes() -> list[str]:
    """Return the bot scopes of the manifest in the documentation."""
    manifest = PAGE.read_text().split("```yaml\n", 1)[1].split("```", 1)[0]
    return yaml.safe_load(dedent(manifest))["oauth_config"]["scopes"]["bot"]


SEED: dict[str, Any] = {
    "team": {"name": "Testers"},
    "users": [{"name": "anna"}],
    "oauth_apps": [
        {"client_id": "1.2", "client_secret": "s", "name": "Treadle", "redirect_uris": [], "bot_name": "treadle"}
    ],
    "tokens": [
        {"token": TOKEN, "type": "bot", "user": "treadle", "scopes": find_scopes()},
        {"token": ANNA_TOKEN, "type": "user", "user": "anna"},
    ],
    "strict_scopes": True,
}


class Emulator:
    """A person on the emulated Slack, and Socket Mode in front of it."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = f"{url}/api/"
        self.fake = FakeSlack()
        self._session = session

    async def call(self, method: str, token: str = ANNA_TOKEN, **values: Any) -> Any:
        headers = {"Authorization": f"Bearer {token}"}
        async with self._session.post(f"{self.url}{method}", json=values, headers=headers) as response:
            answer = await response.json()
        assert answer["ok"], answer
        return answer

    async def write(self, channel: str, text: str, **more: Any) -> str:
        """Write as Anna. The message reaches the bot as Slack stores it."""
        sent = await self.call("chat.postMessage", channel=channel, text=text, **more)
        await self.fake.deliver({**sent["message"], "channel": sent["channel"]})
        return str(sent["ts"])

    async def open_direct(self) -> str:
        """Return the direct messages of Anna and the bot."""
        bot = await self.call("auth.test", TOKEN)
        return str((await self.call("conversations.open", users=bot["user_id"]))["channel"]["id"])

    async def messages(self, channel: str, thread: str = "") -> list[dict[str, Any]]:
        """Return the messages of a conversation, oldest first."""
        if thread:
            return (await self.call("conversations.replies", channel=channel, ts=thread))["messages"]
        return (await self.call("conversations.history", channel=channel))["messages"][::-1]

    async def wait_for(
        self, channel: str, condition: Callable[[list[dict[str, Any]]], bool], thread: str = ""
    ) -> list[dict[str, Any]]:
        async with asyncio.timeout(HANG_SECONDS):
            while not condition(found := await self.messages(channel, thread)):  # noqa: ASYNC110 -- a server
                await asyncio.sleep(0.05)
        return found

    async def forward(self, request: web.Request) -> web.StreamResponse:
        """Answer what opens a connection, and pass everything else to the emulator."""
        method = request.match_info["method"]
        if method == "apps.connections.open":
            return await self.fake.answer(request)
        kept = {
            name: request.headers[name] for name in ("Authorization", "Content-Type") if name in request.headers
        }
        body = await request.read()
        async with self._session.post(f"{self.url}{method}?{request.query_string}", data=body, headers=kept) as got:
            return web.Response(status=got.status, body=await got.read(), content_type="application/json")


@pytest.fixture
def url() -> Generator[str, None, None]:
    with serve_script(SCRIPT, json.dumps(SEED)) as address:
        yield address


@asynccontextmanager
async def opened_slack(url: str) -> AsyncGenerator[tuple[Emulator, str], None]:
    """The emulator with Socket Mode, and the address for the bot."""
    async with aiohttp.ClientSession() as session:
        emulator = Emulator(url, session)
        app = web.Application(client_max_size=32 * 2**20)
        app.router.add_post("/api/{method}", emulator.forward)
        app.router.add_get("/socket", emulator.fake.socket)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        emulator.fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}/api/"
        try:
            yield emulator, emulator.fake.url
        finally:
            await runner.cleanup()


async def test_slack_keeps_the_contract_of_channels(url: str) -> None:
    async with aiohttp.ClientSession() as session:
        emulator = Emulator(url, session)
        channel = Slack("slack", {"token": TOKEN, "app_token": APP_TOKEN, "url": emulator.url})
        channel.traits = replace(TRAITS, deduplicates=False)  # the emulator does not

        async def texts() -> list[str]:
            return [each["text"] for each in await emulator.messages(GENERAL)]

        await check_channel(channel, GENERAL, "nowhere", texts)
        assert await channel.check() == "treadle in Testers"
        with pytest.raises(ChannelRefused):
            await channel.edit("1.0", Outgoing("k", GENERAL, "not there"))
        await channel.close()


async def test_files_are_uploaded_into_threads_and_fetched(url: str) -> None:
    async with aiohttp.ClientSession() as session:
        emulator = Emulator(url, session)
        channel = Slack("slack", {"token": TOKEN, "app_token": APP_TOKEN, "url": emulator.url})
        thread = (await emulator.call("chat.postMessage", channel=GENERAL, text="draw"))["ts"]
        file = OutgoingFile("a chart.png", "image/png", PNG)
        sent = await channel.send(Outgoing("k/1", f"{GENERAL}/{thread}", "", files=(file,)))
        [_, reply] = await emulator.messages(GENERAL, thread)
        [stored] = reply["files"]
        assert (stored["id"], stored["title"], stored["size"]) == (sent, "a chart.png", len(PNG))
        attachment = IncomingFile(stored["url_private_download"].replace("localhost", "127.0.0.1"))
        channel_url = emulator.url.replace("localhost", "127.0.0.1")
        reader = Slack("slack", {"token": TOKEN, "app_token": APP_TOKEN, "url": channel_url})
        assert await reader.fetch(attachment, 1000) == PNG
        with pytest.raises(ChannelRefused):
            await reader.fetch(attachment, 10)
        await reader.close()
        await channel.close()


async def test_messages_to_a_person_are_edited_and_have_files(url: str) -> None:
    async with aiohttp.ClientSession() as session:
        emulator = Emulator(url, session)
        channel = Slack("slack", {"token": TOKEN, "app_token": APP_TOKEN, "url": emulator.url})
        anna = str((await emulator.call("auth.test"))["user_id"])
        sent = await channel.send(Outgoing("k/1", anna, "a draft", is_draft=True))
        await channel.edit(sent, Outgoing("k/1", anna, "the answer"))
        await channel.send(Outgoing("k/2", anna, "", files=(OutgoingFile("a.png", "image/png", PNG),)))
        found = await emulator.messages(await emulator.open_direct())
        assert [each["text"] for each in found] == ["the answer", ""]
        with pytest.raises(ChannelRefused):
            await channel.send(Outgoing("k/3", "U404", "lost"))
        await channel.close()


def answer(request: ModelRequest) -> Any:
    said = request.conversation.messages[-1].text.splitlines()[-1]
    return say("see ![chart](chart.png)" if "draw" in said else f"you said: {said}")


async def test_people_are_answered_in_direct_messages_and_threads(url: str, tmp_path: Path) -> None:
    async with opened_slack(url) as (emulator, address):
        settings = {"token": "{{vault:BOT}}", "app_token": "{{vault:APP}}", "url": address}
        channels = {"slack": {"agent": "hero", "settings": settings}}
        write_home(tmp_path, channels, {"BOT": TOKEN, "APP": APP_TOKEN}, READER)
        fill_workspace(tmp_path)
        anna = str((await emulator.call("auth.test"))["user_id"])
        bot = str((await emulator.call("auth.test", TOKEN))["user_id"])
        async with opened(tmp_path, FunctionModel(answer)) as engine:
            manager: Any = engine.context.channels()
            person = Person(
                channel="slack",
                sender=anna,
                name="Anna",
                user=f"slack|{anna}",
                grants=("direct", "groups"),
                added_at=0.0,
            )
            await manager.store.save_person(person)
            async with manager.run_in_background():
                direct = await emulator.open_direct()
                await emulator.write(direct, "draw it")
                found = await emulator.wait_for(direct, lambda seen: len(seen) == 3)
                assert [each["text"] for each in found] == ["draw it", "see chart", ""]
                assert found[2]["files"][0]["title"] == "chart.png"
                await emulator.write(GENERAL, "not for the bot")
                thread = await emulator.write(GENERAL, f"<@{bot}> hello")
                found = await emulator.wait_for(GENERAL, lambda seen: len(seen) == 2, thread)
                assert found[1]["text"].endswith(": hello")
                assert len(await emulator.messages(GENERAL)) == 2, "answers are in threads"
