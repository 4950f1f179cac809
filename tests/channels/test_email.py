"""Mail: who really sent it, and what it says. `tests/e2e/test_channels.py` talks to real servers."""

from email.message import EmailMessage

import pytest

from tests.channels.mail_server import AUTHSERV
from treadle.channels.mail_parts import read_text
from treadle.channels.mail_sender import explain_distrust

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
def test_only_the_own_server_proves_a_sender(results: str, is_proven: bool) -> None:
    mail = EmailMessage()
    mail["Authentication-Results"] = results
    mail["authentication-results"] = f"{AUTHSERV}; dmarc=pass"  # written by the sender, below
    assert (explain_distrust(mail, ANNA, AUTHSERV) == "") is (is_proven or not results.startswith(AUTHSERV))


def test_html_mail_is_read_without_markup_and_quotes() -> None:
    mail = EmailMessage()
    mail.set_content("<p>Hi <b>you</b></p><style>x</style><blockquote>old</blockquote>", subtype="html")
    assert read_text(mail) == "Hi you"
