"""Inbound webhooks whose senders sign in their own way: GitHub, GitLab, Stripe and Slack."""

import hashlib
import hmac
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.automation.served import served
from tests.automation.test_inbound_webhooks import make_model, new_hook
from treadle.automation.signature_schemes import decode_payload, verify_message
from treadle.domain.webhooks import SignatureScheme
from treadle.operations.automation import SignedMessage
from treadle.testing.models import ScriptedModel
from treadle.testing.time import FakeClock

SECRET = "0123456789abcdef-chosen-by-the-sender"
SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
    b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
    b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
    b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)
"""The example in Slack's documentation."""


def sign(content: bytes, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()


def make_headers(scheme: SignatureScheme, body: bytes, at: float, message_id: str = "m1") -> dict[str, str]:
    """Return the headers with which a sender signs a body."""
    stamp = str(int(at))
    match scheme:
        case "github":
            return {"x-hub-signature-256": f"sha256={sign(body)}", "x-github-delivery": message_id}
        case "gitlab":
            return {"x-gitlab-token": SECRET, "idempotency-key": message_id}
        case "stripe":
            return {"stripe-signature": f"t={stamp},v1={sign(stamp.encode() + b'.' + body)}"}
        case "slack":
            signature = f"v0={sign(b'v0:' + stamp.encode() + b':' + body)}"
            return {"x-slack-request-timestamp": stamp, "x-slack-signature": signature}
        case "standard":
            raise AssertionError("it has tests of its own")


def test_the_published_examples_of_senders_are_genuine() -> None:
    github = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    hello = SignedMessage({"x-hub-signature-256": github, "x-github-delivery": "d1"}, b"Hello, World!")
    assert verify_message("github", "It's a Secret to Everybody", 0.0, hello) == "d1"
    slack = {
        "x-slack-request-timestamp": "1531420618",
        "x-slack-signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
        "content-type": "application/x-www-form-urlencoded",
    }
    command = SignedMessage(slack, SLACK_BODY)
    assert verify_message("slack", "8f742231b10e8888abcd99yyyzzz85a5", 1531420618.0, command) is not None
    assert decode_payload(command)["command"] == "/webhook-collect"


@pytest.mark.parametrize("scheme", ["github", "gitlab", "stripe", "slack"])
def test_a_request_without_the_right_signature_is_not_genuine(scheme: SignatureScheme) -> None:
    now, body = 1_700_000_000.0, b'{"id": "evt_1", "event_id": "Ev1"}'
    good = make_headers(scheme, body, now)
    assert verify_message(scheme, SECRET, now, SignedMessage(good, body)) is not None
    assert verify_message(scheme, f"{SECRET}x", now, SignedMessage(good, body)) is None
    assert verify_message(scheme, SECRET, now, SignedMessage({}, body)) is None
    for name, value in good.items():
        if name in ("x-github-delivery", "idempotency-key"):
            continue
        for wrong in ("", value[:-1], value.upper(), f"{value}0", value.replace("=", "", 1), "é" * 64):
            if wrong != value:
                assert verify_message(scheme, SECRET, now, SignedMessage({**good, name: wrong}, body)) is None, (
                    wrong
                )
    if scheme != "gitlab":  # its token does not depend on the body
        assert verify_message(scheme, SECRET, now, SignedMessage(good, body + b" ")) is None


@pytest.mark.parametrize("scheme", ["stripe", "slack"])
def test_a_signature_is_valid_for_five_minutes(scheme: SignatureScheme) -> None:
    now, body = 1_700_000_000.0, b"{}"
    for at, is_valid in ((now - 300, True), (now - 301, False), (now + 300, True), (now + 301, False)):
        message = SignedMessage(make_headers(scheme, body, at), body)
        assert (verify_message(scheme, SECRET, now, message) is not None) == is_valid


def test_one_of_several_signatures_of_stripe_is_enough() -> None:
    now, body = 1_700_000_000.0, b'{"id": "evt_1"}'
    stamp = str(int(now))
    good = sign(stamp.encode() + b"." + body)

    def verify(header: str) -> str | None:
        return verify_message("stripe", SECRET, now, SignedMessage({"stripe-signature": header}, body))

    assert verify(f"t={stamp},v1={'0' * 64},v1={good},v0=x") == "evt_1"
    assert verify(f"t={stamp},v0={good}") is None, "the old version is not accepted"
    assert verify(f"v1={good}") is None
    assert verify(f"t={stamp},t={int(now) - 1},v1={good}") is None, "which time was signed is not clear"


@pytest.mark.parametrize("scheme", ["github", "gitlab", "stripe", "slack"])
async def test_a_sender_is_accepted_by_its_scheme_and_a_repetition_starts_nothing(
    tmp_path: Path, scheme: SignatureScheme
) -> None:
    clock = FakeClock()
    body = msgspec.json.encode({"id": "evt_1", "event_id": "Ev1", "type": "t"})
    async with served(tmp_path, make_model(), clock) as web:
        hook = await new_hook(web, message="{{payload.type}}", scheme=scheme, secret=SECRET)
        assert (hook["scheme"], hook["secret"]) == (scheme, SECRET)
        first = await web.send("POST", hook["path"], body, make_headers(scheme, body, clock.now()))
        assert first.status == 202, first.body
        clock.pass_time(200)  # a sender signs a repetition again
        again = await web.send("POST", hook["path"], body, make_headers(scheme, body, clock.now()))
        assert (again.status, again.json) == (202, first.json)
        other = await new_hook(web, message="{{payload.type}}")
        refused = await web.send("POST", other["path"], body, make_headers(scheme, body, clock.now()))
        assert refused.status == 401, "another scheme does not count"
        assert len(await web.engine.service.runs()) == 1
        await web.engine.wait(first.json["run_id"])


async def test_set_up_requests_are_answered_and_start_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    challenge = b'{"type": "url_verification", "challenge": "3eZbrw1a"}'
    async with served(tmp_path, ScriptedModel(), clock) as web:
        slack = await new_hook(web, scheme="slack", secret=SECRET)
        answer = await web.send("POST", slack["path"], challenge, make_headers("slack", challenge, clock.now()))
        assert (answer.status, answer.json) == (200, {"challenge": "3eZbrw1a"})
        assert (await web.send("POST", slack["path"], challenge, {})).status == 401, "only if it is signed"
        github = await new_hook(web, scheme="github", secret=SECRET)
        ping = {**make_headers("github", b"{}", 0.0), "x-github-event": "ping"}
        assert (await web.send("POST", github["path"], b"{}", ping)).status == 200
        assert await web.engine.service.runs() == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"scheme": "md5"},
        {"secret": "short"},
        {"secret": "with a line\nend of it"},
        {"secret": "whsec_0123456789abcdef"},
    ],
)
async def test_a_scheme_or_secret_that_cannot_be_used_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    async with served(tmp_path, ScriptedModel()) as web:
        answer = await web.ask("POST", "/v1/hooks", {"name": "n", "agent": "hero", "message": "m", **wrong})
        assert answer.status in (400, 422), answer.body


def test_forms_and_texts_become_payloads() -> None:
    form = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}
    assert decode_payload(SignedMessage(form, b"payload=%7B%22a%22%3A1%7D")) == {"a": 1}
    assert decode_payload(SignedMessage(form, b"a=1&b=")) == {"a": "1", "b": ""}
    assert decode_payload(SignedMessage({}, b"a=1")) == "a=1"
    assert decode_payload(SignedMessage({}, b"\xff")) == "\ufffd"
