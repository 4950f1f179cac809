"""Embedders: the local one for real, a remote one over loopback with every fault we can think of."""

import asyncio
import json
import math
from collections.abc import Sequence
from typing import Any

import pytest

from tests.fake_endpoint import Answer, Behaviour, FakeEndpoint, Raw, Request, Silence, refuses
from treadle.domain.errors import MissingKey, UsageError
from treadle.memory.embedders import Embedders
from treadle.memory.embedding_call import embed_checked
from treadle.memory.local_embedder import DIMENSIONS, LocalEmbedder, is_installed
from treadle.memory.remote_embedder import EmbedderEndpoint, RemoteEmbedder
from treadle.ports.memory import EmbeddingFailed, Vector

JSON = {"Content-Type": "application/json"}
KEY = "sk-canary-0123456789"
needs_local = pytest.mark.skipif(not is_installed(), reason="the extra `local` is not installed")


def answer(*vectors: Sequence[Any], order: Sequence[int] | None = None) -> Answer:
    places = range(len(vectors)) if order is None else order
    data = [{"object": "embedding", "index": place, "embedding": vectors[place]} for place in places]
    return Answer([json.dumps({"object": "list", "data": data, "model": "m"}).encode()], 200, JSON)


def body(text: bytes, status: int = 200, kind: str = "application/json") -> Answer:
    return Answer([text], status, {"Content-Type": kind})


async def ask(*script: Behaviour, texts: Sequence[str] = ("a",), seconds: float = 5.0) -> list[Vector]:
    async with FakeEndpoint(*script) as server:
        embedder = RemoteEmbedder("fake", "m", EmbedderEndpoint(server.url, KEY, {"X-Team": "red-team"}), seconds)
        try:
            return await embed_checked(embedder, texts)
        finally:
            await embedder.close()


async def test_vectors_are_returned_in_order_and_normalised() -> None:
    one, two = await ask(answer([3, 4], [0, 5], order=[1, 0]), texts=["x", "y"])
    assert one == pytest.approx([0.6, 0.8])
    assert two == pytest.approx([0, 1])


async def test_the_request_carries_the_key_headers_and_texts() -> None:
    async with FakeEndpoint(answer([1, 0])) as server:
        embedder = RemoteEmbedder("fake", "m", EmbedderEndpoint(f"{server.url}/?v=1", KEY, {"X-Team": "red-team"}))
        await embedder.embed(["hello"])
        await embedder.close()
        request, name, dimensions = server.requests[0], embedder.name, embedder.dimensions
    assert (request.method, request.path) == ("POST", "/v1/embeddings?v=1")
    assert request.json == {"model": "m", "input": ["hello"]}
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["x-team"] == "red-team"
    assert (name, dimensions) == ("fake/m", 2)


async def test_many_texts_go_in_batches() -> None:
    async def run() -> tuple[int, list[int]]:
        def policy(request: Request) -> Behaviour:
            return answer(*([1, len(text)] for text in request.json["input"]))

        async with FakeEndpoint(policy=policy) as server:
            embedder = RemoteEmbedder("fake", "m", EmbedderEndpoint(server.url))
            vectors = await embedder.embed(["x" * (n + 1) for n in range(150)])
            await embedder.close()
            assert [round(v[1] / v[0]) for v in vectors] == list(range(1, 151))
            assert await embedder.embed([]) == []
            return len(vectors), [len(request.json["input"]) for request in server.requests]

    assert await run() == (150, [64, 64, 22])


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (refuses(500, {"error": "boom"}), "HTTP 500 .*boom.*tried again later"),
        (refuses(401, {"error": f"bad key {KEY}"}), r"HTTP 401 .*\[hidden\].*check the key"),
        (refuses(404, b"not here"), "HTTP 404 .*not here.*embedding model `m`"),
        (refuses(429, b""), "HTTP 429 .*an empty answer.*quota"),
        (refuses(400, b"x" * 5000), "HTTP 400 .*x…"),
        (refuses(302, b"", Location="http://127.0.0.1:9/"), "HTTP 302 .*not followed"),
        (body(b"<html>Sign in</html>", kind="text/html"), "list of embeddings .*Sign in.*OpenAI-compatible"),
        (Answer((), 200, JSON), "list of embeddings"),
        (body(b'{"data": [{"index": 0, "embedding": [NaN, 1]}]}'), "list of embeddings"),
        (body(b'{"data": [{"index": 0, "embedding": [null, 1]}]}'), "list of embeddings"),
        (body(b'{"data": [{"index": 0, "embedding": "AAAA"}]}'), "list of embeddings"),
        (body(b'{"data": [{"index": 0, "embedding": [1.7e308, 1.7e308]}]}'), "not finite"),
        (body(b'{"error": "busy"}'), "list of embeddings"),
        (answer([]), "empty, all zeros or not finite"),
        (answer([0, 0]), "empty, all zeros or not finite"),
        (answer([1, 0], [0, 1]), "asked for 1 vectors and sent 2"),
        (answer(), "asked for 1 vectors and sent 0"),
        (body(b'{"data": [{"index": 7, "embedding": [1]}]}'), "numbers are not those of the texts"),
        (Raw(b"nonsense\r\n\r\n"), "could not be reached"),
        (Raw(), "could not be reached"),
        (Answer([b'{"data": ['], 200, JSON, ending="cut"), "could not be reached"),
    ],
)
async def test_failures_are_described(fault: Behaviour, words: str) -> None:
    with pytest.raises(EmbeddingFailed, match=words) as told:
        await ask(fault)
    assert KEY not in str(told.value)
    assert "red-team" not in str(told.value)
    assert str(told.value).startswith("the embedder fake/m ")


@pytest.mark.parametrize("fault", [Silence(), Answer([b'{"data": ['], 200, JSON, ending="hang")])
async def test_a_hanging_embedder_times_out(fault: Behaviour) -> None:
    with pytest.raises(EmbeddingFailed, match=r"did not answer within 0\.05 s"):
        await ask(fault, seconds=0.05)


async def test_vectors_of_different_dimensions_are_refused() -> None:
    with pytest.raises(EmbeddingFailed, match=r"vectors of \[2, 3\] numbers at once"):
        await ask(answer([1, 0], [1, 0, 0]), texts=["a", "b"])


async def test_secrets_are_redacted_before_the_text_is_truncated() -> None:
    secret = "s3cr3t" * 4

    async def run() -> Request:
        async with FakeEndpoint(answer([1, 0], [1, 0])) as server:
            made = Embedders(
                lambda _: EmbedderEndpoint(server.url), hide=lambda text: text.replace(secret, "[hidden]")
            )
            embedder = made.find("fake/m")
            assert embedder is not None
            await embed_checked(embedder, [f"the key is {secret}", "x" * 7990 + secret])
            await made.close()
            return server.requests[0]

    sent = (await run()).json["input"]
    assert sent[0] == "the key is [hidden]"
    assert "s3cr" not in sent[1]


@pytest.mark.parametrize(
    "where",
    [
        EmbedderEndpoint("http://user:passw0rd@127.0.0.1:9/v1", KEY),
        EmbedderEndpoint("http://127.0.0.1:9/v1", f"{KEY}\n"),
    ],
)
async def test_a_request_that_the_client_refuses_to_send_is_described(where: EmbedderEndpoint) -> None:
    async def run() -> None:
        embedder = RemoteEmbedder("fake", "m", where)
        try:
            await embedder.embed(["a"])
        finally:
            await embedder.close()

    with pytest.raises(EmbeddingFailed, match="the embedder fake/m at") as told:
        await run()
    assert KEY not in str(told.value)
    assert "passw0rd" not in str(told.value)


async def test_an_unreachable_server_is_reported() -> None:
    async def run() -> None:
        embedder = RemoteEmbedder("fake", "m", EmbedderEndpoint("http://127.0.0.1:9/v1"))
        try:
            await embedder.embed(["a"])
        finally:
            await embedder.close()

    with pytest.raises(EmbeddingFailed, match=r"could not be reached .*check base_url"):
        await run()


# ── Which one ──


def address(provider: str) -> EmbedderEndpoint:
    if provider == "fake":
        return EmbedderEndpoint("http://127.0.0.1:9/v1", KEY)
    raise MissingKey("provider broke needs a key") if provider == "broke" else UsageError(f"no provider {provider}")


def test_a_setting_selects_its_embedder() -> None:
    with_local, without = Embedders(address, lambda: True), Embedders(address, lambda: False)
    assert with_local.find("none") is None
    assert without.find("auto") is None
    auto = with_local.find("auto")
    assert isinstance(auto, LocalEmbedder)
    assert with_local.find("local") is auto
    remote = without.find("fake/org/model")
    assert remote is not None
    assert remote.name == "fake/org/model"
    assert without.find("fake/org/model") is remote


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("local", r"not installed; install it with `pip install 'treadle\[local\]'`"),
        ("nobody/m", "nobody/m cannot be asked: no provider nobody"),
        ("broke/m", "broke/m cannot be asked: provider broke needs a key"),
        ("fake/", "auto, none, local or provider/model-id"),
        ("", "auto, none, local or provider/model-id"),
    ],
)
def test_an_unusable_setting_is_reported(setting: str, words: str) -> None:
    with pytest.raises(EmbeddingFailed, match=words):
        Embedders(address, lambda: False).find(setting)


def test_the_key_is_not_in_the_representation_of_an_endpoint() -> None:
    assert KEY not in repr(EmbedderEndpoint("http://u:pass@h/v1?k=1", KEY, {"X": KEY}))


# ── The local one ──


@needs_local
async def test_the_local_embedder_compares_meanings_without_blocking_the_loop() -> None:
    embedder = LocalEmbedder()
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticking = asyncio.ensure_future(tick())
    vectors = await embedder.embed(["The kids sleep at eight.", "Children go to bed at 8.", "Steel is sold.", ""])
    ticking.cancel()
    assert ticks > 10, "the event loop goes on meanwhile"
    await embedder.close()
    kids, children, steel, empty = vectors
    assert len(kids) == DIMENSIONS
    assert all(math.isclose(math.hypot(*vector), 1, rel_tol=1e-3) for vector in (kids, children, steel, empty))
    likeness = [sum(a * b for a, b in zip(kids, other, strict=True)) for other in (children, steel)]
    assert likeness[0] > 0.5 > likeness[1]
