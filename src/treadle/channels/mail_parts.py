"""Reading mail: what it says, its attachments, and the thread that it belongs to."""

import re
from email import message_from_bytes, policy
from email.message import EmailMessage
from html.parser import HTMLParser
from typing import Any, cast

from treadle.ports.channel import IncomingFile

_PREFIX = re.compile(r"\A\s*(?:(?:re|aw|fwd?|wg|sv|antw)\s*:\s*)+", re.IGNORECASE)
_ID = re.compile(r"<[^<>\s]{1,250}>")
_QUOTE_HEAD = re.compile(r"^(?:On .{0,200}wrote:|Am .{0,200}schrieb.{0,200}:|-{2,} ?Original Message ?-{2,})\s*$")


def parse_mail(raw: bytes) -> EmailMessage:
    return message_from_bytes(raw, policy=policy.default)


def find_thread(mail: EmailMessage, message_id: str) -> tuple[str, str, str]:
    """Return the first message of the thread, the message that it replies to, and the subject without `Re:`."""
    references = _ID.findall(str(mail.get("References", "")))
    replied = _ID.findall(str(mail.get("In-Reply-To", "")))
    root = (references or replied or [message_id])[0]
    subject = " ".join(_PREFIX.sub("", str(mail.get("Subject", ""))).split())[:120]
    return root, (replied or references[-1:] or [""])[0], subject


def read_text(mail: EmailMessage) -> str:
    """Return what the author wrote, without what is quoted."""
    body = mail.get_body(("plain", "html"))
    if body is None:
        return ""
    try:
        text = str(body.get_content())
    except (LookupError, UnicodeError, ValueError):
        payload = cast("Any", body.get_payload(decode=True))
        text = payload.decode("utf-8", "replace") if isinstance(payload, bytes) else ""
    if body.get_content_subtype() == "html":
        reader = _HtmlText()
        reader.feed(text)
        text = "".join(reader.parts)
    return _remove_quotes(text)


def _remove_quotes(text: str) -> str:
    kept: list[str] = []
    for line in text.replace("\r\n", "\n").split("\n"):
        if _QUOTE_HEAD.match(line) or line == "-- ":
            break
        if not line.startswith(">"):
            kept.append(line)
    return "\n".join(kept).strip()


def list_attachments(mail: EmailMessage, place: str) -> tuple[IncomingFile, ...]:
    """Return the attachments. `place` says where the mail is stored."""
    return tuple(
        IncomingFile(
            f"{place}/{number}", part.get_filename() or "", part.get_content_type(), len(read_payload(part))
        )
        for number, part in enumerate(mail.iter_attachments())
    )


def read_payload(part: Any) -> bytes:
    """Return the bytes of an attachment."""
    content = part.get_payload(decode=True)
    return content if isinstance(content, bytes) else b""


class _HtmlText(HTMLParser):
    """The text of an HTML mail, without quotes, scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._skipped = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "style", "blockquote", "head"):
            self._skipped += 1
        elif tag in ("br", "p", "div", "li", "tr"):
            self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style", "blockquote", "head") and self._skipped:
            self._skipped -= 1

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self.parts.append(data)
