"""Reading mail: what it says, its attachments, and the thread that it belongs to."""

import re
from collections.abc import Sequence
from email import message_from_bytes, policy
from email.message import EmailMessage
from html.parser import HTMLParser
from typing import Any, cast

from treadle.ports.channel import IncomingFile

_PREFIX = re.compile(r"\A\s*(?:(?:re|aw|fwd?|wg|sv|antw)\s*:\s*)+", re.IGNORECASE)
_ID = re.compile(r"<[^<>\s]{1,250}>")
_ORIGINAL = re.compile(r"^-{2,} ?(?:Original|Forwarded) Message ?-{2,}$", re.IGNORECASE)
_ATTRIBUTION = re.compile(r"^(?:On\b.{0,300}\bwrote|Am\b.{0,300}\bschrieb.{0,200}) ?:$", re.DOTALL)
_DATE_OR_ADDRESS = re.compile(r"\d{4}|\d:\d\d|\d[./]\d|\S@\S")
_MAX_ATTRIBUTION_LINES = 3
_BLOCKS = frozenset(("br", "p", "div", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "table", "hr", "pre"))
_HIDDEN = frozenset(("script", "style", "title"))


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
    text = text.replace("\r\n", "\n")
    is_reply = mail.get("In-Reply-To") is not None or mail.get("References") is not None
    return _remove_quotes(text) or ("" if is_reply else text.strip())  # a mail that was only forwarded


def _remove_quotes(text: str) -> str:
    """Return a text without quoted lines and what introduces them, also if the author has written below them."""
    lines = text.split("\n")
    kept: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at].strip()
        if lines[at].rstrip() == "--" or _ORIGINAL.match(line):
            break
        if line.startswith(">"):
            at += 1
        elif length := _measure_attribution(lines, at):
            at += length
            if not _is_quote_next(lines, at):
                break  # what follows is quoted without marks
        else:
            kept.append(lines[at])
            at += 1
    return "\n".join(kept).strip()


def _measure_attribution(lines: Sequence[str], at: int) -> int:
    """Return how many lines say who wrote what is quoted next, or 0."""
    for length in range(1, min(_MAX_ATTRIBUTION_LINES, len(lines) - at) + 1):
        said = " ".join(line.strip() for line in lines[at : at + length]).strip()
        is_followed, is_dated = _is_quote_next(lines, at + length), _DATE_OR_ADDRESS.search(said) is not None
        if _ATTRIBUTION.match(said) and (is_followed or is_dated):
            return length
        # In other languages: an address or a date directly before a quote. The address may be on a line of its own.
        is_one = length == 1 or (length == 2 and lines[at + 1].strip().startswith("<"))
        if is_one and is_followed and is_dated and said.endswith(":") and len(said) <= 300:
            return length
    return 0


def _is_quote_next(lines: Sequence[str], at: int) -> bool:
    return next((line.strip().startswith(">") for line in lines[at:] if line.strip()), False)


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
    """The text of an HTML mail, without scripts and styles. Quotes become lines with a mark."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._hidden = ""
        self._quotes = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _HIDDEN:
            self._hidden = tag
        elif tag == "body":
            self._hidden = ""  # end tags before it may be left out
        elif tag == "blockquote":
            self._quotes += 1
        if tag in _BLOCKS or tag == "blockquote":
            self._break_line()

    def handle_endtag(self, tag: str) -> None:
        if tag == self._hidden:
            self._hidden = ""
        elif tag == "blockquote" and self._quotes:
            self._quotes -= 1
        if tag in _BLOCKS - {"br"} or tag == "blockquote":
            self._break_line()

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(data.replace("\n", "\n> ") if self._quotes else data)

    def _break_line(self) -> None:
        mark = "\n> " if self._quotes else "\n"
        if not self.parts or self.parts[-1] != mark:
            self.parts.append(mark)
