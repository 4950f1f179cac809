"""What the author of a mail has written, and mail and files that are refused."""

import asyncio

import pytest

from tests.channels.mail_server import serve_mail
from tests.channels.test_email import ANNA, OneMessage
from tests.patience import HANG_SECONDS
from treadle.channels import email
from treadle.channels.attachments import load_attachments
from treadle.channels.email import Email
from treadle.channels.mail_parts import parse_mail, read_text
from treadle.domain.channels import ChannelLimits
from treadle.domain.messages import Text
from treadle.ports.channel import IncomingFile


def read(body: str, kind: str = "plain", reply: bool = True) -> str:
    header = f"From: anna@example.org\nContent-Type: text/{kind}; charset=utf-8\n"
    header += "In-Reply-To: <1@example.org>\n" if reply else ""
    return read_text(parse_mail(f"{header}\n{body}".encode()))


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("> quoted\nanswer", "answer"),
        ("On Mon, Anna wrote:\n> x\nmy answer below", "my answer below"),
        ("On Mon, Anna wrote:\n> x\n\none\n> y\ntwo", "one\ntwo"),
        ("\u00a0On 1 Jan 2026, at 10:00, Bot\n<agent@x.org> wrote:\n\n> approve or deny\nyes", "yes"),
        ("yes\n\nOn 1 Jan 2026, Bot\n<agent@x.org> wrote:\n\n> approve or deny", "yes"),
        ("Le 3 mai 2026, Bob <b@x.org> a écrit :\n> q\nma réponse", "ma réponse"),
        ("hi\n\n-----Original Message-----\nFrom: x\nold", "hi"),
        ("top\n\nOn 1 Jan 2026, Anna wrote:\nwithout marks", "top"),
        ("On Monday he came and wrote:\nhello", "On Monday he came and wrote:\nhello"),
        ("Is this right:\n> q\nyes", "Is this right:\nyes"),
        ("text\n--\nAnna", "text"),
    ],
)
def test_quotes_are_left_out_of_text(body: str, text: str) -> None:
    assert read(body) == text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<html><head><title>t</title><body>Hello</body>", "Hello"),
        ("<head><style>x{}</style><title>t</title><p>Hi <b>you</b>", "Hi you"),
        ("<p>hi<blockquote>q<p>r</blockquote>after", "hi\nafter"),
        ("<p>hi</p><blockquote>not closed<p>quoted", "hi"),
        ("<div>On 1 Jan 2026, A wrote:<br></div><blockquote>one\ntwo</blockquote><div>below</div>", "below"),
        ("<p>one</p><p>two</p><div>three<br>four</div>", "one\ntwo\nthree\nfour"),
        ("<script>bad()</script>fine", "fine"),
    ],
)
def test_html_is_read_as_people_see_it(body: str, text: str) -> None:
    assert read(body, "html") == text


def test_the_text_of_a_forwarded_mail_is_read() -> None:
    forwarded = "---------- Forwarded message ---------\nFrom: Ben\n\nPlease pay."
    assert "Please pay." in read(forwarded, reply=False)
    assert read("> approve", reply=True) == "", "a reply without text says nothing"


async def test_a_person_learns_that_a_mail_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(email, "MAX_MAIL_BYTES", 2000)
    async with serve_mail() as servers:
        channel, receiver = Email("email", servers.settings(verify=False)), OneMessage()
        receiving = asyncio.create_task(channel.receive(receiver))
        await asyncio.wait_for(receiver.ready.wait(), HANG_SECONDS)
        await servers.deliver(ANNA, "words " * 1000, 1)
        message = await asyncio.wait_for(receiver.found, HANG_SECONDS)
        receiving.cancel()
        await asyncio.wait([receiving])
        assert message.sender == ANNA
        assert "more than 25 MB" in message.problem


class Files:
    """A channel whose files have a content."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def fetch(self, attachment: IncomingFile, max_bytes: int) -> bytes:
        return self._data


@pytest.mark.parametrize(
    ("kind", "data", "text"),
    [
        ("application/octet-stream", b"a line of a log", "[File notes]\na line of a log"),
        ("application/x-sh", b"#!/bin/sh", "[File notes]\n#!/bin/sh"),
        ("", "grün".encode(), "[File notes]\ngrün"),
        ("Text/Plain", b"hello", "[File notes]\nhello"),
        ("text/plain", b"\xff\xfe", "notes: it is not text in UTF-8"),
        ("application/zip", b"PK\x03\x04\x00", "notes: files of the type application/zip are not accepted"),
        ("application/pdf", b"%PDF-1.7 words", "notes: files of the type application/pdf are not accepted"),
    ],
)
async def test_the_content_of_a_file_decides_whether_it_is_text(kind: str, data: bytes, text: str) -> None:
    file = IncomingFile("1", "notes", kind)
    [part] = await load_attachments((file,), Files(data), ChannelLimits())  # pyright: ignore[reportArgumentType]
    assert isinstance(part, Text)
    assert text in part.text


async def test_only_the_first_eight_files_of_a_message_are_read() -> None:
    files = tuple(IncomingFile(f"{number}", f"file{number}") for number in range(20))
    parts = await load_attachments(files, Files(b"text"), ChannelLimits())  # pyright: ignore[reportArgumentType]
    assert len(parts) == 9
    assert "12 more files: a message may have 8" in str(parts[-1])
