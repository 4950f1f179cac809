"""One HTTP call to a model: the request is sent at once, the reply arrives in pieces, and every wait is bounded.

This module is independent of wire formats. Every failure is raised as `CallFailed`."""

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


def is_success(status: int) -> bool:
    """Return whether a status comes with a reply. Some gateways send 201, or a 2xx status of their own for a reply
    that a check has marked."""
    return 200 <= status < 300


class CallFailed(Exception):
    """The call has failed; `failed` says why."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.message)
        self.failed = failed


class Connections:
    """The connections that all models of a registry share. They are opened in the running loop at the first
    call."""

    def __init__(self) -> None:
        self.timers = Timers()
        self._connector: aiohttp.TCPConnector | None = None
        self._sessions: list[aiohttp.ClientSession] = []

    def session(self, headers: Mapping[str, str]) -> aiohttp.ClientSession:
        """Return a session whose calls have these headers."""
        if self._connector is None:
            self._connector = _make_connector()
        session = aiohttp.ClientSession(
            connector=self._connector,
            connector_owner=False,
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=NO_AIOHTTP_TIMEOUT,  # `_TimeoutWatch` enforces the limits at a lower cost
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
    make_receiver: partial[ResponseHandler] = partial(ResponseReceiver, loop=asyncio.get_running_loop())
    if hasattr(connector, FACTORY_ATTRIBUTE):  # without it calls still work, at a higher cost
        setattr(connector, FACTORY_ATTRIBUTE, make_receiver)
    return connector


Credentials = Callable[[str], Mapping[str, str]]
"""Returns the headers that carry a key."""


def bearer_headers(key: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {key}"}


class PreparedPost:
    """Everything that is the same in every call to one endpoint, prepared once."""

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
            "Accept-Encoding": "identity",  # decompression would block the loop; some servers compress anyway
            "User-Agent": "treadle",
            **(headers or {}),
        }
        self._headers = {
            key: CIMultiDict({**common, **(credentials(key.value) if key else {}), **endpoint.headers})
            for key in (None, *endpoint.keys)
        }
        self._sessions: dict[ProviderKey | None, aiohttp.ClientSession] = {}
        self._senders: dict[ProviderKey | None, DirectSender] = {}

    async def __call__(self, body: bytes, key: ProviderKey | None) -> HttpResponse:
        """Send a body with this key. Headers of a session cost less than headers of a call."""
        session = self._sessions.get(key)
        if session is None or session.closed:
            session = self._open(key)
        if len(body) <= MAX_SINGLE_WRITE_BYTES and (sender := self._senders.get(key)) is not None:
            return await sender.post(body)
        sent = await session.post(
            self.url,
            data=aiohttp.BytesPayload(body) if len(body) <= MAX_SINGLE_WRITE_BYTES else io.BytesIO(body),
            allow_redirects=False,  # a redirect would lose the body, or send the key to another host
        )
        return AiohttpResponse(sent)

    def _open(self, key: ProviderKey | None) -> aiohttp.ClientSession:
        session = self._sessions[key] = self.connections.session(self._headers[key])
        if can_send_directly(self.url, session):
            self._senders[key] = DirectSender(self.url, session)
        return session


class HttpCall:
    """One request and its reply: `open`, then `read` until it returns nothing, then `close`."""

    def __init__(
        self, post: PreparedPost, model: str, key: ProviderKey | None = None, window: int = UNKNOWN_WINDOW
    ) -> None:
        self._post = post
        self._model = model
        self._key = key
        self._window = window
        self._body = b""
        self._response: HttpResponse | None = None
        self._watch: _TimeoutWatch | None = None

    @property
    def accepted(self) -> bool:
        """Return whether the provider accepted the request, so that it may charge for it."""
        return self._response is not None and is_success(self._response.status)

    @property
    def is_json(self) -> bool:
        """Return whether the reply is a single JSON document. Not every server streams on request."""
        return self._response is not None and self._response.content_type.startswith(_JSON)

    @property
    def unexpected_type_note(self) -> str:
        """Return a note about the content type if it is not the requested stream, else ""."""
        content_type = self._response.content_type if self._response is not None else _STREAM
        return (
            "" if content_type == _STREAM else f"; it came as {content_type} and not as {_STREAM}: check base_url"
        )

    @property
    def server(self) -> str:
        """Return the `Server` header, once the server has answered."""
        return "" if self._response is None else self._response.server

    @property
    def request_info(self) -> failure.RequestInfo:
        """Return the facts about the request. Only failures need them."""
        return failure.RequestInfo(
            self._post.endpoint, self._model, self._key, measure_request(self._body, self._window)
        )

    async def open(self, body: bytes) -> None:
        """Send the request and wait for the status of a reply."""
        endpoint, self._body = self._post.endpoint, body
        watch = self._watch = _TimeoutWatch(self._post.connections.timers, endpoint.timeouts)
        try:
            try:
                self._response = await self._post(body, self._key)
            except PooledConnectionLost:  # the server closed it while the request was sent
                self._response = await self._post(body, self._key)
        except asyncio.CancelledError:
            if (passed := watch.claim_cancellation()) is not None:
                raise CallFailed(failure.from_timeout(endpoint, *passed)) from None
            raise
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise CallFailed(failure.from_error(endpoint, error)) from error
        watch.response = self._response
        if isinstance(self._response, AiohttpResponse) and not is_success(self._response.status):
            raise CallFailed(await self._make_refusal(self._response.response))

    async def read(self) -> bytes:
        """Return the next piece of the reply, or b"" at its regular end."""
        response, watch = self._response, self._watch
        assert response is not None
        assert watch is not None
        watch.waiting_since = watch.time()
        try:
            piece = await response.read()
        except _TimedOut as timeout:
            raise CallFailed(failure.from_timeout(self._post.endpoint, timeout.limit, timeout.seconds)) from None
        except (aiohttp.ClientError, OSError) as error:
            what = "the connection broke off in the middle of it"
            raise CallFailed(failure.from_malformed_reply(self._post.endpoint, what)) from error
        watch.has_started = True
        return piece

    async def finish(self) -> None:
        """Wait a moment for the server to end the body of a complete reply. Only then can the connection be
        reused."""
        response = self._response
        assert response is not None
        if not response.is_whole:
            with contextlib.suppress(TimeoutError, CallFailed):
                async with asyncio.timeout(_LINGER_SECONDS):
                    while await self.read():
                        pass

    def close(self) -> None:
        """Release the connection: for reuse if the reply was read to its end, else close it."""
        if self._watch is not None:
            self._watch.cancel()
        if self._response is not None:
            self._response.release()

    async def _make_refusal(self, response: aiohttp.ClientResponse) -> Failed:
        body = bytearray()
        with contextlib.suppress(CallFailed):  # the status is known; the message is optional
            while len(body) < _MAX_ERROR_BODY_BYTES and (piece := await self.read()):
                body += piece
        return failure.from_response(
            self.request_info, response.status, response.headers, bytes(body[:_MAX_ERROR_BODY_BYTES])
        )


class _TimedOut(Exception):
    def __init__(self, limit: TimeoutLimit, seconds: float) -> None:
        super().__init__(limit, seconds)
        self.limit: TimeoutLimit = limit
        self.seconds = seconds


class _TimeoutWatch:
    """Enforces the time limits of one call with one timer, which checks periodically whether a limit has passed.

    Before the response it cancels the waiting task. After that it fails the reader: a timeout around every read
    would cost more than the reads."""

    def __init__(self, timers: Timers, timeouts: Timeouts) -> None:
        loop = asyncio.get_running_loop()
        self.time = loop.time
        self.response: HttpResponse | None = None
        self.waiting_since = 0.0
        self.has_started = False
        self._timers = timers
        self._task = asyncio.current_task()
        self._timeouts = timeouts
        self._started = loop.time()
        self._passed_limit: tuple[TimeoutLimit, float] | None = None
        timers.set(self, self._started + _first_check(timeouts, _CHECK_INTERVAL_SECONDS))

    def cancel(self) -> None:
        self._timers.cancel(self)

    def claim_cancellation(self) -> tuple[TimeoutLimit, float] | None:
        """Undo the cancellation if it came only from this watch, and return the limit that had passed, else
        None."""
        if self._passed_limit is None or self._task is None or self._task.uncancel() > 0:
            return None
        return self._passed_limit

    def fire(self) -> None:
        """Stop the call if a limit has passed or the connection is lost, else schedule the next check."""
        now, response = self.time(), self.response
        if response is not None and response.is_whole:
            return
        at, limit, seconds = min(self._limits(), default=(math.inf, "whole_call", math.inf))
        if response is not None and response.is_lost:
            response.fail(aiohttp.ClientPayloadError("the body cannot be parsed"))
        elif at > now:
            self._timers.set(self, min(at, now + _first_check(self._timeouts, _CHECK_INTERVAL_SECONDS)))
        elif response is not None:
            response.fail(_TimedOut(limit, seconds))
        elif self._task is not None:
            self._passed_limit = (limit, seconds)
            self._task.cancel()

    def _limits(self) -> list[tuple[float, TimeoutLimit, float]]:
        """Return when each limit passes if nothing arrives from now on, with its name and its seconds."""
        timeouts, limits = self._timeouts, list[tuple[float, TimeoutLimit, float]]()
        if timeouts.whole_call is not None:
            limits.append((self._started + timeouts.whole_call, "whole_call", timeouts.whole_call))
        if timeouts.first_byte is not None and not self.has_started:
            limits.append((self._started + timeouts.first_byte, "first_byte", timeouts.first_byte))
        if timeouts.between_bytes is not None and self.has_started:
            limits.append((self.waiting_since + timeouts.between_bytes, "between_bytes", timeouts.between_bytes))
        return limits


@lru_cache(maxsize=64)
def _first_check(timeouts: Timeouts, at_most: float) -> float:
    """Return the seconds until the first check, so that no limit passes unnoticed."""
    limits = (timeouts.first_byte, timeouts.between_bytes, timeouts.whole_call)
    return min([at_most, *(limit for limit in limits if limit is not None)])
