"""A home with a channel to a fake platform, at work in this process."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.channels.fake_telegram import TOKEN, FakeTelegram, serve_fake_telegram
from tests.engine.running import opened
from treadle.api.engine import HostedEngine
from treadle.operations.channel_manager import ApprovedPairing
from treadle.ports.channel import Incoming
from treadle.ports.model import Model
from treadle.vault.store import VaultStore

AGENT = "name: hero\nmodel: scripted/x\nmemory: {recall: 0, remember: false}\n"


def write_home(folder: Path, channels: dict[str, Any], secrets: dict[str, str], agent: str = AGENT) -> Path:
    home = folder / "home"
    (home / "agents" / "hero").mkdir(parents=True, exist_ok=True)
    (home / "agents" / "hero" / "config.yaml").write_text(agent)
    (home / "config.yaml").write_bytes(msgspec.yaml.encode({"channels": channels}))
    store = VaultStore(home, {})
    for name, value in secrets.items():
        store.put(name, value)
    store.close()
    return home


def telegram_settings(fake: FakeTelegram, **more: Any) -> dict[str, Any]:
    settings = {"token": "{{vault:TELEGRAM_TOKEN}}", "url": fake.url}
    return {"platform": "telegram", "agent": "hero", "settings": settings, **more}


class Chat:
    """An engine with the channel `telegram`, and the fake that it talks to."""

    def __init__(self, engine: HostedEngine, fake: FakeTelegram) -> None:
        self.engine = engine
        self.fake = fake

    async def admit(self, sender: int, *grants: str) -> None:
        """Grant a person access, as an operator does."""
        await self.fake.write(sender, "hello")
        said = await self.fake.wait_for(lambda: self.fake.texts(sender))
        code = said[-1].split("pairing code is ")[1][:8]
        request = ApprovedPairing(code, msgspec.convert(grants or ("direct",), tuple[Any, ...]))
        await self.engine.context.channels().approve(request)
        await self.fake.wait_for(lambda: any("You are paired" in text for text in self.fake.texts(sender)))
        self.fake.sent = [each for each in self.fake.sent if each["chat"]["id"] != sender]

    async def says(self, chat: int, text: str) -> None:
        """Wait for a message of the bot."""
        await self.fake.wait_for(lambda: text in self.fake.texts(chat))


@asynccontextmanager
async def chatting(
    folder: Path,
    model: Model,
    *,
    agent: str = AGENT,
    prepare: Callable[[HostedEngine], None] = lambda engine: None,
    **settings: Any,
) -> AsyncGenerator[Chat, None]:
    fake = FakeTelegram()
    async with serve_fake_telegram(fake):
        channels = {"telegram": telegram_settings(fake, **settings)}
        write_home(folder, channels, {"TELEGRAM_TOKEN": TOKEN}, agent)
        async with opened(folder, model) as engine:
            prepare(engine)
            async with engine.context.channels().run_in_background():
                yield Chat(engine, fake)


def direct(message_id: str, text: str, **more: Any) -> Incoming:
    return Incoming(message_id, "c1", "alice", "Alice", text, **more)
