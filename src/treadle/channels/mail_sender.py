"""Who sent a mail: the author, whether the receiving server proved it, and whether a program wrote it."""

import re
from collections.abc import Iterable, Mapping
from email.headerregistry import Address, Group
from email.message import EmailMessage
from typing import cast

from msgspec import Struct

_ADDRESS = re.compile(r"[^\s\"<>()\[\]\\,;:@\x00-\x1f\x7f-\U0010ffff]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+")
"""An address without quoting. Mail servers and Treadle could read another form in different ways."""
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_COMMENT = re.compile(r"\((?:[^()\\]|\\.)*\)", re.DOTALL)
_AUTOMATIC = (
    "mailer-daemon",
    "postmaster",
    "no-reply",
    "noreply",
    "do-not-reply",
    "donotreply",
    "bounce",
    "bounces",
)
_AUTOMATIC_PREFIXES = ("owner-", "bounce-", "bounces-", "bounce+", "bounces+")
_AUTOMATIC_SUFFIXES = ("-request", "-bounces", "-bounce", "-owner")
_AUTOMATIC_HEADERS = ("x-autoreply", "x-autorespond", "x-loop", "x-failed-recipients")
_REPORTS = ("multipart/report", "message/delivery-status", "message/disposition-notification")

# ── The author ──


def find_sender(mail: EmailMessage) -> tuple[str, str]:
    """Return the address and name of the only author. Raise ValueError if there is not exactly one, or if mail
    programs could read the header in different ways."""
    headers = mail.get_all("From") or []
    raw = [str(value) for name, value in mail.raw_items() if name.lower() == "from"]
    addresses = [each for header in headers for each in cast("tuple[Address, ...]", header.addresses)]
    if len(headers) != 1 or len(addresses) != 1:
        raise ValueError(f"the mail has {len(addresses)} authors in {len(headers)} From headers")
    groups = cast("tuple[Group, ...]", headers[0].groups)
    address = addresses[0].addr_spec
    if any(group.display_name for group in groups) or not _ADDRESS.fullmatch(address):
        raise ValueError("the author is not a plain address")
    if _find_plain_addresses(raw[0]) != [address.lower()]:
        raise ValueError("the From header is ambiguous")
    return address.lower(), _clean_name(addresses[0].display_name)


def _find_plain_addresses(header: str) -> list[str]:
    """Return what looks like an address outside of quotes and comments."""
    text, count = _QUOTED.sub(" ", header), 1
    while count:
        text, count = _COMMENT.subn(" ", text)
    return [found.strip("<>,;:").lower() for found in re.split(r"[\s<>]+", text) if "@" in found]


def _clean_name(name: str) -> str:
    """Return a display name, or "" if it could be taken for an address."""
    return "" if "@" in name or "\uff20" in name else " ".join(name.split())[:100]


# ── Authentication ──


class AuthenticationResult(Struct, frozen=True):
    """One result of a header Authentication-Results (RFC 8601)."""

    method: str
    result: str
    properties: Mapping[str, str]


def explain_distrust(mail: EmailMessage, address: str, authserv_id: str) -> str:
    """Return why the From of a mail is not proven, or "".

    Only the topmost header of the configured receiving server counts. A sender can write others below it."""
    domain = address.rpartition("@")[2]
    for name, value in mail.raw_items():
        if name.lower() != "authentication-results":
            continue
        try:
            server, results = parse_authentication_results(str(value))
        except ValueError:
            return f"an Authentication-Results header cannot be read, so {authserv_id} has proven nothing"
        if server != authserv_id.lower():
            continue
        if any(each.method == "dmarc" and each.result == "fail" for each in results):
            return f"{authserv_id} says that DMARC fails for {domain}"
        if any(_is_proof(each, domain) for each in results):
            return ""
        return f"{authserv_id} did not authenticate {domain}"
    return f"there is no Authentication-Results header of {authserv_id}"


def _is_proof(found: AuthenticationResult, domain: str) -> bool:
    if found.result != "pass":
        return False
    named = found.properties
    match found.method:
        case "dmarc":
            return "header.from" not in named or _is_aligned(_find_domain(named["header.from"]), domain)
        case "dkim":
            signer = named.get("header.d") or named.get("header.i") or ""
            return _is_aligned(_find_domain(signer), domain)
        case "spf":
            return _find_domain(named.get("smtp.mailfrom", "")) == domain
        case _:
            return False


def _find_domain(value: str) -> str:
    return value.rpartition("@")[2]


def _is_aligned(signer: str, domain: str) -> bool:
    return domain == signer or ("." in signer and domain.endswith(f".{signer}"))


def parse_authentication_results(header: str) -> tuple[str, list[AuthenticationResult]]:
    """Return the server and the results of a header. Raise ValueError if it cannot be read.

    Quotes and comments are read as RFC 8601 says: a sender chooses parts of them, such as the local part of the
    envelope's address. A result that names a property twice is left out."""
    [first, *rest] = _split_results(header)
    if not first:
        raise ValueError("there is no server")
    results: list[AuthenticationResult] = []
    for words in rest:
        pairs = [(name, value) for name, _, value in (each.partition("=") for each in _join_pairs(words))]
        if not pairs:
            continue
        (method, result), properties = pairs[0], pairs[1:]
        if len({name for name, _ in properties}) == len(properties):
            results.append(AuthenticationResult(method.partition("/")[0], result, dict(properties)))
    return first[0], results


def _split_results(header: str) -> list[list[str]]:
    """Return the words of each part between semicolons, in lower case, without quotes and comments."""
    parts: list[list[str]] = [[]]
    word, depth, is_quoted, is_escaped = "", 0, False, False
    for each in header.lower():
        if is_escaped:
            word, is_escaped = (word if depth else word + each), False
        elif each == "\\" and (depth or is_quoted):
            is_escaped = True
        elif is_quoted:
            is_quoted = each != '"'
            word += "" if each == '"' else each
        elif each in "()":
            depth += 1 if each == "(" else -1
            word = _end_word(parts, word)
        elif depth:
            pass
        elif each == '"':
            is_quoted = True
        elif each == ";" or each.isspace():
            word = _end_word(parts, word)
            if each == ";":
                parts.append([])
        else:
            word += each
        if depth < 0:
            raise ValueError("a comment is closed that was not opened")
    _end_word(parts, word)
    if depth or is_quoted:
        raise ValueError("a comment or a quoted text is not closed")
    return parts


def _end_word(parts: list[list[str]], word: str) -> str:
    if word:
        parts[-1].append(word)
    return ""


def _join_pairs(words: Iterable[str]) -> list[str]:
    """Return `name=value` where spaces surround the equals sign."""
    found: list[str] = []
    for word in words:
        is_value = bool(found) and found[-1].endswith("=") and found[-1].count("=") == 1
        if found and (is_value or word.startswith("=")):
            found[-1] += word
        else:
            found.append(word)
    return found


# ── Programs ──


def is_automatic(mail: EmailMessage, address: str) -> bool:
    """Return whether a program sent the mail: an auto-reply, a bounce or a mailing list (RFC 3834)."""
    names = {name.lower() for name in mail.keys()}  # noqa: SIM118 -- a message is not a mapping
    local = address.partition("@")[0]
    return (
        any(each.partition(";")[0].strip() != "no" for each in _list_values(mail, "Auto-Submitted"))
        or any(each in ("bulk", "junk", "list", "auto_reply") for each in _list_values(mail, "Precedence"))
        or any(each not in ("", "none") for each in _list_values(mail, "X-Auto-Response-Suppress"))
        or any(name.startswith("list-") or name in _AUTOMATIC_HEADERS for name in names)
        or "<>" in _list_values(mail, "Return-Path")
        or mail.get_content_type() in _REPORTS
        or local in _AUTOMATIC
        or local.startswith(_AUTOMATIC_PREFIXES)
        or local.endswith(_AUTOMATIC_SUFFIXES)
    )


def _list_values(mail: EmailMessage, name: str) -> list[str]:
    return [" ".join(str(value).split()).lower() for key, value in mail.raw_items() if key.lower() == name.lower()]
