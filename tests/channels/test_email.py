"""Mail: who really sent it, and what it says. `tests/e2e/test_channels.py` talks to real servers."""

import asyncio
from collections.abc import Sequence
from email.message import EmailMessage
from typing import Any

import pytest

from tests.channels.mail_server import AGENT, AUTHSERV, serve_mail
from tests.patience import HANG_SECONDS
from treadle.channels.attachments import load_attachments
from treadle.channels.email import Email
from treadle.channels.mail_parts import read_text
from treadle.channels.mail_sender import explain_distrust
from treadle.domain.channels import ChannelLimits
from treadle.domain.messages import Image, Text
from treadle.ports.channel import Incoming, IncomingFile
from treadle.testing.channels import PNG

ANNA = "anna@example.com"


@pytest.mark.parametrize(
    ("results", "is_proven"),
    [
        (f"{AUTHSERV}; spf=pass smtp.mailfrom=example.com", True),
        (f"{AUTHSERV}; dkim=pass header.d=example.com", True),
        (f"{AUTHSERV}; dkim=pass header.d=evil.example", False),
        (f"{AUTHSERV}; dkim=fail (dmarc=pass) header.d=example.com", False),
        (f"{AUTHSERV}; spf=pass smtp.mailfrom=evil.example", False),
        (f"{AUTHSERV}; dmarc=pass header.from=evil.example", False),
        (f"not-{AUTHSERV}; dmarc=pass header.from=example.com", False),
    ],
)
def test_only_the_receiving_server_proves_a_sender(results: str, is_proven: bool) -> None:
    mail = EmailMessage()
    mail["Authentication-Results"] = results
    mail["authentication-results"] = f"{AUTHSERV}; dmarc=pass"  # written by the sender, below
    assert (explain_distrust(mail, ANNA, AUTHSERV) == "") is (is_proven or not results.startswith(AUTHSERV))


def test_html_mail_is_read_without_markup_and_quotes() -> None:
    mail = EmailMessage()
    mail.set_content("<p>Hi <b>you</b></p><style>x</style><blockquote>old</blockquote>", subtype="html")
    assert read_text(mail) == "Hi you"


class CountingEmail(Email):
    """A mailbox that counts how often it is opened, and how many mails are fetched."""

    opened = 0
    fetched = 0

    async def _select(self, imap: Any) -> tuple[int, int]:
        self.opened += 1
        return await super()._select(imap)

    async def _fetch(self, imap: Any, uid: int) -> tuple[bytes | None, bool]:
        self.fetched += 1
        return await super()._fetch(imap, uid)


class OneMessage:
    """A receiver of one message."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.found = asyncio.get_running_loop().create_future()

    async def accept(self, messages: Sequence[Incoming], cursor: str | None = None) -> None:
        self.ready.set()
        for message in messages:
            self.found.set_result(message)

    async def cursor(self) -> str | None:
        return None

    async def conversations(self, after: str | None, limit: int) -> Sequence[str]:
        return ()

    def report_connected(self, account: str) -> None:
        pass


async def test_a_mail_is_fetched_once_for_all_its_attachments() -> None:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Message-ID"] = ANNA, AGENT, "<m1@client>"
    mail.set_content("look")
    mail.add_attachment(PNG, maintype="image", subtype="png", filename="a.png")
    mail.add_attachment("some text", filename="b.txt")
    mail.add_attachment(b"x" * 500, maintype="application", subtype="zip", filename="c.zip")

    async with serve_mail() as servers:
        channel, receiver = CountingEmail("email", servers.settings(verify=False)), OneMessage()
        receiving = asyncio.create_task(channel.receive(receiver))
        await asyncio.wait_for(receiver.ready.wait(), HANG_SECONDS)
        await servers.append(mail.as_bytes())
        message = await asyncio.wait_for(receiver.found, HANG_SECONDS)
        receiving.cancel()
        channel.opened = channel.fetched = 0
        parts = await load_attachments(message.attachments, channel, ChannelLimits(attachment_bytes=400))
        assert [type(part) for part in parts] == [Image, Text, Text]
        assert "c.zip: it has 500 bytes" in str(parts[2])
        assert (channel.opened, channel.fetched) == (1, 1)
        place = message.attachments[0].file_id.partition("/")[0]
        gone = await load_attachments((IncomingFile(f"{place}/7", "d"),), channel, ChannelLimits())
        assert "the mail is no longer there" in str(gone)
