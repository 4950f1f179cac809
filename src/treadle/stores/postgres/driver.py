"""Typed declarations of the parts of asyncpg that Treadle uses, because asyncpg has no type stubs."""

from collections.abc import AsyncIterable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, cast

import asyncpg  # pyright: ignore[reportMissingTypeStubs] -- it has none

PostgresError = asyncpg.PostgresError
InterfaceError = asyncpg.InterfaceError
"""The driver's own error: the connection is closed, or was used wrongly."""
InternalClientError = asyncpg.InternalClientError
"""The driver lost track of the protocol, because the server disconnected in the middle of a message."""


class BitString(Protocol):
    """The value of a BIT VARYING column."""

    @property
    def bytes(self) -> bytes: ...


def to_bit_string(of: bytes) -> BitString:
    return cast("BitString", asyncpg.BitString.frombytes(of))


class PostgresRow(Protocol):
    def __getitem__(self, key: "int | str") -> Any: ...
    def __iter__(self) -> Any: ...


class PostgresConnection(Protocol):
    """The part of a connection that Treadle uses."""

    async def execute(self, query: str, *args: object, timeout: float | None = None) -> str: ...
    async def fetch(self, query: str, *args: object, timeout: float | None = None) -> list[PostgresRow]: ...
    async def fetchval(self, query: str, *args: object, timeout: float | None = None) -> Any: ...
    def transaction(
        self, *, isolation: str | None = None, readonly: bool = False
    ) -> AbstractAsyncContextManager[object]: ...
    def cursor(self, query: str, *args: object, prefetch: int) -> AsyncIterable[PostgresRow]: ...
    async def copy_records_to_table(
        self, table_name: str, *, records: Sequence[Sequence[object]], columns: Sequence[str], schema_name: str
    ) -> str: ...
    def get_server_version(self) -> Any: ...
    def get_server_pid(self) -> int: ...
    async def add_listener(self, channel: str, callback: "Listener") -> None: ...
    def add_termination_listener(self, callback: "Callable[[PostgresConnection], None]") -> None: ...
    def is_closed(self) -> bool: ...
    def terminate(self) -> None: ...
    async def close(self, *, timeout: float | None = None) -> None: ...


class Pool(Protocol):
    """The part of a connection pool that Treadle uses."""

    def acquire(self, *, timeout: float | None = None) -> AbstractAsyncContextManager[PostgresConnection]: ...
    def terminate(self) -> None: ...
    async def close(self) -> None: ...


Listener = Callable[[PostgresConnection, int, str, str], None]
"""Called with the connection, the process id of the sender, the channel and the payload."""
Reset = Callable[[PostgresConnection], Coroutine[Any, Any, None]]


async def open_connection(url: str, timeout: float, settings: dict[str, str]) -> PostgresConnection:
    """Return a connection. Settings that are sent while connecting are refused by some poolers."""
    connect = cast("Callable[..., Coroutine[Any, Any, PostgresConnection]]", asyncpg.connect)
    return await connect(url, timeout=timeout, server_settings=settings)


async def open_pool(url: str, max_size: int, timeout: float, set_up: Reset, reset: Reset) -> Pool:
    """Return a pool that opens connections on demand and sets up each of them."""
    create = cast("Callable[..., Coroutine[Any, Any, Pool]]", asyncpg.create_pool)
    return await create(url, min_size=0, max_size=max_size, reset=reset, timeout=timeout, init=set_up)
