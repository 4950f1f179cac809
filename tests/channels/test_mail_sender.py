"""Mail that claims another author, and mail that programs send."""

from email import message_from_bytes, policy
from email.message import EmailMessage

import pytest

from tests.channels.mail_server import AUTHSERV
from treadle.channels.mail_sender import explain_distrust, find_sender, is_automatic

ANNA = "anna@example.com"


def read(*lines: str | bytes) -> EmailMessage:
    raw = b"\r\n".join(each if isinstance(each, bytes) else each.encode() for each in lines)
    return message_from_bytes(raw + b"\r\n\r\nhi\r\n", policy=policy.default)


FORGED = [
    "spf=pass smtp.mailfrom=example.com",
    "dmarc=pass header.from=example.com",
    "dkim=pass header.d=example.com",
]


@pytest.mark.parametrize(
    "results",
    [
        'spf=pass smtp.mailfrom="example.com x"@evil.example',
        'spf=pass smtp.mailfrom="anna@example.com "@evil.example',
        'spf=pass smtp.mailfrom="x; dmarc=pass header.from=example.com"@evil.example',
        'spf=pass smtp.mailfrom="x; dmarc=pass header.from=example.com ;"@evil.example',
        "spf=pass (domain of (a) ; dmarc=pass header.from=example.com ) smtp.mailfrom=evil.example",
        'spf=pass (domain of "a\\) ; dmarc=pass header.from=example.com) smtp.mailfrom=evil.example',
        'dkim=fail reason="dmarc=pass header.from=example.com" header.d=evil.example',
        "dkim=fail header.x-dmarc=pass header.from=example.com",
        "iprev=pass dmarc=pass header.from=example.com",
        "dkim=pass header.d=com",
        "dkim=pass header.d=evil.example header.d=example.com",
        'dkim=pass header.i="x@example.com "@evil.example',
        "dmarc=fail header.from=example.com; spf=pass smtp.mailfrom=example.com",
        "=?utf-8?q?x?= =?utf-8?q?=3B_dmarc=3Dpass_header=2Efrom=3Dexample=2Ecom?=",
        "dmarc=pass (not closed header.from=example.com",
        "none",
        "",
    ],
)
def test_authentication_results_that_contain_text_of_the_sender_prove_nothing(results: str) -> None:
    below = [f"Authentication-Results: {AUTHSERV}; {each}" for each in FORGED]
    mail = read(f"Authentication-Results: {AUTHSERV}; {results}", f"From: {ANNA}", *below)
    assert explain_distrust(mail, ANNA, AUTHSERV) != ""


@pytest.mark.parametrize(
    "results",
    [
        "1; dkim = pass (2048-bit key; unprotected) header.d = example.com header.b=AbC+/dE=",
        ' 1 ;\r\n\tspf=pass (google.com: domain of "x)(" designates 1.2.3.4) smtp.mailfrom="anna b"@example.com',
        "; arc=none; dmarc=pass (p=REJECT sp=NONE dis=NONE) header.from=Example.COM",
        "; dkim=pass header.i=@example.com header.s=s1 header.b=x; spf=fail smtp.mailfrom=bounce.example.net",
        "; dkim/1=pass header.d=example.com",
    ],
)
def test_results_of_the_receiving_server_prove_the_domain(results: str) -> None:
    mail = read(f"Authentication-Results: {AUTHSERV.upper()} {results}", f"From: {ANNA}")
    assert explain_distrust(mail, ANNA, AUTHSERV) == ""


@pytest.mark.parametrize(
    "lines",
    [
        (f"From: {ANNA}", "From: evil@evil.example"),
        ("From: evil@evil.example", f"FROM: {ANNA}"),
        (f"From: {ANNA}, evil@evil.example",),
        (f"From: {ANNA} <evil@evil.example>",),
        (f"From: <evil@evil.example> {ANNA}",),
        (f"From: friends: {ANNA};",),
        ("From: friends: anna@example.com, evil@evil.example;",),
        (f"From: <@evil.example:{ANNA}>",),
        (f'From: "{ANNA} x"@evil.example',),
        ('From: "a b"@example.com',),
        ("From: anna@example.com@evil.example",),
        ("From: \u212aanna@example.com".encode(),),
        (b"From: \xff@example.com",),
        ("From: =?utf-8?q?anna?=@example.com",),
        ("From: anna@localhost",),
        ("From: ",),
        ("Sender: anna@example.com",),
    ],
)
def test_a_mail_with_an_ambiguous_author_is_refused(lines: tuple[str | bytes, ...]) -> None:
    try:
        found = find_sender(read(*lines))
    except (ValueError, IndexError, AttributeError):
        return
    pytest.fail(f"it is {found}")


@pytest.mark.parametrize(
    ("header", "address", "name"),
    [
        ("Anna <Anna@Example.com>", ANNA, "Anna"),
        (f'"{ANNA}" <evil@evil.example>', "evil@evil.example", ""),
        ("=?utf-8?q?anna=40example=2Ecom?= <evil@evil.example>", "evil@evil.example", ""),
        ("=?utf-8?b?QW5uYSDDhA==?= <anna@example.com>", ANNA, "Anna \u00c4"),
        ("anna@example.com (Anna (the first))", ANNA, ""),
        ('"Anna, of Example" <anna+tag@mail.example.com>', "anna+tag@mail.example.com", "Anna, of Example"),
    ],
)
def test_a_display_name_is_never_an_address(header: str, address: str, name: str) -> None:
    found, shown = find_sender(read(f"From: {header}"))
    assert (found, shown if "(" not in header else "") == (address, name)


@pytest.mark.parametrize(
    "header",
    [
        "Auto-Submitted: auto-replied",
        "Auto-Submitted: auto-generated (rejected); owner-email=x",
        "auto-submitted: no\r\nAuto-Submitted: auto-replied",
        "Precedence: Bulk",
        "Precedence: first-class\r\nPrecedence: list",
        "List-Id: <l.example.com>",
        "List-Unsubscribe: <mailto:x@example.com>",
        "X-Auto-Response-Suppress: OOF, AutoReply",
        "X-Loop: me",
        "Return-Path: <>",
        "Content-Type: multipart/report; report-type=delivery-status; boundary=x",
    ],
)
def test_headers_of_automatic_mail_are_recognised(header: str) -> None:
    assert is_automatic(read("From: anna@example.com", header), ANNA)
    assert not is_automatic(read("From: anna@example.com", "Auto-Submitted: no", "Precedence: urgent"), ANNA)


@pytest.mark.parametrize("local", ["mailer-daemon", "owner-l", "l-request", "bounces+12-anna", "no-reply"])
def test_addresses_of_programs_are_recognised(local: str) -> None:
    assert is_automatic(read("Subject: x"), f"{local}@example.com")
