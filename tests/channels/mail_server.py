"""A real IMAP server (pymap) and a real SMTP server (aiosmtpd) on loopback, in this process."""

import asyncio
from argparse import Namespace
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

import aioimaplib  # pyright: ignore[reportMissingTypeStubs]
from aiosmtpd.smtp import SMTP  # pyright: ignore[reportMissingTypeStubs]
from proxyprotocol.reader import ProxyProtocolReader
from pymap.backend.dict import DictBackend  # pyright: ignore[reportMissingTypeStubs]
from pymap.imap import IMAPServer  # pyright: ignore[reportMissingTypeStubs]

from tests.patience import HANG_SECONDS

AGENT, PASSWORD = "agent@example.org", "secret-password"
AUTHSERV = "mx.example.org"


class MailServers:
    def __init__(self, imap_port: int) -> None:
        self.imap_port = imap_port
        self.smtp_port = 0
        self.sent: list[EmailMessage] = []
        self.refused: set[str] = set()
        self._changed = asyncio.Condition()
        self._appending = asyncio.Lock()
        self._client: Any = None

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        if address in self.refused:
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        mail = message_from_bytes(envelope.content, policy=policy.default)
        async with self._changed:
            if all(mail["Message-ID"] != each["Message-ID"] for each in self.sent):  # as a mailbox shows it
                self.sent.append(mail)
            self._changed.notify_all()
        return "250 OK"

    def texts(self, address: str) -> list[str]:
        found = [mail for mail in self.sent if mail["To"] == address]
        bodies = [mail.get_body(("plain",)) for mail in found]
        return [str(body.get_content()).strip() for body in bodies if body is not None]

    async def wait_for(self, condition: Any) -> Any:
        async with asyncio.timeout(60), self._changed:
            return await self._changed.wait_for(condition)

    async def deliver(self, sender: str, text: str, number: int, **headers: str) -> None:
        """Put a mail into the mailbox of the agent, as its mail server does."""
        mail = EmailMessage()
        results = f"{AUTHSERV}; dmarc=pass header.from={sender.rpartition('@')[2]}"
        given = {key.replace("_", "-"): value for key, value in headers.items()}
        given = {
            "Authentication-Results": results,
            "Message-ID": f"<m{number}@client>",
            "Subject": "Hello",
            **given,
        }
        mail["From"], mail["To"] = given.pop("From", sender), AGENT
        for name, value in given.items():
            mail[name] = value
        mail.set_content(text)
        await self.append(mail.as_bytes())

    async def append(self, data: bytes) -> None:
        """Put a mail into the mailbox, through one connection for all mail: logging in is slow on purpose."""
        async with self._appending:
            if self._client is None:
                self._client = aioimaplib.IMAP4("127.0.0.1", self.imap_port, timeout=HANG_SECONDS)
                await self._client.wait_hello_from_server()
                await self._client.login(AGENT, PASSWORD)
            answer = await self._client.append(data, "INBOX")
            assert answer.result == "OK", answer

    def settings(self, **more: Any) -> dict[str, Any]:
        return {
            "address": AGENT,
            "password": PASSWORD,
            "imap_host": "127.0.0.1",
            "imap_port": self.imap_port,
            "imap_tls": False,
            "smtp_host": "127.0.0.1",
            "smtp_port": self.smtp_port,
            "smtp_tls": "none",
            "authserv_id": AUTHSERV,
            **more,
        }


@asynccontextmanager
async def serve_mail() -> AsyncGenerator[MailServers, None]:
    args: Any = Namespace(
        debug=False,
        tls=False,
        cert=None,
        key=None,
        host=["127.0.0.1"],
        port="0",
        proxy_protocol=None,
        demo_data=False,
        demo_user=AGENT,
        demo_password=PASSWORD,
        inherited_sockets=None,
        insecure_login=True,
        skip_services=(),
        passlib_cfg=None,
    )
    backend, config = await DictBackend.init(args, secure_auth=False, reject_dnsbl=False)
    handle: Any = ProxyProtocolReader(config.proxy_protocol).get_callback(IMAPServer(backend.login, config))
    writers = list[asyncio.StreamWriter]()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await handle(reader, writer)  # starts a task

    imap = await asyncio.start_server(accept, "127.0.0.1", 0)
    servers = MailServers(imap.sockets[0].getsockname()[1])
    smtp = await asyncio.get_running_loop().create_server(lambda: SMTP(servers), "127.0.0.1", 0)
    servers.smtp_port = smtp.sockets[0].getsockname()[1]
    try:
        yield servers
    finally:
        imap.close()
        smtp.close()
        for writer in writers:
            writer.transport.abort()
        if others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others, timeout=5)  # the connections notice it
