"""The platforms of `bench.channels`: how people write on them, and what they see. They outlive the server."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

from tests.channels.fake_matrix import BOT, FakeMatrix, serve_fake_matrix
from tests.channels.fake_matrix import PASSWORD as MATRIX_PASSWORD
from tests.channels.fake_slack import APP_TOKEN, FakeSlack, serve_fake_slack
from tests.channels.fake_slack import TOKEN as SLACK_TOKEN
from tests.channels.fake_telegram import TOKEN as TELEGRAM_TOKEN
from tests.channels.fake_telegram import FakeTelegram, serve_fake_telegram
from tests.channels.mail_server import PASSWORD as MAIL_PASSWORD
from tests.channels.mail_server import MailServers, serve_mail


class BenchPlatform(Protocol):
    """A platform with people, who are numbers from 1 on."""

    name: str
    deduplicates: bool
    settings: dict[str, Any]
    secrets: dict[str, str]

    def sender(self, number: int) -> str: ...

    async def write(self, number: int, text: str) -> None: ...

    def texts(self, number: int) -> Sequence[str]: ...


class TelegramPlatform:
    name, deduplicates = "telegram", False

    def __init__(self, fake: FakeTelegram) -> None:
        self._fake = fake
        self.secrets = {"TELEGRAM": TELEGRAM_TOKEN}
        self.settings = {"token": "{{vault:TELEGRAM}}", "url": fake.url}

    def sender(self, number: int) -> str:
        return str(number)

    async def write(self, number: int, text: str) -> None:
        await self._fake.write(number, text)

    def texts(self, number: int) -> Sequence[str]:
        return self._fake.texts(number)


class SlackPlatform:
    name, deduplicates = "slack", True

    def __init__(self, fake: FakeSlack) -> None:
        self._fake = fake
        self.secrets = {"SLACK": SLACK_TOKEN, "APP": APP_TOKEN}
        self.settings = {"token": "{{vault:SLACK}}", "app_token": "{{vault:APP}}", "url": fake.url}

    def sender(self, number: int) -> str:
        return f"U{number}"

    async def write(self, number: int, text: str) -> None:
        await self._fake.write(f"U{number}", text)

    def texts(self, number: int) -> Sequence[str]:
        return self._fake.texts(f"DU{number}")


class MatrixPlatform:
    name, deduplicates = "matrix", True

    def __init__(self, fake: FakeMatrix, people: int) -> None:
        self._fake = fake
        self.secrets = {"MATRIX": MATRIX_PASSWORD}
        self.settings = {"homeserver": fake.url, "user": BOT, "password": "{{vault:MATRIX}}"}
        for number in range(1, people + 1):
            fake.add_room(f"!r{number}:fake.example", self.sender(number))

    def sender(self, number: int) -> str:
        return f"@p{number}:fake.example"

    async def write(self, number: int, text: str) -> None:
        await self._fake.write(self.sender(number), f"!r{number}:fake.example", text)

    def texts(self, number: int) -> Sequence[str]:
        return self._fake.texts(f"!r{number}:fake.example")


class MailPlatform:
    """Real servers of IMAP and SMTP. A person writes in one thread. A mailbox shows a Message-ID once."""

    name, deduplicates = "email", True

    def __init__(self, servers: MailServers) -> None:
        self._servers = servers
        self._count = 0
        self.secrets = {"MAIL": MAIL_PASSWORD}
        self.settings = servers.settings(password="{{vault:MAIL}}")

    def sender(self, number: int) -> str:
        return f"p{number}@example.com"

    async def write(self, number: int, text: str) -> None:
        self._count += 1
        await self._servers.deliver(self.sender(number), text, self._count, References=f"<thread{number}@client>")

    def texts(self, number: int) -> Sequence[str]:
        return self._servers.texts(self.sender(number))


@asynccontextmanager
async def serve_platform(name: str, people: int) -> AsyncGenerator[BenchPlatform, None]:
    match name:
        case "telegram":
            async with serve_fake_telegram(FakeTelegram()) as telegram:
                yield TelegramPlatform(telegram)
        case "slack":
            async with serve_fake_slack(FakeSlack()) as slack:
                yield SlackPlatform(slack)
        case "matrix":
            async with serve_fake_matrix(FakeMatrix()) as matrix:
                yield MatrixPlatform(matrix, people)
        case "email":
            async with serve_mail() as servers:
                yield MailPlatform(servers)
        case _:
            raise ValueError(f"{name} is not a platform")
