"""An operation: one action that a caller can request from Treadle, defined once.

A definition names the operation, its method and path, the scope that a caller needs, and the types of its request
and response. The HTTP route, the OpenAPI entry and the clients derive from it. Fields of the request that the path
names are sent in the path; the others are sent in the query (GET, DELETE) or in a JSON body (POST, PUT, PATCH)."""

import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from datetime import datetime
from functools import cached_property
from inspect import getdoc
from types import NoneType, UnionType
from typing import Annotated, Any, Generic, Literal, NamedTuple, Protocol, TypeVar, cast, get_args, get_origin
from urllib.parse import quote

import msgspec
from msgspec import Struct
from msgspec.structs import FieldInfo

from treadle.domain.access import Scope
from treadle.domain.envelope import Event
from treadle.domain.errors import SizeLimitExceeded, UsageError
from treadle.domain.ids import RunId
from treadle.operations.context import Context
from treadle.operations.event_source import EventSource
from treadle.operations.refusal import Problem
from treadle.operations.request_checks import InvalidParameter, conforms, explain_invalid_request
from treadle.operations.schemas import Page

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Streams = Literal["never", "always", "on_request"]
Q = TypeVar("Q", bound=Struct)
R = TypeVar("R")
Item = TypeVar("Item")
Handler = Callable[[Context, Q], Awaitable[R]]

PAGE_LIMIT = 500
"""The most items that one page of a list has."""
_IN_PATH = re.compile(r"\{(\w+)\}")


class NoParameters(Struct, frozen=True, forbid_unknown_fields=True):
    """The request of an operation that takes nothing."""


class WireRequest(NamedTuple):
    """A request as it is sent."""

    path: str
    query: dict[str, str | list[str]]
    """A list is sent as one parameter for each item."""
    body: bytes | None


class Operation(Generic[Q, R]):
    """The definition of one operation. `handler` registers the function that performs it.

    An operation without a handler is only described here: a hand-written route serves it."""

    def __init__(
        self,
        name: str,
        method: Method,
        path: str,
        *,
        scope: Scope | None,
        also: Scope | None = None,
        request: type[Q],
        response: type[R],
        errors: tuple[int, ...] = (),
        status: int = 200,
        public: bool = True,
        whole_body: str | None = None,
        in_query: tuple[str, ...] = (),
        body_schema: Any = None,
        hand_written: bool = False,
        streams: Streams = "never",
        frames: tuple[type[Struct], ...] = (),
        failure: type[Struct] = Problem,
        header: str | None = None,
        summary: str = "",
        description: str = "",
        tag: str = "",
    ) -> None:
        self.name = name
        """`entity.verb`, such as `sessions.rename`."""
        self.method: Method = method
        self.path = path
        self.scope: Scope | None = scope
        """None: the request carries its own proof, such as a signature."""
        self.scopes: tuple[Scope, ...] = tuple(each for each in (scope, also) if each is not None)
        """Any of them is enough."""
        self.request = request
        self.response = response
        self.errors = errors
        """The HTTP statuses of its own errors, besides those that every operation can have."""
        self.status = 204 if response is NoneType and status == 200 else status
        self.public = public
        """False for operations that only the owner's own processes use. OpenAPI leaves them out."""
        self.whole_body = whole_body
        """The field that is the whole JSON body; None: the body is an object of the fields."""
        self.in_query = in_query
        """Fields that are sent in the query although the method has a body."""
        self.body_schema = body_schema
        """The type that describes the body where it says more than the type of its field."""
        self.hand_written = hand_written
        """True if a hand-written HTTP route serves the operation."""
        self.streams: Streams = streams
        """Whether the response is a stream of server-sent events."""
        self.frames = frames
        """Types of the data of a frame of the stream."""
        self.failure = failure
        """The body of an error."""
        self.header = header
        """A header that the operation reads, besides those of every request."""
        self.tag = tag or self.entity
        """The group that OpenAPI lists it in."""
        self._handler: Handler[Q, R] | None = None
        self._documentation = (summary, description)

    def __repr__(self) -> str:
        return f"<Operation {self.name}: {self.method} {self.path}>"

    def handler(self, function: Handler[Q, R]) -> Handler[Q, R]:
        """Register the function that performs this operation. Its docstring describes the operation."""
        assert self._handler is None, f"{self.name} has two handlers"
        self._handler = function
        return function

    @property
    def waits(self) -> bool:
        """Return whether a caller can wait for the result: then the status is 200 if it came in time."""
        return self.status == 202 and "wait" in self.in_query

    def find_status(self, response: R) -> int:
        """Return the status of a response."""
        return 200 if self.waits and getattr(response, "outcome", None) is not None else self.status

    @property
    def has_handler(self) -> bool:
        return self._handler is not None

    @property
    def has_plain_route(self) -> bool:
        """Return whether its HTTP route is made from the definition."""
        return self.has_handler and not self.hand_written

    def check(self, request: Q) -> None:
        """Raise UsageError or SizeLimitExceeded if a request violates the constraints of its type, with the message
        that a caller over HTTP gets."""
        if conforms(request):
            return
        values: dict[str, Any] = msgspec.to_builtins(request)
        wire = self.encode(request)
        try:
            self.decode({name: str(values[name]) for name in self.path_fields}, wire.query, wire.body or b"")
        except (InvalidParameter, msgspec.ValidationError) as error:
            refusal = explain_invalid_request(error)
            raise (SizeLimitExceeded if refusal.status == 413 else UsageError)(str(refusal)) from None
        raise AssertionError(f"{self.name}: HTTP accepts what is refused here")

    async def perform(self, context: Context, request: Q) -> R:
        """Call the handler. It checks what the caller may see; the scope and the constraints of the request are
        checked before."""
        assert self._handler is not None, f"{self.name} has no handler"
        return await self._handler(context, request)

    # ── Documentation ──

    @property
    def entity(self) -> str:
        return self.name.partition(".")[0]

    @cached_property
    def documentation(self) -> tuple[str, str]:
        """The summary and the description, from the docstring of the handler."""
        if self._handler is None:
            return self._documentation
        summary, _, description = (getdoc(self._handler) or "").partition("\n\n")
        return " ".join(summary.split()).rstrip("."), " ".join(description.split())

    # ── On the wire ──

    def make_path(self, request: Q) -> str:
        """Return the path of a request, before it is quoted."""
        values = {field.encode_name: getattr(request, field.name) for field in msgspec.structs.fields(self.request)}
        return _IN_PATH.sub(lambda found: str(values[found[1]]), self.path)

    @cached_property
    def path_fields(self) -> tuple[str, ...]:
        return tuple(_IN_PATH.findall(self.path))

    @cached_property
    def _sent(self) -> dict[str, FieldInfo]:
        """The fields that the path does not carry, by their names on the wire."""
        fields = msgspec.structs.fields(self.request)
        return {field.encode_name: field for field in fields if field.encode_name not in self.path_fields}

    @cached_property
    def body_fields(self) -> dict[str, FieldInfo]:
        if self.method in ("GET", "DELETE"):
            return {}
        return {name: field for name, field in self._sent.items() if name not in self.in_query}

    @cached_property
    def query_fields(self) -> dict[str, FieldInfo]:
        return {name: field for name, field in self._sent.items() if name not in self.body_fields}

    @cached_property
    def repeated_fields(self) -> frozenset[str]:
        """The fields of the query that may be sent several times."""
        return frozenset(name for name, field in self.query_fields.items() if _is_list(field.type))

    def encode(self, request: Q) -> WireRequest:
        """Return a request as it is sent. Fields that have their default value are left out."""
        values: dict[str, Any] = msgspec.to_builtins(request)
        path = _IN_PATH.sub(lambda found: quote(str(values[found[1]]), safe=""), self.path)
        sent = {name: values[name] for name, field in self._sent.items() if _is_sent(name, field, values)}
        query = {name: _as_text(value) for name, value in sent.items() if name in self.query_fields}
        if not self.body_fields:
            return WireRequest(path, query, None)
        body = {name: value for name, value in sent.items() if name in self.body_fields}
        return WireRequest(
            path, query, msgspec.json.encode(body.get(self.whole_body) if self.whole_body is not None else body)
        )

    def decode(self, path: Mapping[str, str], query: Mapping[str, str | list[str]], body: bytes) -> Q:
        """Return a request as it was sent. Raises `msgspec.DecodeError` where it is not one."""
        outside = self._decode_outside(path, query)
        if not self.body_fields:
            return self.request(**outside)
        if self.whole_body is not None:
            field = self.body_fields[self.whole_body]
            if body or field.required:
                outside[field.name] = msgspec.json.decode(body, type=field.type)
            return self.request(**outside)
        if not outside:
            return msgspec.json.decode(body or b"{}", type=self.request)
        values = msgspec.json.decode(body or b"{}", type=dict[str, Any])
        for name in (*self.path_fields, *self.query_fields):
            if name in values:
                raise msgspec.ValidationError(f"Object contains unknown field `{name}`")
        return msgspec.convert({**values, **path, **query}, self.request)

    @cached_property
    def response_types(self) -> tuple[Any, ...]:
        """The types that a response can have: more than one if it is a union."""
        response: Any = self.response
        return get_args(response) if isinstance(response, UnionType) else (response,)

    def encode_response(self, response: R) -> bytes | None:
        """Return the body of a response, or None if it has none."""
        return None if self.status == 204 else msgspec.json.encode(response)

    def decode_response(self, body: bytes) -> R:
        """Return the response in a body. Of a union, it has the type with the most required fields that fits."""
        if len(self.response_types) == 1:
            return msgspec.json.decode(body or b"null", type=self.response)
        *most, least = sorted(self.response_types, key=_count_required_fields, reverse=True)
        for type_ in most:
            with suppress(msgspec.ValidationError):
                return msgspec.json.decode(body, type=type_)
        return msgspec.json.decode(body, type=least)

    def _decode_outside(self, path: Mapping[str, str], query: Mapping[str, str | list[str]]) -> dict[str, Any]:
        """Return the fields that the path and the query carry, by their names in the struct."""
        found: dict[str, Any] = {}
        for field in msgspec.structs.fields(self.request):
            name = field.encode_name
            if name in path:
                found[field.name] = self._convert(name, path[name], field)
            elif name in self.query_fields and name in query:
                found[field.name] = self._convert(name, query[name], field)
            elif name in self.query_fields and field.required:
                raise InvalidParameter(f"{name}: the parameter is missing")
        return found

    @staticmethod
    def _convert(name: str, sent: str | list[str], field: FieldInfo) -> Any:
        try:
            value = msgspec.convert(sent, field.type, strict=_is_time(field.type))  # a number is not a time
        except msgspec.ValidationError as error:
            raise InvalidParameter(f"{name}: {error}") from None
        if value is None:  # the word "null": a parameter without a value is left out
            raise InvalidParameter(f"{name}: Invalid value '{sent}'. Leave the parameter out instead.")
        return value


class Caller(Protocol):
    """Performs operations: in this process, over the Unix socket of another, or over HTTP."""

    async def call(self, operation: Operation[Q, R], request: Q, *, key: str | None = None) -> R:
        """Perform an operation. With an idempotency key, a repeated call returns the first response."""
        ...


class OperationClient(Caller, EventSource, Protocol):
    """A caller that can also follow runs."""

    def feed(self) -> AsyncGenerator[Event, None]:
        """Follow all runs: every event that is committed from now on."""
        ...


class LocalCaller:
    """Implements `Client` in this process."""

    def __init__(self, context: Context) -> None:
        self.context = context

    async def call(self, operation: Operation[Q, R], request: Q, *, key: str | None = None) -> R:
        operation.check(request)
        context = self.context
        if key is not None:
            context = context.with_key(make_journal_key(None, operation.make_path(request), key))
        return await operation.perform(context, request)

    def events(self, run_id: RunId, after: int = 0) -> AsyncGenerator[Event, None]:
        return self.context.service.events(run_id, after)

    def read_stored(self, run_id: RunId, after: int = 0) -> AsyncGenerator[Event, None]:
        return self.context.service.read_stored(run_id, after)

    async def feed(self) -> AsyncGenerator[Event, None]:
        async with aclosing(self.context.service.feed()) as feed:
            async for placed in feed:
                yield placed.event


def make_journal_key(token_id: str | None, path: str, key: str) -> str:
    """Return the key under which the journal records what a request begins. It is the same in the process that owns
    the home and over HTTP: a client can repeat a request to whichever process owns the home then."""
    return f"http/{token_id or 'owner'}/{path}/{key}"


async def list_items(
    caller: Caller, operation: Operation[Q, Page[Item]], request: Q, limit: int | None = None
) -> list[Item]:
    """Return the items of a list, page after page, at most `limit` of them. The request has `cursor` and
    `limit`."""
    return [item async for item in _items(caller, operation, request, limit)]


async def _items(
    caller: Caller, operation: Operation[Q, Page[Item]], request: Q, limit: int | None
) -> AsyncGenerator[Item, None]:
    left = limit
    while left is None or left > 0:
        wanted = msgspec.structs.replace(request, limit=PAGE_LIMIT if left is None else min(left, PAGE_LIMIT))
        page = await caller.call(operation, wanted)
        for item in page.items:
            yield item
        if page.next is None:
            return
        left = None if left is None else left - len(page.items)
        request = msgspec.structs.replace(request, cursor=page.next)


def _count_required_fields(struct: type[Struct]) -> int:
    return sum(field.required for field in msgspec.structs.fields(struct))


def _is_sent(name: str, field: FieldInfo, values: Mapping[str, Any]) -> bool:
    if name not in values:
        return False
    if field.default is not msgspec.NODEFAULT:
        return bool(values[name] != msgspec.to_builtins(field.default))
    if field.default_factory is not msgspec.NODEFAULT:
        return bool(values[name] != msgspec.to_builtins(field.default_factory()))
    return True


def _is_list(type_: Any) -> bool:
    return get_origin(type_) is tuple or (get_origin(type_) is Annotated and _is_list(get_args(type_)[0]))


def _is_time(type_: Any) -> bool:
    """Return whether a type has times. They are sent as text in any case."""
    return type_ is datetime or any(map(_is_time, get_args(type_)))


def _as_text(value: object) -> str | list[str]:
    if isinstance(value, list | tuple):
        return [str(item) for item in cast("Sequence[object]", value)]
    return str(value).lower() if isinstance(value, bool) else str(value)


def find_trace_parent() -> str:
    """Return the current span of the program as a W3C `traceparent`; empty if it has none."""
    if (trace := sys.modules.get("opentelemetry.trace")) is None:  # a program that has spans has imported it
        return ""
    current = trace.get_current_span().get_span_context()
    if not current.is_valid:
        return ""
    return f"00-{current.trace_id:032x}-{current.span_id:016x}-{int(current.trace_flags):02x}"
