"""Requests that Treadle writes in one piece equal those of aiohttp. Unusual requests are left to aiohttp."""

import pytest

from tests.fake_endpoint import DONE, Answer, FakeEndpoint, Request, delta
from treadle.models.http.endpoint import Endpoint
from treadle.models.http.keys import KeyRing, ProviderKey
from treadle.models.http.request_sender import MAX_SINGLE_WRITE_BYTES, DirectSender
from treadle.models.http.response_reader import HttpResponse as HttpAnswer
from treadle.models.http.transport import CallFailed, Connections, HttpCall, PreparedPost

SMALL, LARGE = b"x" * MAX_SINGLE_WRITE_BYTES, b"x" * (MAX_SINGLE_WRITE_BYTES + 1)
KEY = ProviderKey("sk-123456", "api_key")


async def send_bodies(*bodies: bytes, headers: dict[str, str] | None = None, user: str = "") -> list[Request]:
    """Return the requests that arrive over the same connections."""
    connections = Connections()
    try:
        async with FakeEndpoint(policy=lambda _: Answer([delta("a"), DONE])) as server:
            url = server.url.replace("http://", f"http://{user}")
            there = Endpoint(
                provider="fake", url=f"{url}/chat?a=b%20c", keys=KeyRing((KEY,)), headers=headers or {}
            )
            post = PreparedPost(there, connections)
            for body in bodies:
                call = HttpCall(post, "m", None if user else KEY)
                await call.open(body)
                while await call.read():
                    pass
                call.close()
            return server.requests
    finally:
        await connections.close()


@pytest.fixture
def posted_bodies(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the bodies that were sent in one piece."""
    bodies: list[bytes] = []
    post = DirectSender.post

    async def noted(self: DirectSender, body: bytes) -> HttpAnswer:
        bodies.append(body)
        return await post(self, body)

    monkeypatch.setattr(DirectSender, "post", noted)
    return bodies


async def test_a_small_body_and_a_large_one_have_the_same_headers(posted_bodies: list[bytes]) -> None:
    small, large, again = await send_bodies(SMALL, LARGE, SMALL, headers={"X-Ours": "ä b"})
    assert posted_bodies == [SMALL, SMALL]
    assert small.body == again.body == SMALL
    assert large.body == LARGE
    told = [one.headers | {"content-length": ""} for one in (small, large, again)]
    assert told[0] == told[1] == told[2]
    assert told[0]["authorization"] == "Bearer sk-123456"
    assert (small.method, small.path) == (large.method, large.path) == ("POST", "/v1/chat?a=b%20c")


@pytest.mark.parametrize(
    ("headers", "user", "arrives"),
    [
        ({"Connection": "close"}, "", ("connection", "close")),
        ({}, "me:secret@", ("authorization", "Basic bWU6c2VjcmV0")),
    ],
)
async def test_unusual_cases_are_left_to_aiohttp(
    headers: dict[str, str], user: str, arrives: tuple[str, str], posted_bodies: list[bytes]
) -> None:
    [request] = await send_bodies(b"{}", headers=headers, user=user)
    assert not posted_bodies
    assert request.headers[arrives[0]] == arrives[1]


async def test_a_header_cannot_smuggle_another(posted_bodies: list[bytes]) -> None:
    with pytest.raises(CallFailed, match="no request can be made"):
        await send_bodies(b"{}", headers={"X-Ours": "a\r\nX-Theirs: b"})
    assert not posted_bodies
