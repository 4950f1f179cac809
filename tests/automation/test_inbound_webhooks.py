"""Inbound webhooks: accepted once, only with a valid signature, and treated as a message."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.automation.served import Served, served, signed
from treadle.automation.signing import build_signature_headers as sign
from treadle.automation.signing import generate_secret, is_genuine
from treadle.domain.events import RunQueued, UserMessage, WebhookReceived
from treadle.domain.ids import RunId
from treadle.domain.webhooks import HookId, InboundWebhook, check_template, derive_session, fill_template
from treadle.testing.models import FunctionModel, ScriptedModel, say
from treadle.testing.time import FakeClock
from treadle.vault.store import VaultStore

ISSUE = b'{"issue": {"number": 7, "title": "It rains", "labels": ["wet", "cold"]}, "big": 12345678901234567890}'
TEMPLATE = "Look at {{payload.issue.title}} ({{ payload.issue.labels.1 }})"


def make_model() -> FunctionModel:
    return FunctionModel(lambda _: say("done"))


async def new_hook(web: Served, **more: Any) -> Any:
    body = {"name": "tracker", "agent": "hero", "message": TEMPLATE, **more}
    answer = await web.ask("POST", "/v1/hooks", body)
    assert answer.status == 201, answer.body
    return answer.json


# ── Signatures ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_signed_message_starts_a_run_with_its_event_first(tmp_path: Path) -> None:
    clock = FakeClock()
    async with served(tmp_path, make_model(), clock) as web:
        hook = await new_hook(web, session="issue-{{payload.issue.number}}")
        for number in range(2):
            headers = signed(hook["secret"], f"msg_{number}", ISSUE, clock.now())
            answer = await web.send("POST", hook["path"], ISSUE, headers)
            assert answer.status == 202, answer.body
            assert answer.json["session_id"] == f"{hook['hook_id']}.issue-7"
            result = await web.engine.wait(answer.json["run_id"])
            assert result.outcome == "completed"
            events = await web.engine.service.page(RunId(answer.json["run_id"]))
            queued, received, said = [event.data for event in events[:3]]
            assert isinstance(queued, RunQueued)
            assert queued.asker is None
            assert received == WebhookReceived(hook["hook_id"], f"msg_{number}", len(ISSUE))
            assert isinstance(said, UserMessage)
            assert said.message.text == "Look at It rains (cold)"


async def test_an_unsigned_request_is_refused_without_a_reason(tmp_path: Path) -> None:
    clock = FakeClock()
    async with served(tmp_path, ScriptedModel(), clock) as web:
        hook = await new_hook(web)
        other = await new_hook(web)
        now = clock.now()
        good = signed(hook["secret"], "msg", ISSUE, now)
        wrong = {
            "no headers": {},
            "no signature": {**good, "webhook-signature": ""},
            "another secret": signed(other["secret"], "msg", ISSUE, now),
            "another id": {**good, "webhook-id": "msg2"},
            "another time": {**good, "webhook-timestamp": str(int(now) + 1)},
            "too old": signed(hook["secret"], "msg", ISSUE, now - 301),
            "too new": signed(hook["secret"], "msg", ISSUE, now + 301),
            "no time": {**good, "webhook-timestamp": "nan"},
            "huge time": {**good, "webhook-timestamp": "9" * 30},
            "another version": {**good, "webhook-signature": good["webhook-signature"].replace("v1,", "v2,")},
            "garbage": {**good, "webhook-signature": "v1 , , a,b,c"},
            "an endless id": signed(hook["secret"], "m" * 257, ISSUE, now),
        }
        answers = {name: await web.send("POST", hook["path"], ISSUE, sent) for name, sent in wrong.items()}
        answers["tampered"] = await web.send("POST", hook["path"], ISSUE.replace(b"7", b"8"), good)
        answers["no text"] = await web.send("POST", hook["path"], b"\xff\xfe", good)
        for name, path in {"unknown": "hok_none", "odd": "a%20b", "long": "x" * 500}.items():
            answers[name] = await web.send("POST", f"/v1/hooks/{path}", ISSUE, good)
        assert {name: answer.status for name, answer in answers.items()} == dict.fromkeys(answers, 401)
        assert len({answer.body for answer in answers.values()}) == 1
        assert await web.engine.service.runs() == []
        assert (await web.send("POST", hook["path"], ISSUE, good)).status == 202, "the good one is good"


def test_one_of_several_signatures_is_enough() -> None:
    secret, body = generate_secret(), b"{}"
    good = sign(secret, "m", 1000.0, body)["webhook-signature"]
    assert is_genuine(secret, 1000.0, "m", "1000", f"v1,{base64.b64encode(b'x' * 32).decode()} {good}", body)
    assert not is_genuine(secret, 1000.0, "m", "1000", "v1,", body)
    assert not is_genuine(secret, 1301.0, "m", "1000", good, body)
    assert is_genuine(secret, 1300.0, "m", "1000", good, body)


async def test_the_same_message_again_is_answered_with_the_run_that_it_started(tmp_path: Path) -> None:
    clock = FakeClock()
    async with served(tmp_path, make_model(), clock) as web:
        hook = await new_hook(web)
        headers = signed(hook["secret"], "msg", ISSUE, clock.now())
        sending = [web.send("POST", hook["path"], ISSUE, headers) for _ in range(5)]
        at_once = await asyncio.gather(*sending)
        assert {answer.status for answer in at_once} == {202}
        [started] = {answer.json["run_id"] for answer in at_once}
        clock.pass_time(60)
        later = signed(hook["secret"], "msg", b"{}", clock.now())
        again = await web.send("POST", hook["path"], b"{}", later)
        assert (again.status, again.json) == (202, at_once[0].json)
        keyed = await web.send("POST", hook["path"], ISSUE, {**headers, "Idempotency-Key": "k"})
        assert (keyed.status, keyed.json["run_id"]) == (202, started)
        assert len(await web.engine.service.runs()) == 1


# ── The gate ───────────────────────────────────────────────────────────────────────────────────────


async def test_posting_to_an_inbound_webhook_needs_no_token_and_managing_them_does(tmp_path: Path) -> None:
    async with served(tmp_path, ScriptedModel()) as web:
        hook = await new_hook(web)
        runner = await web.token("read", "run", "approve")
        for method, path, body in (
            ("GET", "/v1/hooks", None),
            ("POST", "/v1/hooks", {"name": "x", "agent": "hero", "message": "m"}),
            ("POST", "/v1/hooks/", {"name": "x", "agent": "hero", "message": "m"}),
            ("DELETE", hook["path"], None),
            ("POST", f"{hook['path']}/rotate", None),
            ("POST", f"{hook['path']}%2Frotate", None),
            ("GET", "/v1/schedules", None),
            ("POST", "/v1/schedules", {"agent": "hero", "message": "m", "every": 60}),
            ("GET", "/v1/webhooks", None),
            ("POST", "/v1/webhooks", {"url": "http://127.0.0.1:9/"}),
        ):
            assert (await web.ask(method, path, body, token=None)).status == 401, (method, path)
            assert (await web.ask(method, path, body, token=runner)).status == 403, (method, path)
        assert len((await web.ask("GET", "/v1/hooks")).json["items"]) == 1


async def test_the_secret_is_shown_once_and_stored_only_in_the_vault(tmp_path: Path) -> None:
    clock = FakeClock()
    async with served(tmp_path, make_model(), clock) as web:
        hook = await new_hook(web)
        assert hook["secret"].startswith("whsec_")
        assert hook["secret"] not in (await web.ask("GET", "/v1/hooks")).body.decode()
        rotated = (await web.ask("POST", f"{hook['path']}/rotate")).json
        old, new = (signed(each["secret"], "msg", ISSUE, clock.now()) for each in (hook, rotated))
        assert (await web.send("POST", hook["path"], ISSUE, old)).status == 401
        assert (await web.send("POST", hook["path"], ISSUE, new)).status == 202
        raw = hook["secret"].removeprefix("whsec_").encode(), rotated["secret"].removeprefix("whsec_").encode()
        for file in (tmp_path / "t.db", tmp_path / "t.db-wal", tmp_path / "home" / "vault.db"):
            content = file.read_bytes()
            assert not any(secret in content for secret in raw), file
        [kept] = VaultStore(tmp_path / "home", {}).inventory()
        assert kept.grants == ()
        assert (await web.ask("DELETE", hook["path"])).status == 204
        assert VaultStore(tmp_path / "home", {}).inventory() == ()
        assert (await web.send("POST", hook["path"], ISSUE, new)).status == 401
        assert (await web.ask("DELETE", hook["path"])).status == 404


async def test_a_body_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    clock = FakeClock()
    async with served(tmp_path, make_model(), clock) as web:
        hook = await new_hook(web, message="{{payload.short}}")
        fits = msgspec.json.encode({"short": "hello", "long": "x" * (2**20 - 100)})
        headers = signed(hook["secret"], "msg", fits, clock.now())
        assert (await web.send("POST", hook["path"], fits, headers)).status == 202
        large = msgspec.json.encode({"short": "hello", "long": "x" * 2**20})
        headers = signed(hook["secret"], "msg2", large, clock.now())
        assert (await web.send("POST", hook["path"], large, headers)).status == 413
        whole = await new_hook(web, message="{{payload}}")
        headers = signed(whole["secret"], "msg", fits, clock.now())
        answer = await web.send("POST", whole["path"], fits, headers)
        assert answer.status == 413, "no agent is told so much at once"
        assert len(await web.engine.service.runs()) == 1


# ── Templates ──────────────────────────────────────────────────────────────────────────────────────


async def test_values_of_a_payload_are_inserted_as_plain_text(tmp_path: Path) -> None:
    clock = FakeClock()
    async with served(tmp_path, make_model(), clock) as web:
        hook = await new_hook(web, message="{{payload.a}}", session="{{payload.s}}")
        for number, value in enumerate(("/reset", "{{payload.s}}", "/undo everything")):
            body = msgspec.json.encode({"a": value, "s": "ses_of_somebody_else"})
            headers = signed(hook["secret"], f"m{number}", body, clock.now())
            answer = await web.send("POST", hook["path"], body, headers)
            assert answer.status == 202, answer.body
            assert answer.json["session_id"] == f"{hook['hook_id']}.ses_of_somebody_else"
            events = await web.engine.service.page(RunId(answer.json["run_id"]))
            assert [event.data.message.text for event in events if isinstance(event.data, UserMessage)] == [value]


@pytest.mark.parametrize(
    ("template", "payload", "text"),
    [
        ("{{payload.a.b}}", {"a": {"b": "x"}}, "x"),
        ("{{ payload.a.1.c }}", {"a": [0, {"c": True}]}, "true"),
        ("[{{payload.none}}{{payload.a.9}}{{payload.a.b.c}}]", {"a": [1]}, "[]"),
        ("{{payload}}", {"a": 1}, '{"a":1}'),
        ("{{payload}}", "plain text", "plain text"),
        ("{{payload.a}}", {"a": None}, ""),
        ("{{payload.a}}", {"a": "{{payload.b}}", "b": "no"}, "{{payload.b}}"),
        ("{{payload.a}}{{payload.b}}", {"a": "{{pay", "b": "load.c}}", "c": "no"}, "{{payload.c}}"),
        ("{{payload.-1}}", [1, 2], ""),
        ("{{payload.__class__}}", {}, ""),
        ("no places { payload }", {}, "no places { payload }"),
    ],
)
def test_a_template_is_filled(template: str, payload: Any, text: str) -> None:
    check_template(template)
    assert fill_template(template, payload) == text


@pytest.mark.parametrize(
    "template", ["{{x}}", "{{payload[0]}}", "{{ payload.a | upper }}", "{{payload", "a}}", "{{}}"]
)
def test_an_invalid_placeholder_in_a_template_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match="not a valid placeholder"):
        check_template(template)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda each: st.dictionaries(st.text(), each)
    )
)
def test_any_payload_gives_a_session_id_of_the_inbound_webhook(payload: Any) -> None:
    hook = InboundWebhook(
        hook_id=HookId("hok_1"), name="n", agent="hero", message="m", session="{{payload}}", created_at=0.0
    )
    session = derive_session(hook, payload)
    if session is not None:
        assert session.startswith("hok_1.")
        assert session.isascii()
        assert "/" not in session
        assert len(session) < 200
