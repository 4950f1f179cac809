"""Reading mail: who really sent it, whether a program did, what it says, and the thread that it belongs to."""

import re
from email.headerregistry import Address
from email.message import EmailMessage
from html.parser import HTMLParser
from typing import Any, cast

from treadle.ports.channel import IncomingFile

_PREFIX = re.compile(r"\A\s*(?:(?:re|aw|fwd?|wg|sv|antw)\s*:\s*)+", re.IGNORECASE)
_ID = re.compile(r"<[^<>\s]{1,250}>")
_QUOTE_HEAD = re.compile(r"^(?:On .{0,200}wrote:|Am .{0,200}schrieb.{0,200}:|-{2,} ?Original Message ?-{2,})\s*$")
_AUTOMATIC = ("mailer-daemon", "postmaster", "no-reply", "noreply", "do-not-reply", "donotreply")


def find_sender(mail: EmailMessage) -> tuple[str, str]:
    """Return the address and name of the only author. Raise ValueError if there is not exactly one."""
    headers = mail.get_all("From") or []
    addresses = [each for header in headers for each in cast("tuple[Address, ...]", header.addresses)]
    if len(headers) != 1 or len(addresses) != 1 or not addresses[0].domain:
        raise ValueError(f"the mail has {len(addresses)} authors in {len(headers)} From headers")
    return addresses[0].addr_spec.lower(), addresses[0].display_name


def explain_distrust(mail: EmailMessage, address: str, authserv_id: str) -> str:
    """Return why the From of a mail is not proven, or "".

    Only the header of the own mail server counts, and of these the topmost: a sender can write others."""
    domain = address.rpartition("@")[2]
    for header in mail.get_all("Authentication-Results") or []:
        text = re.sub(r"\([^()]*\)", " ", str(header)).lower()
        server, _, results = text.partition(";")
        if (server.split() or [""])[0] != authserv_id.lower():
            continue
        for result in results.split(";"):
            if re.search(r"\bdmarc\s*=\s*pass\b", result):
                named = re.search(r"header\.from\s*=\s*\"?([\w.-]+)", result)
                if named is None or _is_aligned(named[1], domain):
                    return ""
            if re.search(r"\bdkim\s*=\s*pass\b", result):
                signed = re.search(r"header\.(?:d|i)\s*=\s*\"?(?:[^@\s;\"]*@)?([\w.-]+)", result)
                if signed is not None and _is_aligned(signed[1], domain):
                    return ""
            if re.search(r"\bspf\s*=\s*pass\b", result):
                sent = re.search(r"smtp\.mailfrom\s*=\s*\"?(?:[^@\s;\"]*@)?([\w.-]+)", result)
                if sent is not None and sent[1] == domain:
                    return ""
        return f"{authserv_id} did not authenticate {domain}"
    return f"there is no Authentication-Results header of {authserv_id}"


def _is_aligned(signer: str, domain: str) -> bool:
    return domain == signer or domain.endswith(f".{signer}")


def is_automatic(mail: EmailMessage, address: str) -> bool:
    """Return whether a program sent the mail: an auto-reply, a bounce or a mailing list."""
    submitted = str(mail.get("Auto-Submitted", "no")).partition(";")[0].strip().lower()
    precedence = str(mail.get("Precedence", "")).strip().lower()
    return (
        submitted != "no"
        or precedence in ("bulk", "junk", "list", "auto_reply")
        or any(mail.get(name) is not None for name in ("List-Id", "X-Autoreply", "X-Autorespond", "X-Loop"))
        or str(mail.get("Return-Path", "")).strip() == "<>"
        or address.partition("@")[0] in _AUTOMATIC
    )


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


def list_attachments(mail: EmailMessage, uid: int) -> tuple[IncomingFile, ...]:
    return tuple(
        IncomingFile(f"{uid}/{number}", part.get_filename() or "", part.get_content_type(), len(read_payload(part)))
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
