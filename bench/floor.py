"""The floor: the lowest cost of a durable agent loop in Python, on aiohttp, msgspec and apsw.

It keeps the same journal as Treadle (the same rows and commits). It has no guards, no fences, no subscribers and
no resume, and it imports nothing of Treadle."""

# The stub of apsw leaves types out.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
import asyncio
import itertools
import queue
import random
import threading
import time
from collections.abc import Awaitable, Callable

import aiohttp
import apsw
import msgspec
from yarl import URL

SCHEMA = """
PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
CREATE TABLE runs (id INTEGER PRIMARY KEY, run_id TEXT UNIQUE, status TEXT) STRICT;
CREATE TABLE events (position INTEGER PRIMARY KEY, run INTEGER, sequence INTEGER, event_id TEXT, timestamp REAL,
                     type TEXT, version INTEGER, data BLOB, UNIQUE (run, sequence)) STRICT;
"""
INSERT = "INSERT INTO events (run, sequence, event_id, timestamp, type, version, data) VALUES "
AT_ONCE = 64
encode = msgspec.json.Encoder().encode
Tool = Callable[..., Awaitable[str]]
Row = tuple[int, int, str, float, str, int, bytes]


class Function(msgspec.Struct):
    name: str = ""
    arguments: str = ""


class Call(msgspec.Struct):
    function: Function
    index: int = 0
    id: str = ""
    type: str = "function"


class Delta(msgspec.Struct):
    content: str | None = None
    tool_calls: list[Call] = []


class Choice(msgspec.Struct):
    delta: Delta


class Chunk(msgspec.Struct):
    choices: list[Choice] = []
    usage: dict[str, int] | None = None


decode = msgspec.json.Decoder(Chunk).decode


class Journal:
    """Rows of all runs go to one thread, which commits everything that arrived since its last commit."""

    def __init__(self, path: str) -> None:
        self.run_numbers = itertools.count(1)
        self._loop = asyncio.get_running_loop()
        self._database = apsw.Connection(path)
        list(self._database.execute(SCHEMA))
        self._queue: queue.SimpleQueue[tuple[list[Row], asyncio.Future[None]]] = queue.SimpleQueue()
        threading.Thread(target=self._write, daemon=True).start()

    def append(self, rows: list[Row]) -> asyncio.Future[None]:  # resolved when they are on the disk
        durable = self._loop.create_future()
        self._queue.put((rows.copy(), durable))
        rows.clear()
        return durable

    def _write(self) -> None:
        """Write many rows per statement: each statement releases the interpreter lock and must get it back."""
        while True:
            group = [self._queue.get()]
            while not self._queue.empty():
                group.append(self._queue.get())
            rows = [row for rows, _ in group for row in rows]
            begun = [(row[0], f"run_{random.getrandbits(128):032x}", "running") for row in rows if row[1] == 1]
            self._database.execute("BEGIN IMMEDIATE")
            self._database.executemany("INSERT INTO runs VALUES (?, ?, ?)", begun)
            for at in range(0, len(rows), AT_ONCE):
                part = rows[at : at + AT_ONCE]
                values = ",".join(["(?,?,?,?,?,?,?)"] * len(part))
                self._database.execute(INSERT + values, list(itertools.chain.from_iterable(part)))
            self._database.execute("COMMIT")
            self._loop.call_soon_threadsafe(lambda group=group: [done.set_result(None) for _, done in group])


class Floor:
    """An agent with one tool. `head` is the request up to and including the system message."""

    def __init__(self, http: aiohttp.ClientSession, journal: Journal, url: URL, head: bytes, tool: Tool):
        self._http, self._journal, self._url, self._head, self._tool = http, journal, url, head, tool

    async def run(self, message: str) -> str:
        run, sequence, pending = next(self._journal.run_numbers), itertools.count(1), list[Row]()

        def note(kind: str, data: object) -> None:
            event_id = f"evt_{time.time_ns() << 64 | random.getrandbits(64):032x}"
            pending.append((run, next(sequence), event_id, time.time(), kind, 1, encode(data)))

        messages = [encode({"role": "user", "content": message})]
        note("run_queued", {"message": message})
        note("run_start", {"run": run})
        step = 1
        while True:
            note("step_start", {"step": step})
            note("llm_request", {"step": step, "messages": len(messages)})
            await self._journal.append(pending)
            text, calls, usage = await self._complete(messages)
            note("llm_response", {"step": step, "text": text, "calls": calls, "usage": usage})
            if not calls:
                note("step_end", {"step": step})
                note("run_end", {"outcome": "completed", "text": text})
                await self._journal.append(pending)
                return text
            for call in calls:
                note("tool_call_start", {"step": step, "call": call.id, "arguments": call.function.arguments})
            await self._journal.append(pending)
            messages.append(encode({"role": "assistant", "content": text, "tool_calls": calls}))
            for call in calls:
                result = await self._tool(**msgspec.json.decode(call.function.arguments))
                note("tool_call_end", {"step": step, "call": call.id, "result": result})
                messages.append(encode({"role": "tool", "tool_call_id": call.id, "content": result}))
            note("step_end", {"step": step})
            step += 1

    async def _complete(self, messages: list[bytes]) -> tuple[str, list[Call], dict[str, int] | None]:
        """Make one model call, and return the text, the merged tool calls and the usage."""
        text, calls, usage, rest, done = list[str](), dict[int, Call](), None, b"", False
        body = b",".join([self._head, *messages]) + b"]}"
        async with self._http.post(self._url, data=body, raise_for_status=True) as response:
            async for data in response.content.iter_any():
                *lines, rest = (rest + data).split(b"\n\n")
                for line in lines:
                    if done := line == b"data: [DONE]":
                        continue
                    chunk = decode(line[6:])
                    usage = chunk.usage or usage
                    for choice in chunk.choices:
                        text.append(choice.delta.content or "")
                        for fragment in choice.delta.tool_calls:
                            call = calls.setdefault(fragment.index, fragment)
                            if call is not fragment:
                                call.function.arguments += fragment.function.arguments
        if not done:
            raise ConnectionError("the stream ended before [DONE]")
        return "".join(text), list(calls.values()), usage
