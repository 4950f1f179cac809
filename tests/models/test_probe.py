"""Probing a provider: what is asked, what each answer means, and that no key goes anywhere else."""

import asyncio
import gzip
import json
import socket
import threading
from typing import Any

import pytest

from tests.fake_endpoint import Answer, Behaviour, FakeEndpoint, Raw, Request, Silence, refuses
from treadle.domain.providers import ApiMode, ProviderConfig
from treadle.models.http import fetch
from treadle.models.probe import Probe
from treadle.models.registry import ModelRegistry

KEY, OTHER_KEY = "sk-canary-one", "sk-canary-two"
LONG, SHORT = 30.0, 1.0
"""Seconds: more than a test waits for anything, and as little as it can wait for nothing."""


def make_listing(*ids: str, **facts: Any) -> Answer:
    return refuses(200, {"object": "list", "data": [{"id": name, **facts} for name in ids]})


async def probe_provider(
    url: str,
    *,
    api_mode: ApiMode = "chat_completions",
    api_keys: tuple[str, ...] = (),
    timeout_seconds: float = LONG,
    **config: Any,
) -> Probe:
    models = ModelRegistry({})
    models.add("fake", ProviderConfig(url, api_mode=api_mode, api_keys=api_keys, **config))
    return await models.probe("fake", timeout_seconds)


async def probe_of(*script: Behaviour, **config: Any) -> tuple[Probe, list[Request]]:
    async with FakeEndpoint(*script) as server:
        return await probe_provider(server.url, **config), server.requests


def by_key(answers: dict[str | None, Behaviour]) -> Any:
    """Answer by the key of the request; None is the request without one."""

    def answer(request: Request) -> Behaviour:
        sent = request.headers.get("authorization", "").removeprefix("Bearer ") or request.headers.get("x-api-key")
        return answers[sent or None]

    return answer


async def test_a_probe_requests_only_the_listing() -> None:
    found, [request] = await probe_of(make_listing("a", "b"))
    assert (request.method, request.path, request.body) == ("GET", "/v1/models", b"")
    assert (found.verdict, found.words) == ("answers", "answers with 2 models")
    assert found.lists("a")
    assert not found.lists("c")


@pytest.mark.parametrize(
    ("answer", "verdict", "words"),
    [
        (refuses(401, {"error": "who are you"}), "refused", "requires a key, and none is set (401)"),
        (refuses(403, {"error": "no scope"}), "unclear", "does not give a listing of its models (403: no scope)"),
        (refuses(404, {}), "unclear", "does not give a listing of its models (404"),
        (refuses(429, {"error": "slow down"}), "unclear", "(429: slow down)"),
        (refuses(503, {"error": "overloaded"}), "failing", "answered 503: overloaded"),
        (refuses(302, b"", Location="http://127.0.0.1:9/"), "failing", "redirects to another address (302)"),
        (Answer([b"<html><title>Welcome</title></html>"], 200, {}), "failing", "an HTML page titled `Welcome`"),
        (refuses(200, b"[" * 100_000), "failing", "not with a listing"),
        (refuses(200, {"data": [5]}), "failing", "not with a listing"),
        (refuses(200, {"data": None}), "answers", "answers with 0 models"),
        (refuses(200, [{"id": "a"}]), "answers", "answers with 1 model"),
        (refuses(200, gzip.compress(b"{}"), Content_Encoding="gzip"), "failing", "not with a listing"),
        (Raw(b"SSH-2.0\r\n\r\n"), "failing", "does not speak HTTP"),
    ],
)
async def test_each_response_gives_its_verdict(answer: Behaviour, verdict: str, words: str) -> None:
    found, _ = await probe_of(answer)
    assert found.verdict == verdict, found
    assert words in found.words
    assert found.words.isprintable()


async def test_a_closed_port_is_unreachable() -> None:
    found = await probe_provider("http://127.0.0.1:9/v1")
    assert found.verdict == "unreachable"
    assert found.words == "could not be reached: the connection failed (Connection refused)"


async def test_a_connection_that_is_always_dropped_is_unreachable() -> None:
    async with FakeEndpoint(policy=lambda _: Raw(b"")) as server:
        found = await probe_provider(server.url)
        assert found.verdict == "unreachable"
        assert "the connection was dropped before an answer came" in found.words


@pytest.mark.parametrize("answer", [Silence(), Answer([b'{"data": ['], ending="hang")], ids=["silence", "hang"])
async def test_an_endpoint_that_never_answers_times_out(answer: Behaviour) -> None:
    async with FakeEndpoint(answer) as server:
        found = await probe_provider(server.url, timeout_seconds=SHORT)
        assert (found.verdict, found.words) == ("unreachable", "did not answer within 1 s")
        await asyncio.wait_for(server.left.wait(), LONG)


async def test_an_endless_listing_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "MAX_BODY_BYTES", 1000)
    found, _ = await probe_of(Answer([b"x" * 600] * 2, ending="hang"))
    assert (found.verdict, found.models) == ("answers", None)


async def test_a_hanging_name_lookup_delays_neither_the_probe_nor_the_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = threading.Event()

    def look_up(*_: object, **__: object) -> Any:
        hangs.wait(LONG)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    found = await probe_provider("http://models.example.com/v1", timeout_seconds=SHORT)
    assert found.verdict == "unreachable"
    assert not hangs.is_set(), "the thread was not waited for"
    hangs.set()


# ── Keys ──


async def test_a_key_that_is_refused_is_named_and_not_shown() -> None:
    policy = by_key({None: refuses(401, {}), KEY: refuses(401, {"error": f"Incorrect API key {KEY}"})})
    async with FakeEndpoint(policy=policy) as server:
        found = await probe_provider(server.url, api_keys=(KEY,))
        assert found.verdict == "refused"
        assert found.words.startswith("refused the key (401)")
        assert found.advice == "Replace api_keys[0] of provider fake."
        assert "canary" not in found.words


async def test_one_refused_key_among_others_is_found() -> None:
    policy = by_key({None: refuses(401, {}), KEY: make_listing("a"), OTHER_KEY: refuses(401, {})})
    async with FakeEndpoint(policy=policy) as server:
        found = await probe_provider(server.url, api_keys=(KEY, OTHER_KEY))
        assert (found.verdict, found.refused_keys) == ("answers", ("api_keys[1] of provider fake",))


async def test_a_public_listing_proves_nothing_about_the_key() -> None:
    async with FakeEndpoint(policy=lambda _: make_listing("a")) as server:
        found = await probe_provider(server.url, api_keys=(KEY,))
        assert found.verdict == "answers"
        assert found.words.endswith("its listing needs no key, so the key was not tried")


@pytest.mark.parametrize("mode", ["chat_completions", "responses", "anthropic_messages"])
async def test_a_listing_that_needs_the_key_proves_it(mode: ApiMode) -> None:
    async with FakeEndpoint(policy=by_key({None: refuses(401, {}), KEY: make_listing("a")})) as server:
        found = await probe_provider(server.url, api_keys=(KEY,), api_mode=mode)
        assert found.words == "answers with 1 model, and takes the key"
        assert {request.path.partition("?")[0] for request in server.requests} == {"/v1/models"}


async def test_a_redirect_does_not_receive_the_key() -> None:
    async with FakeEndpoint() as elsewhere:
        away = refuses(307, b"", Location=f"{elsewhere.url}/models")
        async with FakeEndpoint(policy=lambda _: away) as server:
            found = await probe_provider(server.url, api_keys=(KEY,))
        assert found.verdict == "failing"
        assert elsewhere.connections == 0


async def test_a_key_check_is_used_for_a_provider_with_a_public_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.models.probe._KEY_CHECK_PATHS", {"127.0.0.1": "/key"})

    def answer(request: Request) -> Behaviour:
        if request.path == "/v1/models":
            assert "authorization" not in request.headers
            return make_listing("a", context_length=1000)
        good = request.headers["authorization"] == f"Bearer {KEY}"
        return refuses(200, {"data": {"label": "mine"}}) if good else refuses(401, {"error": "No user"})

    async def scenario() -> None:
        async with FakeEndpoint(policy=answer) as server:
            good = await probe_provider(server.url, api_keys=(KEY,))
            assert (good.words, good.window("a")) == ("answers with 1 model, and takes the key", 1000)
            assert (await probe_provider(server.url, api_keys=(OTHER_KEY,))).verdict == "refused"

    await scenario()


# ── Models and their context windows ──


@pytest.mark.parametrize("field", ["max_model_len", "context_length", "context_window", "max_input_tokens"])
async def test_the_context_window_of_an_endpoint_is_read(field: str) -> None:
    found, _ = await probe_of(make_listing("a", **{field: 32_768}))
    assert found.window("a") == 32_768


@pytest.mark.parametrize("value", [None, 0, -5, True, "many", 1.5])
async def test_an_invalid_window_is_ignored(value: object) -> None:
    found, _ = await probe_of(make_listing("a", context_length=value))
    assert found.window("a") is None


async def test_spellings_of_one_model_are_equal() -> None:
    found, _ = await probe_of(make_listing("llama3:latest", "models/gemini", "vendor/free"))
    assert all(map(found.lists, ("llama3", "gemini", "vendor/free:nitro")))


async def test_the_first_page_of_a_listing_is_not_complete() -> None:
    page = json.dumps({"data": [{"id": "a"}], "has_more": True}).encode()
    found, [request] = await probe_of(refuses(200, page), api_mode="anthropic_messages")
    assert request.path == "/v1/models?limit=1000"
    assert (found.verdict, found.models) == ("answers", None)
