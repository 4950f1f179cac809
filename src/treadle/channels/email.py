"""Mail: IMAP for what arrives, SMTP for what is sent."""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from email.message import EmailMessage
from email.utils import formatdate
from hashlib import blake2b
from typing import Any, Literal

import aioimaplib  # pyright: ignore[reportMissingTypeStubs] -- it has none
import aiosmtplib
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from treadle.channels.mail_parts import find_thread, list_attachments, parse_mail, read_payload, read_text
from treadle.channels.mail_sender import explain_distrust, find_sender, is_automatic
from treadle.channels.markdown import MATRIX, PLAIN, render
from treadle.ports.channel import (
    ChannelError,
    ChannelRefused,
    ContentRefused,
    Incoming,
    IncomingFile,
    Outgoing,
    Receiver,
    Traits,
)

MAX_MAIL_BYTES = 25_000_000
"""Larger mail is not fetched."""
LARGE_MAIL = (
    f"Your mail has more than {MAX_MAIL_BYTES // 1_000_000} MB with its attachments, so I did not read it. Please "
    "send less at once."
)
TOO_LARGE = 552
"""The answer of SMTP servers to mail that they do not accept because of its size."""
IDLE_SECONDS = 1500.0
POLL_SECONDS = 15.0
COMMAND_SECONDS = 60.0
TRAITS = Traits(max_characters=100_000, deduplicates=True, combines_files=True)
LOST = (aioimaplib.AioImapException, aioimaplib.Abort, aioimaplib.Error, OSError, TimeoutError)


class EmailSettings(Struct, frozen=True, forbid_unknown_fields=True):
    address: str
    """The address of the agent."""
    imap_host: str
    smtp_host: str
    password: str
    username: str = ""
    """Default: the address."""
    imap_port: int = 993
    imap_tls: bool = True
    smtp_port: int = 465
    smtp_tls: Literal["tls", "starttls", "none"] = "tls"
    authserv_id: str = ""
    """The name that the own mail server writes into Authentication-Results. Mail that it did not authenticate is
    dropped."""
    verify: bool = True
    """Whether senders must be authenticated. False only for a server that accepts mail of its own users alone."""
    folder: str = "INBOX"
    subject: str = "A message from Treadle"
    """The subject of mail that begins a conversation."""

    def __post_init__(self) -> None:
        if self.verify and not self.authserv_id:
            raise ValueError("`authserv_id` is needed to recognise forged senders (see docs/channels/email.md)")


class Email:
    """Implements `ports.channel.BatchChannel`. A conversation is an address, followed by the first message and the
    subject of its thread. The address is part of it, so a forged reference leads nowhere else."""

    def __init__(self, name: str, settings: Mapping[str, Any]) -> None:
        try:
            self._settings = msgspec.convert(dict(settings), EmailSettings)
        except msgspec.ValidationError as error:
            raise ValueError(f"settings: {error}") from None
        self.traits = TRAITS

    async def check(self) -> str:
        async with self._mailbox() as imap:
            await self._select(imap)
        client = aiosmtplib.SMTP(**self._smtp_options())
        try:
            await client.connect()
            if self._settings.smtp_tls != "none":
                await client.login(self._username, self._settings.password)
            await client.quit()
        except aiosmtplib.SMTPException as error:
            raise ChannelError(f"{self._settings.smtp_host} rejects the login: {error}") from None
        return self._settings.address

    async def receive(self, receiver: Receiver) -> None:
        async with self._mailbox() as imap:
            validity, next_uid = await self._select(imap)
            known, _, last = (await receiver.cursor() or "").partition(":")
            uid = int(last) if known == str(validity) and last.isdecimal() else next_uid - 1
            await receiver.accept((), f"{validity}:{uid}")
            while True:
                for number in await self._list_new(imap, uid):
                    message = await self._read(imap, validity, number)
                    await receiver.accept(() if message is None else (message,), f"{validity}:{number}")
                    uid = number
                await self._wait(imap)

    async def send(self, message: Outgoing) -> str:
        mail = self._compose(message)
        try:
            await aiosmtplib.send(mail, **self._smtp_options(), **self._login())
        except (aiosmtplib.SMTPRecipientsRefused, aiosmtplib.SMTPSenderRefused) as error:
            raise ChannelRefused(f"the mail server refuses the mail: {error}") from None
        except aiosmtplib.SMTPResponseException as error:
            kind = (
                ContentRefused
                if error.code == TOO_LARGE
                else ChannelRefused
                if 550 <= error.code < 560
                else ChannelError
            )
            raise kind(f"the mail server answered {error.code}: {error.message}") from None
        except (aiosmtplib.SMTPException, OSError) as error:
            raise ChannelError(f"the mail was not sent: {error}") from None
        return str(mail["Message-ID"])

    async def edit(self, message_id: str, message: Outgoing) -> None:
        raise ChannelRefused("mail cannot be edited")

    async def show_typing(self, conversation: str) -> None:
        """Do nothing: mail has no typing indicator."""

    async def fetch(self, attachment: IncomingFile, max_bytes: int) -> bytes:
        [found] = await self.fetch_all((attachment,), max_bytes)
        if isinstance(found, ChannelRefused):
            raise found
        return found

    async def fetch_all(
        self, attachments: Sequence[IncomingFile], max_bytes: int
    ) -> Sequence[bytes | ChannelRefused]:
        """Return attachments. Each mail is fetched once."""
        places = [each.file_id.partition("/")[::2] for each in attachments]
        mails: dict[str, list[Any]] = {}
        async with self._mailbox() as imap:
            current = (await self._select(imap))[0]
            for place in dict.fromkeys(place for place, _ in places):
                validity, _, uid = place.partition(".")
                is_same = int(validity) == current  # else the UID is that of another mail
                raw = (await self._fetch(imap, int(uid)))[0] if is_same else None
                mails[place] = [] if raw is None else list(parse_mail(raw).iter_attachments())
        return [_take_part(mails[place], int(number), max_bytes) for place, number in places]

    async def close(self) -> None:
        """Do nothing: connections are closed where they are used."""

    # ── IMAP ──

    @asynccontextmanager
    async def _mailbox(self) -> AsyncGenerator[Any, None]:
        settings = self._settings
        kind = aioimaplib.IMAP4_SSL if settings.imap_tls else aioimaplib.IMAP4
        imap: Any = kind(settings.imap_host, settings.imap_port, timeout=COMMAND_SECONDS)
        try:
            await imap.wait_hello_from_server()
            answer = await imap.login(self._username, settings.password)
            if answer.result != "OK":
                raise ChannelError(f"{settings.imap_host} rejects the login of {self._username}")
            yield imap
        except LOST as error:
            raise ChannelError(f"{settings.imap_host}: {error or type(error).__name__}") from None
        finally:
            with suppress(Exception):
                async with asyncio.timeout(5):
                    await imap.logout()
            with suppress(Exception):
                imap.protocol.transport.close()

    async def _select(self, imap: Any) -> tuple[int, int]:
        """Open the folder. Return its UIDVALIDITY and the UID that the next mail gets."""
        answer = await imap.select(self._settings.folder)
        if answer.result != "OK":
            raise ChannelError(f"the folder {self._settings.folder} cannot be opened")
        text = " ".join(bytes(line).decode("ascii", "replace") for line in answer.lines)
        validity, following = re.search(r"UIDVALIDITY (\d+)", text), re.search(r"UIDNEXT (\d+)", text)
        return int(validity[1]) if validity else 0, int(following[1]) if following else 1

    async def _list_new(self, imap: Any, after: int) -> list[int]:
        answer = await imap.uid_search(f"UID {after + 1}:*")
        text = " ".join(bytes(line).decode("ascii", "replace") for line in answer.lines[:1])
        return sorted(int(each) for each in text.split() if each.isdecimal() and int(each) > after)

    async def _fetch(self, imap: Any, uid: int) -> tuple[bytes | None, bool]:
        """Return the bytes of a mail, or None if it is gone, and whether they are the whole mail. Of a mail that is
        too large, only the header is fetched."""
        size = await imap.uid("fetch", str(uid), "(RFC822.SIZE)")
        found = re.search(rb"RFC822\.SIZE (\d+)", b" ".join(bytes(line) for line in size.lines))
        is_whole = found is not None and int(found[1]) <= MAX_MAIL_BYTES
        answer = await imap.uid("fetch", str(uid), "(BODY.PEEK[])" if is_whole else "(BODY.PEEK[HEADER])")
        for line in answer.lines:
            if isinstance(line, bytearray):
                return bytes(line), is_whole
        return None, is_whole

    async def _wait(self, imap: Any) -> None:
        """Wait for news of the server."""
        if not imap.has_capability("IDLE"):
            await asyncio.sleep(POLL_SECONDS)
            await imap.noop()
            return
        idle = await imap.idle_start(timeout=IDLE_SECONDS)
        try:
            await imap.wait_server_push(IDLE_SECONDS)
        except TimeoutError:
            pass
        finally:
            imap.idle_done()
        await asyncio.wait_for(idle, COMMAND_SECONDS)

    # ── Reading ──

    async def _read(self, imap: Any, validity: int, uid: int) -> Incoming | None:
        raw, is_whole = await self._fetch(imap, uid)
        if raw is None:
            return None
        try:
            message = self._parse(parse_mail(raw), f"{validity}.{uid}")
            return message if is_whole else replace(message, problem=LARGE_MAIL, text="", attachments=())
        except Exception as error:  # a mail that stops the parser must not stop the channel
            return Incoming(
                f"uid/{uid}", "", "", distrust=f"the mail cannot be read: {error or type(error).__name__}"
            )

    def _parse(self, mail: EmailMessage, place: str) -> Incoming:
        address, name = find_sender(mail)
        settings = self._settings
        distrust = explain_distrust(mail, address, settings.authserv_id) if settings.verify else ""
        message_id = " ".join(str(mail.get("Message-ID", "")).split())[:250] or f"uid/{place}"
        root, replied, subject = find_thread(mail, message_id)
        return Incoming(
            message_id=f"{address} {message_id}",
            conversation=f"{address} {root} {subject}".strip(),
            sender=address,
            sender_name=name,
            text=read_text(mail),
            attachments=list_attachments(mail, place),
            is_bot=is_automatic(mail, address) or address == settings.address.lower(),
            distrust=distrust,
            reply_to=replied,
            parent=address,
        )

    # ── Writing ──

    def _compose(self, message: Outgoing) -> EmailMessage:
        address, root, subject = [*message.conversation.split(" ", 2), "", ""][:3]
        mail = EmailMessage()
        mail["From"], mail["To"] = self._settings.address, address
        mail["Subject"] = f"Re: {subject}" if root else self._settings.subject
        domain = self._settings.address.rpartition("@")[2]
        key = blake2b(message.key.encode("utf-8", "replace"), digest_size=20).hexdigest()
        mail["Message-ID"], mail["Date"] = f"<{key}@{domain}>", formatdate(localtime=False)
        mail["Auto-Submitted"] = "auto-replied" if root else "auto-generated"
        if root.startswith("<"):
            mail["In-Reply-To"], mail["References"] = root, root
        mail.set_content(render(message.text, PLAIN) + "\n")
        mail.add_alternative(
            f'<div style="white-space: pre-wrap">{render(message.text, MATRIX)}</div>', subtype="html"
        )
        for file in message.files:
            kind, _, rest = file.media_type.partition("/")
            mail.add_attachment(file.data, maintype=kind, subtype=rest or "octet-stream", filename=file.name)
        return mail

    @property
    def _username(self) -> str:
        return self._settings.username or self._settings.address

    def _login(self) -> dict[str, Any]:
        if self._settings.smtp_tls == "none":
            return {}  # a relay of the own network; a password would be readable on the way
        return {"username": self._username, "password": self._settings.password}

    def _smtp_options(self) -> dict[str, Any]:
        settings = self._settings
        return {
            "hostname": settings.smtp_host,
            "port": settings.smtp_port,
            "use_tls": settings.smtp_tls == "tls",
            "start_tls": settings.smtp_tls == "starttls",
            "timeout": 30,
        }


def _take_part(parts: Sequence[Any], number: int, max_bytes: int) -> bytes | ChannelRefused:
    if number >= len(parts):
        return ChannelRefused("the mail is no longer there")
    data = read_payload(parts[number])
    return data if len(data) <= max_bytes else ChannelRefused(f"it has more than {max_bytes} bytes")
