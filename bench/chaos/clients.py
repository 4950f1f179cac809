"""Clients that submit runs, follow them and decide approvals over HTTP. Failed requests are retried at another
server."""

import asyncio
import itertools
import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import aiohttp

from bench.chaos.model import RequestedRun

CONNECTION_ERRORS = (aiohttp.ClientError, OSError, TimeoutError)
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0
"""Before something is tried again that has not worked."""
STREAM_TIMEOUT_SECONDS = 40.0
"""A stream without even a heartbeat for this long is abandoned."""
RESPONSE_TIMEOUT_SECONDS = 30.0
APPROVAL_INTERVAL_SECONDS = 0.3
"""How often pending approvals are checked."""


@dataclass(slots=True)
class ReceivedEvents:
    """The events that a reader of one run received."""

    last: int = 0
    faults: list[str] = field(default_factory=list[str])
    outcome: str | None = None
    connections: int = 0
    late: float = 0.0
    """Seconds from the end of the run until the reader received it."""

    def show(self, event: Any) -> None:
        sequence = event["sequence"]
        if sequence != self.last + 1:
            self.faults.append(f"{event['run_id']}: event {sequence} came after {self.last}")
        self.last = max(self.last, sequence)
        if event["type"] == "run_end":
            self.outcome = event["data"]["outcome"]
            self.late = time.time() - datetime.fromisoformat(event["timestamp"]).timestamp()


class Clients:
    """All clients, with the responses they received."""

    def __init__(self, doors: Sequence[str], http: aiohttp.ClientSession) -> None:
        self._doors = doors
        self._first = itertools.cycle(range(len(doors)))
        self._http = http
        self.acknowledged: dict[str, str] = {}
        """The run of each key."""
        self.doubled: list[str] = []
        """Keys under which two runs were acknowledged."""
        self.seen: dict[str, ReceivedEvents] = {}
        self.of_feed: dict[str, ReceivedEvents] = {}
        """What the reader of all runs received of each."""
        self.refusals: Counter[str] = Counter()
        """Responses that a client does not have to expect."""

    async def submit_and_follow(self, key: str, wish: RequestedRun, again: bool) -> None:
        """Submit runs until they are acknowledged, and read them to their ends. `again`: then submit once more."""
        body = {"message": wish.message}
        first = await self._submit(key, wish.agent, body)
        runs = [first["run_id"]]
        if wish.then is not None:
            following = {"message": wish.then, "session_id": first["session_id"]}
            runs.append((await self._submit(f"{key}, then", wish.agent, following))["run_id"])
        await asyncio.gather(*map(self._follow, runs))
        if again and (await self._submit(key, wish.agent, body))["run_id"] != first["run_id"]:
            self.doubled.append(key)

    async def approve_forever(self) -> None:
        """Approve everything that waits for it."""
        while True:
            reply = await self._ask("GET", "/v1/approvals", (200,))
            for waiting in reply["items"]:
                await self._ask(
                    "POST", f"/v1/approvals/{waiting['approval_id']}", (200, 404, 409), {"decision": "approve"}
                )
            await asyncio.sleep(APPROVAL_INTERVAL_SECONDS)

    async def read_all_forever(self) -> None:
        """Follow all runs at once from the first event on."""
        cursor, pauses, doors = "0", _backoff_seconds(), self._in_turn()
        while True:
            try:
                async for identity, event in self._events(next(doors) + "/v1/events", cursor):
                    cursor, pauses = identity, _backoff_seconds()
                    self.of_feed.setdefault(event["run_id"], ReceivedEvents()).show(event)
            except CONNECTION_ERRORS:
                pass
            await asyncio.sleep(next(pauses))

    async def _submit(self, key: str, agent: str, body: dict[str, str]) -> Any:
        told = await self._ask("POST", f"/v1/agents/{agent}/runs", (202,), body, key)
        self.acknowledged.setdefault(key, told["run_id"])
        return told

    async def _follow(self, run_id: str) -> None:
        seen, pauses, doors = self.seen.setdefault(run_id, ReceivedEvents()), _backoff_seconds(), self._in_turn()
        while seen.outcome is None:
            seen.connections += 1
            try:
                async for _, event in self._events(f"{next(doors)}/v1/runs/{run_id}/events", str(seen.last)):
                    pauses = _backoff_seconds()
                    seen.show(event)
            except CONNECTION_ERRORS:
                pass
            if seen.outcome is None:
                await asyncio.sleep(next(pauses))

    def _in_turn(self) -> Iterator[str]:
        """Yield one server after the other, starting at any of them."""
        first = next(self._first)
        return itertools.cycle([*self._doors[first:], *self._doors[:first]])

    async def _events(self, url: str, after: str) -> AsyncGenerator[tuple[str, Any], None]:
        """Yield the durable events of a stream with their ids until it breaks."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=STREAM_TIMEOUT_SECONDS)
        async with self._http.get(url, headers={"Last-Event-ID": after}, timeout=timeout) as response:
            if response.status != 200:
                self._refused("GET", url, response.status)
                return
            identity: str | None = None
            async for line in response.content:
                if line.startswith(b"id: "):
                    identity = line[4:].strip().decode()
                elif line.startswith(b"data: "):
                    event = json.loads(line[6:])
                    if event["type"] == "stream_reset":
                        self.refusals[f"stream_reset: {event['data']}"] += 1
                    elif identity is not None:
                        yield identity, event
                    identity = None

    async def _ask(
        self, method: str, path: str, accepted: Sequence[int], body: Any = None, key: str | None = None
    ) -> Any:
        """Try one server after the other until one responds."""
        headers, pauses, doors = (
            {} if key is None else {"Idempotency-Key": key},
            _backoff_seconds(),
            self._in_turn(),
        )
        while True:
            url = next(doors) + path
            try:
                async with self._http.request(method, url, json=body, headers=headers) as response:
                    if response.status in accepted:
                        return json.loads(await response.read())
                    self._refused(method, url, response.status)
            except CONNECTION_ERRORS:
                pass
            await asyncio.sleep(next(pauses))

    def _refused(self, method: str, url: str, status: int) -> None:
        """Record unexpected statuses. A server without its database responds with 503; no other error is
        expected."""
        if status != 503:
            self.refusals[f"{status} to {method} {url}"] += 1


def _backoff_seconds() -> Iterator[float]:
    """Yield growing pauses up to a limit."""
    return (min(FIRST_PAUSE * 2**times, LONGEST_PAUSE) for times in itertools.count())


@asynccontextmanager
async def open_clients(doors: Sequence[str], token: str) -> AsyncGenerator[Clients, None]:
    connector, timeout = (
        aiohttp.TCPConnector(limit=0),
        aiohttp.ClientTimeout(total=RESPONSE_TIMEOUT_SECONDS, sock_connect=5),
    )
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(
        headers=headers, connector=connector, timeout=timeout, read_bufsize=2**22
    ) as http:
        yield Clients(doors, http)
