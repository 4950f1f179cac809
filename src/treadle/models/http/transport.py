"""One HTTP call to a model: a request goes out whole, the reply comes back in pieces, each wait is bounded.

Knows nothing of wire formats. Whatever goes wrong here is raised as `CallFailed`."""

import asyncio
import contextlib
import io
import math
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from multidict import CIMultiDict
from yarl import URL

from treadle.domain.providers import Timeouts
from treadle.models.http import failures
from treadle.models.http.endpoint import Endpoint
from treadle.models.http.failures import Limit
from treadle.models.http.keys import Key
from treadle.models.http.posting import MOST_AT_ONCE, NO_LIMITS, READ_BUFFER, Poster, is_plain
from treadle.ports.model import Failed
from treadle.timers import Timers

_SMALL_BODY = 1024 * 1024  # aiohttp wants larger ones as a file, which it sends without holding up the loop
_ERROR_BODY = 64 * 1024
_LINGER_SECONDS = 0.1
_LOOK_SECONDS = 5.0
_STREAM = "text/event-stream"
_JSON = "application/json"
_LOST = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)


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
            self._connector = _connector()
        session = aiohttp.ClientSession(
            connector=self._connector,
            connector_owner=False,
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=NO_LIMITS,  # `_Watch` keeps the time, for less
            read_bufsize=READ_BUFFER,
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


class _KeptAndLost(aiohttp.ServerDisconnectedError):
    """A connection that was kept from an earlier call has ended before any byte of an answer came."""


class Protocol(ResponseHandler):
    """aiohttp's own, but for three things.

    Each piece that is read asks for reading to be resumed, and each time the parser is run over nothing, also when
    reading was never paused. A reply has as many pieces as it has tokens.

    Reading is resumed in a turn of its own: a few bytes that were compressed may unpack to so many that the reader
    would never have to wait, and nobody else had a turn.

    And a connection that was lost while it was kept is told from one that was lost on a call."""

    _held = False
    _calls = 0
    _answered = True

    def set_response_params(self, **params: Any) -> None:
        """A call begins."""
        super().set_response_params(**params)
        self._calls += 1
        self._answered = False
        self.data_received = self._first_received

    def _first_received(self, data: bytes) -> None:
        """Stands in for `data_received` once in each call, so that the other pieces cost nothing more."""
        self._answered = True
        del self.data_received
        self.data_received(data)

    def set_exception(self, exc: BaseException, exc_cause: BaseException | None = None) -> None:
        if self._calls > 1 and not self._answered and isinstance(exc, _LOST):
            super().set_exception(_KeptAndLost(), exc)
        elif exc_cause is None:
            super().set_exception(exc)
        else:
            super().set_exception(exc, exc_cause)

    def pause_reading(self) -> None:
        self._held = True
        super().pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        if self._held:
            self._held = False
            self._loop.call_soon(super().resume_reading, resume_parser)


def _connector() -> aiohttp.TCPConnector:
    connector = aiohttp.TCPConnector(limit=0, ttl_dns_cache=300)
    protocol: partial[ResponseHandler] = partial(Protocol, loop=asyncio.get_running_loop())
    # aiohttp has no public place for it; where it goes by another name, calls cost more and still work.
    connector._factory = protocol  # pyright: ignore[reportPrivateUsage] -- aiohttp has no other door
    return connector


Credentials = Callable[[str], Mapping[str, str]]
"""The headers that carry a key."""


def bearer(key: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {key}"}


class Post:
    """What is the same in every call to one endpoint, prepared once."""

    def __init__(
        self,
        endpoint: Endpoint,
        connections: Connections,
        headers: Mapping[str, str] | None = None,
        credentials: Credentials = bearer,
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
        self._sessions: dict[Key | None, aiohttp.ClientSession] = {}
        self._posters: dict[Key | None, Poster] = {}

    def __call__(self, body: bytes, key: Key | None) -> Awaitable[aiohttp.ClientResponse]:
        """Send a body with this key. Headers that a session has cost less than those that a call brings."""
        session = self._sessions.get(key)
        if session is None or session.closed:
            session = self._open(key)
        if len(body) <= MOST_AT_ONCE and (poster := self._posters.get(key)) is not None:
            return poster.post(body)
        return session.post(
            self.url,
            data=aiohttp.BytesPayload(body) if len(body) <= _SMALL_BODY else io.BytesIO(body),
            allow_redirects=False,  # a redirect would lose the body, or take the key elsewhere
        )

    def _open(self, key: Key | None) -> aiohttp.ClientSession:
        session = self._sessions[key] = self.connections.session(self._headers[key])
        if is_plain(self.url, session):
            self._posters[key] = Poster(self.url, session)
        return session


class Call:
    """One request and its reply: `open`, then `read` until it gives nothing, then `close`."""

    def __init__(self, post: Post, model: str, key: Key | None = None) -> None:
        self._post = post
        self._model = model
        self._key = key
        self._response: aiohttp.ClientResponse | None = None
        self._watch: _Watch | None = None

    @property
    def accepted(self) -> bool:
        """Whether the provider took the request, so that it may charge for it."""
        return self._response is not None and self._response.status == 200

    @property
    def is_json(self) -> bool:
        """Whether the reply is said to be one JSON document: not every server streams when it is asked to."""
        if self._response is None:
            return False
        return self._response.headers.get("Content-Type", "").lower().startswith(_JSON)

    @property
    def unexpected_type(self) -> str:
        """Words about what the reply is, if it is not the stream that was asked for."""
        kind = self._response.content_type if self._response is not None else _STREAM
        return "" if kind == _STREAM else f"; it came as {kind} and not as {_STREAM}: check base_url"

    async def open(self, body: bytes) -> None:
        """Send the request and wait for a good status."""
        endpoint = self._post.endpoint
        watch = self._watch = _Watch(self._post.connections.timers, endpoint.timeouts)
        try:
            try:
                self._response = await self._post(body, self._key)
            except _KeptAndLost:  # the server was letting it go as the request went out
                self._response = await self._post(body, self._key)
        except asyncio.CancelledError:
            if (passed := watch.take_back()) is not None:
                raise CallFailed(failures.timed_out(endpoint, *passed)) from None
            raise
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise CallFailed(failures.from_error(endpoint, error)) from error
        watch.response = self._response
        if self._response.status != 200:
            raise CallFailed(await self._refusal(self._response))

    async def read(self) -> bytes:
        """The next piece of the reply; nothing when it has ended as it should."""
        response, watch = self._response, self._watch
        assert response is not None
        assert watch is not None
        watch.waiting_since = watch.time()
        try:
            piece = await response.content.readany()
        except _TimedOut as timeout:
            raise CallFailed(failures.timed_out(self._post.endpoint, timeout.limit, timeout.seconds)) from None
        except (aiohttp.ClientError, OSError) as error:
            what = "the connection broke off in the middle of it"
            raise CallFailed(failures.malformed(self._post.endpoint, what)) from error
        watch.begun = True
        return piece

    async def finish(self) -> None:
        """The reply is whole. Wait a moment for the server to end the body as well: only then can the
        connection serve the next call."""
        response = self._response
        assert response is not None
        if not response.content.is_eof():
            with contextlib.suppress(TimeoutError, CallFailed):
                async with asyncio.timeout(_LINGER_SECONDS):
                    while await self.read():
                        pass

    def close(self) -> None:
        """Let go of the connection: for reuse if the reply was read to its end, else it is cut."""
        if self._watch is not None:
            self._watch.cancel()
        if self._response is not None:
            self._response.release()

    async def _refusal(self, response: aiohttp.ClientResponse) -> Failed:
        body = bytearray()
        with contextlib.suppress(CallFailed):  # the status is known; its words are a courtesy
            while len(body) < _ERROR_BODY and (piece := await self.read()):
                body += piece
        asked = failures.Asked(self._post.endpoint, self._model, self._key)
        return failures.from_response(asked, response.status, response.headers, bytes(body[:_ERROR_BODY]))


class _TimedOut(Exception):
    def __init__(self, limit: Limit, seconds: float) -> None:
        super().__init__(limit, seconds)
        self.limit: Limit = limit
        self.seconds = seconds


class _Watch:
    """Keeps the time of one call with one timer, which looks now and then whether a limit has passed.

    Until there is a response it cancels the task that waits for one. After that it fails the reader: a timeout
    around every read would cost more than reading."""

    def __init__(self, timers: Timers, timeouts: Timeouts) -> None:
        loop = asyncio.get_running_loop()
        self.time = loop.time
        self.response: aiohttp.ClientResponse | None = None
        self.waiting_since = 0.0
        self.begun = False
        self._timers = timers
        self._task = asyncio.current_task()
        self._timeouts = timeouts
        self._started = loop.time()
        self._passed: tuple[Limit, float] | None = None
        timers.set(self, self._started + _first_look(timeouts, _LOOK_SECONDS))

    def cancel(self) -> None:
        self._timers.call_off(self)

    def take_back(self) -> tuple[Limit, float] | None:
        """Undo the cancellation, if it is this watch's and nobody else's: the limit that had passed."""
        if self._passed is None or self._task is None or self._task.uncancel() > 0:
            return None
        return self._passed

    def ring(self) -> None:
        """Stop the call if a limit has passed or the connection is lost, else look again in time."""
        now, response = self.time(), self.response
        if response is not None and response.content.is_eof():
            return
        at, limit, seconds = min(self._limits(), default=(math.inf, "whole_call", math.inf))
        if response is not None and _is_lost(response):
            response.content.set_exception(aiohttp.ClientPayloadError("the body cannot be parsed"))
        elif at > now:
            self._timers.set(self, min(at, now + _first_look(self._timeouts, _LOOK_SECONDS)))
        elif response is not None:
            response.content.set_exception(_TimedOut(limit, seconds))
        elif self._task is not None:
            self._passed = (limit, seconds)
            self._task.cancel()

    def _limits(self) -> list[tuple[float, Limit, float]]:
        """When each limit will have passed if nothing comes from now on, its name and its seconds."""
        timeouts, limits = self._timeouts, list[tuple[float, Limit, float]]()
        if timeouts.whole_call is not None:
            limits.append((self._started + timeouts.whole_call, "whole_call", timeouts.whole_call))
        if timeouts.first_byte is not None and not self.begun:
            limits.append((self._started + timeouts.first_byte, "first_byte", timeouts.first_byte))
        if timeouts.between_bytes is not None and self.begun:
            limits.append((self.waiting_since + timeouts.between_bytes, "between_bytes", timeouts.between_bytes))
        return limits


@lru_cache(maxsize=64)
def _first_look(timeouts: Timeouts, at_most: float) -> float:
    """Seconds within which no limit can have passed unnoticed."""
    limits = (timeouts.first_byte, timeouts.between_bytes, timeouts.whole_call)
    return min([at_most, *(limit for limit in limits if limit is not None)])


def _is_lost(response: aiohttp.ClientResponse) -> bool:
    """aiohttp gives a connection up when the framing of a body is broken, and does not tell its reader."""
    connection = response.connection
    protocol = connection.protocol if connection is not None else None
    return protocol is not None and protocol.exception() is not None
