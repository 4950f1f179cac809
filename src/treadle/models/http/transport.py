"""One HTTP call to a model: a request goes out whole, the reply comes back in pieces, each wait is bounded.

Knows nothing of wire formats. Whatever goes wrong here is raised as `CallFailed`."""

import asyncio
import contextlib
import io
import math
from collections.abc import Callable, Mapping
from functools import lru_cache, partial

import aiohttp
from aiohttp.client_proto import ResponseHandler
from multidict import CIMultiDict
from yarl import URL

from treadle.domain.models import UNKNOWN_WINDOW
from treadle.domain.providers import Timeouts
from treadle.models.http import failure
from treadle.models.http.endpoint import Endpoint
from treadle.models.http.failure import TimeoutLimit
from treadle.models.http.keys import ProviderKey
from treadle.models.http.request_sender import (
    FACTORY_ATTRIBUTE,
    MAX_SINGLE_WRITE_BYTES,
    NO_AIOHTTP_TIMEOUT,
    DirectSender,
    can_send_directly,
)
from treadle.models.http.request_size import measure_request
from treadle.models.http.response_reader import (
    READ_BUFFER_BYTES,
    AiohttpResponse,
    HttpResponse,
    PooledConnectionLost,
    ResponseReceiver,
)
from treadle.ports.model import Failed
from treadle.system.timers import Timers

_MAX_ERROR_BODY_BYTES = 64 * 1024
_LINGER_SECONDS = 0.1
_CHECK_INTERVAL_SECONDS = 5.0
_STREAM = "text/event-stream"
_JSON = "application/json"


class CallFailed(Exception):
    """The call is over; `failed` says why."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.message)
        self.failed = failed


class Connections:
    """The connections that all models of a registry share. They are opened inside the running loop, when the
    first call needs them."""

    def __init__(self) -> None:
        self.timers = Timers()
        self._connector: aiohttp.TCPConnector | None = None
        self._sessions: list[aiohttp.ClientSession] = []

    def session(self, headers: Mapping[str, str]) -> aiohttp.ClientSession:
        """Calls with these headers."""
        if self._connector is None:
            self._connector = _make_connector()
        session = aiohttp.ClientSession(
            connector=self._connector,
            connector_owner=False,
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=NO_AIOHTTP_TIMEOUT,  # `_TimeoutWatch` keeps the time, for less
            read_bufsize=READ_BUFFER_BYTES,
        )
        self._sessions.append(session)
        return session

    async def close(self) -> None:
        sessions, self._sessions = self._sessions, []
        for session in sessions:
            await session.close()
        if self._connector is not None:
            await self._connector.close()
            self._connector = None


def _make_connector() -> aiohttp.TCPConnector:
    connector = aiohttp.TCPConnector(limit=0, ttl_dns_cache=300)
    ours: partial[ResponseHandler] = partial(ResponseReceiver, loop=asyncio.get_running_loop())
    if hasattr(connector, FACTORY_ATTRIBUTE):  # else calls cost more and still work
        setattr(connector, FACTORY_ATTRIBUTE, ours)
    return connector


Credentials = Callable[[str], Mapping[str, str]]
"""The headers that carry a key."""


def bearer_headers(key: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {key}"}


class PreparedPost:
    """What is the same in every call to one endpoint, prepared once."""

    def __init__(
        self,
        endpoint: Endpoint,
        connections: Connections,
        headers: Mapping[str, str] | None = None,
        credentials: Credentials = bearer_headers,
    ) -> None:
        self.endpoint = endpoint
        self.connections = connections
        self.url = URL(endpoint.url)
        common = {
            "Content-Type": _JSON,
            "Accept": _STREAM,
            "Accept-Encoding": "identity",  # to unpack a body holds up the loop; some send one packed all the same
            "User-Agent": "treadle",
            **(headers or {}),
        }
        self._headers = {
            key: CIMultiDict({**common, **(credentials(key.value) if key else {}), **endpoint.headers})
            for key in (None, *endpoint.keys)
        }
        self._sessions: dict[ProviderKey | None, aiohttp.ClientSession] = {}
        self._posters: dict[ProviderKey | None, DirectSender] = {}

    async def __call__(self, body: bytes, key: ProviderKey | None) -> HttpResponse:
        """Send a body with this key. Headers that a session has cost less than those that a call brings."""
        session = self._sessions.get(key)
        if session is None or session.closed:
            session = self._open(key)
        if len(body) <= MAX_SINGLE_WRITE_BYTES and (poster := self._posters.get(key)) is not None:
            return await poster.post(body)
        sent = await session.post(
            self.url,
            data=aiohttp.BytesPayload(body) if len(body) <= MAX_SINGLE_WRITE_BYTES else io.BytesIO(body),
            allow_redirects=False,  # a redirect would lose the body, or take the key elsewhere
        )
        return AiohttpResponse(sent)

    def _open(self, key: ProviderKey | None) -> aiohttp.ClientSession:
        session = self._sessions[key] = self.connections.session(self._headers[key])
        if can_send_directly(self.url, session):
            self._posters[key] = DirectSender(self.url, session)
        return session


class HttpCall:
    """One request and its reply: `open`, then `read` until it gives nothing, then `close`."""

    def __init__(
        self, post: PreparedPost, model: str, key: ProviderKey | None = None, window: int = UNKNOWN_WINDOW
    ) -> None:
        self._post = post
        self._model = model
        self._key = key
        self._window = window
        self._sent = b""
        self._answer: HttpResponse | None = None
        self._watch: _TimeoutWatch | None = None

    @property
    def accepted(self) -> bool:
        """Whether the provider took the request, so that it may charge for it."""
        return self._answer is not None and self._answer.status == 200

    @property
    def is_json(self) -> bool:
        """Whether the reply is said to be one JSON document: not every server streams when it is asked to."""
        return self._answer is not None and self._answer.kind.startswith(_JSON)

    @property
    def unexpected_type(self) -> str:
        """Words about what the reply is, if it is not the stream that was asked for."""
        kind = self._answer.kind if self._answer is not None else _STREAM
        return "" if kind == _STREAM else f"; it came as {kind} and not as {_STREAM}: check base_url"

    @property
    def server(self) -> str:
        """What the server calls itself, once it has answered."""
        return "" if self._answer is None else self._answer.server

    @property
    def asked(self) -> failure.RequestInfo:
        """Who was asked for what. Only failures need it."""
        return failure.RequestInfo(
            self._post.endpoint, self._model, self._key, measure_request(self._sent, self._window)
        )

    async def open(self, body: bytes) -> None:
        """Send the request and wait for a good status."""
        endpoint, self._sent = self._post.endpoint, body
        watch = self._watch = _TimeoutWatch(self._post.connections.timers, endpoint.timeouts)
        try:
            try:
                self._answer = await self._post(body, self._key)
            except PooledConnectionLost:  # the server was letting it go as the request went out
                self._answer = await self._post(body, self._key)
        except asyncio.CancelledError:
            if (passed := watch.take_back()) is not None:
                raise CallFailed(failure.from_timeout(endpoint, *passed)) from None
            raise
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise CallFailed(failure.from_error(endpoint, error)) from error
        watch.answer = self._answer
        if isinstance(self._answer, AiohttpResponse) and self._answer.status != 200:
            raise CallFailed(await self._refusal(self._answer.response))

    async def read(self) -> bytes:
        """The next piece of the reply; nothing when it has ended as it should."""
        answer, watch = self._answer, self._watch
        assert answer is not None
        assert watch is not None
        watch.waiting_since = watch.time()
        try:
            piece = await answer.read()
        except _TimedOut as timeout:
            raise CallFailed(failure.from_timeout(self._post.endpoint, timeout.limit, timeout.seconds)) from None
        except (aiohttp.ClientError, OSError) as error:
            what = "the connection broke off in the middle of it"
            raise CallFailed(failure.from_malformed_reply(self._post.endpoint, what)) from error
        watch.begun = True
        return piece

    async def finish(self) -> None:
        """The reply is whole. Wait a moment for the server to end the body as well: only then can the
        connection serve the next call."""
        answer = self._answer
        assert answer is not None
        if not answer.is_whole:
            with contextlib.suppress(TimeoutError, CallFailed):
                async with asyncio.timeout(_LINGER_SECONDS):
                    while await self.read():
                        pass

    def close(self) -> None:
        """Let go of the connection: for reuse if the reply was read to its end, else it is cut."""
        if self._watch is not None:
            self._watch.cancel()
        if self._answer is not None:
            self._answer.release()

    async def _refusal(self, response: aiohttp.ClientResponse) -> Failed:
        body = bytearray()
        with contextlib.suppress(CallFailed):  # the status is known; its words are a courtesy
            while len(body) < _MAX_ERROR_BODY_BYTES and (piece := await self.read()):
                body += piece
        return failure.from_response(
            self.asked, response.status, response.headers, bytes(body[:_MAX_ERROR_BODY_BYTES])
        )


class _TimedOut(Exception):
    def __init__(self, limit: TimeoutLimit, seconds: float) -> None:
        super().__init__(limit, seconds)
        self.limit: TimeoutLimit = limit
        self.seconds = seconds


class _TimeoutWatch:
    """Keeps the time of one call with one timer, which looks now and then whether a limit has passed.

    Until there is a response it cancels the task that waits for one. After that it fails the reader: a timeout
    around every read would cost more than reading."""

    def __init__(self, timers: Timers, timeouts: Timeouts) -> None:
        loop = asyncio.get_running_loop()
        self.time = loop.time
        self.answer: HttpResponse | None = None
        self.waiting_since = 0.0
        self.begun = False
        self._timers = timers
        self._task = asyncio.current_task()
        self._timeouts = timeouts
        self._started = loop.time()
        self._passed: tuple[TimeoutLimit, float] | None = None
        timers.set(self, self._started + _first_check(timeouts, _CHECK_INTERVAL_SECONDS))

    def cancel(self) -> None:
        self._timers.call_off(self)

    def take_back(self) -> tuple[TimeoutLimit, float] | None:
        """Undo the cancellation, if it is this watch's and nobody else's: the limit that had passed."""
        if self._passed is None or self._task is None or self._task.uncancel() > 0:
            return None
        return self._passed

    def ring(self) -> None:
        """Stop the call if a limit has passed or the connection is lost, else look again in time."""
        now, answer = self.time(), self.answer
        if answer is not None and answer.is_whole:
            return
        at, limit, seconds = min(self._limits(), default=(math.inf, "whole_call", math.inf))
        if answer is not None and answer.is_lost:
            answer.fail(aiohttp.ClientPayloadError("the body cannot be parsed"))
        elif at > now:
            self._timers.set(self, min(at, now + _first_check(self._timeouts, _CHECK_INTERVAL_SECONDS)))
        elif answer is not None:
            answer.fail(_TimedOut(limit, seconds))
        elif self._task is not None:
            self._passed = (limit, seconds)
            self._task.cancel()

    def _limits(self) -> list[tuple[float, TimeoutLimit, float]]:
        """When each limit will have passed if nothing comes from now on, its name and its seconds."""
        timeouts, limits = self._timeouts, list[tuple[float, TimeoutLimit, float]]()
        if timeouts.whole_call is not None:
            limits.append((self._started + timeouts.whole_call, "whole_call", timeouts.whole_call))
        if timeouts.first_byte is not None and not self.begun:
            limits.append((self._started + timeouts.first_byte, "first_byte", timeouts.first_byte))
        if timeouts.between_bytes is not None and self.begun:
            limits.append((self.waiting_since + timeouts.between_bytes, "between_bytes", timeouts.between_bytes))
        return limits


@lru_cache(maxsize=64)
def _first_check(timeouts: Timeouts, at_most: float) -> float:
    """Seconds within which no limit can have passed unnoticed."""
    limits = (timeouts.first_byte, timeouts.between_bytes, timeouts.whole_call)
    return min([at_most, *(limit for limit in limits if limit is not None)])
