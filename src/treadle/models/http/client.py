"""A model call in any wire format: the request is sent at once, the reply arrives in pieces.

A format defines how a request is encoded and how a reply is assembled. Everything else is common to all
formats."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from treadle.domain.limits import MAX_REPLY_BYTES, MAX_REPLY_CHARACTERS, MB
from treadle.domain.providers import ApiMode
from treadle.domain.runs import Usage
from treadle.models.http import failure
from treadle.models.http.end_tokens import EndTokenFilter
from treadle.models.http.endpoint import Endpoint
from treadle.models.http.keys import DEFAULT_RATE_COOLDOWN_SECONDS, ProviderKey
from treadle.models.http.sse import DocumentParser, EventTooLarge, PayloadParser
from treadle.models.http.transport import (
    CallFailed,
    Connections,
    Credentials,
    HttpCall,
    PreparedPost,
    bearer_headers,
)
from treadle.models.http.wire import ReplyEndedInError, UnusableReply
from treadle.models.windows import OLLAMA_FINGERPRINT, OLLAMA_SERVER
from treadle.ports.model import CallDelta, Completed, Delta, Failed, ModelRequest, Show

LARGE_PIECE_BYTES = 16 * 1024
"""Size of a piece of a reply after which other tasks of the event loop run."""
_MIN_KEY_COOLDOWN_SECONDS = 5.0
_REFUSED_KEY_COOLDOWN_SECONDS = 3600.0
"""How long a key rests after it was refused or its account ran out of credit."""


class PartialReply(Protocol):
    """The part of a reply received so far."""

    done: bool
    """The reply has said that it is complete. Nothing that follows belongs to it."""

    def feed(self, payloads: list[bytes]) -> Any:
        """Add events. Stop at an event that reports an error, and return that error. Raise UnusableReply if an
        event is invalid."""
        ...

    def show_new(self, show: Show) -> None:
        """Show what arrived since the last call. Pieces that arrived together are shown together."""
        ...

    def finish(self, sent_bytes: int) -> Completed:
        """Return the complete reply. Raise UnusableReply if it is incomplete."""
        ...

    def usage(self, sent_bytes: int) -> Usage:
        """Return the usage reported by the provider, or else an estimate."""
        ...


class WireFormat(NamedTuple):
    """A wire format."""

    name: ApiMode
    path: str
    """The path of its requests below the base URL."""
    encode: Callable[[ModelRequest], bytes]
    reply: Callable[[ModelRequest], PartialReply]
    headers: Mapping[str, str] = {}
    credentials: Credentials = bearer_headers


class ReplySize:
    """Passes the pieces of a reply on, and limits their total length."""

    def __init__(self, show: Show) -> None:
        self._show = show
        self._characters = 0

    def show(self, delta: Delta) -> None:
        self._characters += len(delta.arguments if isinstance(delta, CallDelta) else delta.text)
        if self._characters > MAX_REPLY_CHARACTERS:
            raise UnusableReply(f"it is longer than {MAX_REPLY_CHARACTERS:,} characters")
        self._show(delta)


class ModelClient:
    """Implements `ports.model.Model` for the models of one provider."""

    def __init__(self, format_: WireFormat, endpoint: Endpoint, connections: Connections) -> None:
        self._format = format_
        self._endpoint = endpoint
        self._post = PreparedPost(endpoint, connections, format_.headers, format_.credentials)
        self.server: str | None = None
        """The name in the `Server` header, or `ollama`; None until the server has answered."""

    async def reply(self, request: ModelRequest, show: Show) -> Completed | Failed:
        body, key = self._format.encode(request), self._endpoint.keys.current()
        call = HttpCall(self._post, request.model, key, request.profile.context_window)
        reply, shown = self._format.reply(request), EndTokenFilter(ReplySize(show).show, request)
        try:
            await call.open(body)
            is_first = self.server is None
            if is_first:
                self.server = call.server
            payloads, ended, received = DocumentParser() if call.is_json else PayloadParser(), False, 0
            while not (ended or reply.done):
                piece = await call.read()
                ended = not piece
                received += len(piece)
                if received > MAX_REPLY_BYTES:
                    raise UnusableReply(f"it is larger than {MAX_REPLY_BYTES // MB} MB")
                if is_first and OLLAMA_FINGERPRINT.search(piece):
                    self.server = OLLAMA_SERVER
                if error := reply.feed(payloads.feed(piece) if piece else payloads.end()):
                    raise CallFailed(failure.from_stream_error(call.request_info, error))
                reply.show_new(shown.show)
                if len(piece) > LARGE_PIECE_BYTES:
                    await asyncio.sleep(0)  # the next piece may have arrived, and other runs go on meanwhile
            whole = shown.finish(_finish_reply(reply, len(body), call))
            await call.finish()
        except (CallFailed, UnusableReply, EventTooLarge, RecursionError) as error:
            from treadle.models.http.reasoning_errors import add_reasoning_repair

            failed = add_reasoning_repair(self._make_failed(error, call, key, reply, len(body)), request)
            if not request.constrained:
                return failed
            from treadle.models.http.schema_errors import add_schema_repair

            return add_schema_repair(failed, request)
        else:
            return whole
        finally:
            call.close()

    def _make_failed(
        self, error: Exception, call: HttpCall, key: ProviderKey | None, reply: PartialReply, sent_bytes: int
    ) -> Failed:
        if isinstance(error, CallFailed):
            failed = self._with_next_key(error.failed, key)
        else:
            what = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
            failed = failure.from_malformed_reply(self._endpoint, f"{what}{call.unexpected_type_note}")
        return msgspec.structs.replace(failed, usage=reply.usage(sent_bytes)) if call.accepted else failed

    def _with_next_key(self, failed: Failed, key: ProviderKey | None) -> Failed:
        """Let the key rest if another key may help. If another key is available, the call can be retried at
        once."""
        if not failed.next_key or key is None:
            return msgspec.structs.replace(failed, next_key=False) if failed.next_key else failed
        seconds = _REFUSED_KEY_COOLDOWN_SECONDS
        if failed.kind == "rate_limited":
            seconds = min(
                _REFUSED_KEY_COOLDOWN_SECONDS,
                max(_MIN_KEY_COOLDOWN_SECONDS, failed.retry_after or DEFAULT_RATE_COOLDOWN_SECONDS),
            )
        if not self._endpoint.keys.cool_down(key, seconds):
            return msgspec.structs.replace(failed, next_key=False)
        return msgspec.structs.replace(failed, retryable=True, retry_after=0.0)


def _finish_reply(reply: PartialReply, sent_bytes: int, call: HttpCall) -> Completed:
    """Return the complete reply. A reply that the provider marks as failed is treated like any other error."""
    try:
        return reply.finish(sent_bytes)
    except ReplyEndedInError as error:
        said = {"message": f"it ended the reply with `{error.word}`", "code": error.word}
        raise CallFailed(failure.from_stream_error(call.request_info, said)) from error
