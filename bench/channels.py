"""Kills a server while people write on two channels: every message is answered once, in order.

    python -m bench.channels --kills 100 --people 20

Telegram and Slack are fakes in this process, which outlive the server. Slack deduplicates, Telegram does not: there
a message that was sent just before a kill may appear twice, and the report counts these."""

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiohttp import web

from treadle.config.database_url import sqlite_path
from treadle.config.home import Home
from treadle.domain.channels import Person
from treadle.stores.sqlite.channels import SqliteChannels
from treadle.stores.sqlite.connection import open_database
from treadle.stores.sqlite.writer import InlineWriter
from treadle.testing.slack import APP_TOKEN, FakeSlack, serve_fake_slack
from treadle.testing.slack import TOKEN as SLACK_TOKEN
from treadle.testing.telegram import TOKEN as TELEGRAM_TOKEN
from treadle.testing.telegram import FakeTelegram, serve_fake_telegram
from treadle.vault.store import VaultStore

CONFIG = """
providers: {{bench: {{base_url: {model}, api_mode: chat_completions, needs_key: false}}}}
channels:
  telegram: {{agent: hero, mode: queue, streaming: {streaming}, limits: {{messages_per_minute: 100000}},
             settings: {{token: "{{{{vault:TELEGRAM}}}}", url: "{telegram}"}}}}
  slack: {{agent: hero, mode: queue, streaming: {streaming}, limits: {{messages_per_minute: 100000}},
          settings: {{token: "{{{{vault:SLACK}}}}", app_token: "{{{{vault:APP}}}}", url: "{slack}"}}}}
"""
AGENT = "name: hero\nmodel: bench/x\nmemory: {recall: 0, remember: false}\n"
ANSWER = "answer to "


async def answer(request: web.Request) -> web.StreamResponse:
    """Answer as a model that repeats the last line of the message."""
    body = await request.json()
    content = body["messages"][-1]["content"]
    text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    pieces = [f"{ANSWER}{text.splitlines()[-1]}", ""]
    for number, piece in enumerate(pieces):
        choice = {"index": 0, "delta": {"content": piece}, "finish_reason": "stop" if number else None}
        chunk = {"id": "c", "object": "chat.completion.chunk", "model": "x", "choices": [choice]}
        await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
        await asyncio.sleep(random.random() * 0.05)
    await response.write(b"data: [DONE]\n\n")
    return response


def prepare(home: Path, people: int, model: str, telegram: str, slack: str, streaming: bool) -> None:
    (home / "agents" / "hero").mkdir(parents=True)
    (home / "agents" / "hero" / "config.yaml").write_text(AGENT)
    urls = {"model": model, "telegram": telegram, "slack": slack, "streaming": str(streaming).lower()}
    (home / "config.yaml").write_text(CONFIG.format(**urls))
    vault = VaultStore(home, {})
    for name, value in (("TELEGRAM", TELEGRAM_TOKEN), ("SLACK", SLACK_TOKEN), ("APP", APP_TOKEN)):
        vault.put(name, value)
    vault.close()
    writer = InlineWriter(open_database(sqlite_path(Home(home).database_url)))
    store = SqliteChannels(writer)

    async def admit() -> None:
        for number in range(1, people + 1):
            await store.keep_person(Person("telegram", str(number), f"p{number}", f"t{number}", ("direct",), 0.0))
            await store.keep_person(Person("slack", f"U{number}", f"p{number}", f"s{number}", ("direct",), 0.0))
        await writer.close()

    asyncio.run(admit())


class Killer:
    """Starts the server again and again, and kills it."""

    def __init__(self, home: Path, seed: int) -> None:
        self._home = home
        self._random = random.Random(seed)
        self._log = home.parent / "server.log"

    async def start(self, port: int = 0) -> asyncio.subprocess.Process:
        environment = {**os.environ, "TREADLE_HOME": str(self._home)}
        command = (str(Path(sys.executable).with_name("treadle")), "serve", "--port", str(port), "--json")
        with self._log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=log
            )
        assert process.stdout is not None
        if not await process.stdout.readline():
            raise RuntimeError(f"the server did not start: {self._log}")
        return process

    async def kill(self, times: int) -> None:
        for _ in range(times):
            process = await self.start()
            await asyncio.sleep(self._random.random() * 1.5)
            process.send_signal(signal.SIGKILL)
            await process.wait()


def judge(people: int, messages: int, telegram: FakeTelegram, slack: FakeSlack) -> dict[str, Any]:
    """Return what is wrong with what people have seen."""
    found: Counter[str] = Counter()
    for number in range(1, people + 1):
        for platform, texts in (("telegram", telegram.texts(number)), ("slack", slack.texts(f"DU{number}"))):
            wanted = [f"{ANSWER}p{number} m{count}" for count in range(messages)]
            answers = [text for text in texts if text.startswith(ANSWER)]
            reports = [text for text in texts if not text.startswith(ANSWER)]
            found[f"{platform} reported"] += len(reports)
            found[f"{platform} answered"] += len(set(answers) & set(wanted))
            found[f"{platform} twice"] += len(answers) - len(set(answers))
            found[f"{platform} lost"] += max(0, len(set(wanted) - set(answers)) - len(reports))
            order = list(dict.fromkeys(answers))
            found[f"{platform} out of order"] += order != [text for text in wanted if text in order]
    return dict(found)


def is_complete(people: int, messages: int, telegram: FakeTelegram, slack: FakeSlack) -> bool:
    return all(
        len(set(telegram.texts(number))) >= messages and len(slack.texts(f"DU{number}")) >= messages
        for number in range(1, people + 1)
    )


async def measure(
    kills: int, people: int, messages: int, seed: int, folder: Path, streaming: bool
) -> dict[str, Any]:
    telegram, slack = FakeTelegram(), FakeSlack()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    model = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    home = folder / "home"
    async with serve_fake_telegram(telegram), serve_fake_slack(slack):
        await asyncio.to_thread(prepare, home, people, model, telegram.url, slack.url, streaming)
        killer, began = Killer(home, seed), time.monotonic()
        killing = asyncio.create_task(killer.kill(kills))

        async def write(number: int) -> None:
            for count in range(messages):
                await telegram.write(number, f"p{number} m{count}")
                await slack.write(f"U{number}", f"p{number} m{count}")
                await asyncio.wait({killing}, timeout=random.random() * 2 * kills * 3 / messages)

        await asyncio.gather(killing, *(write(number) for number in range(1, people + 1)))
        process = await killer.start()
        with suppress(TimeoutError):
            async with asyncio.timeout(600):
                while not is_complete(people, messages, telegram, slack):  # noqa: ASYNC110 -- two servers
                    await asyncio.sleep(0.2)
        process.terminate()
        await process.wait()
        found = judge(people, messages, telegram, slack)
    await runner.cleanup()
    sent = 2 * people * messages
    return {"kills": kills, "people": people, "messages": sent, "seconds": round(time.monotonic() - began), **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--people", type=int, default=20)
    parser.add_argument("--messages", type=int, default=10, help="messages of each person on each channel")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--streaming", action="store_true", help="show answers while they are written")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(
            measure(given.kills, given.people, given.messages, given.seed, Path(folder), given.streaming)
        )
        print(json.dumps(found, indent=1))
        wrong = [name for name in found if name.endswith(("lost", "order", "slack twice")) and found[name]]
        if wrong:
            sys.exit(f"faults: {', '.join(wrong)}\n" + (Path(folder) / "server.log").read_text()[-3000:])


if __name__ == "__main__":
    main()
