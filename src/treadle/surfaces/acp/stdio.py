"""JSON-RPC messages on standard input and output, one JSON object per line.

The SDK's own transport drops what it cannot parse. This one answers it with an error, limits the length of a
line, and can withdraw the requests that it has sent."""

import asyncio
import os
import stat
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import Any, cast

import msgspec

from treadle.domain.messages import make_sendable

MAX_LINE_BYTES = 64 * 1024 * 1024
"""A longer message is refused. It holds twenty images of 2 MB."""
READ_BYTES = 256 * 1024
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
CANCEL_REQUEST = "$/cancel_request"
PROMPT, CANCEL = "session/prompt", "session/cancel"
MAX_LISTED_ERRORS = 5
SETTLE_SECONDS, SETTLE_ROUNDS = 30.0, 20

Message = dict[str, Any]
Answer = Callable[[], Awaitable[None]]


class SentRequest:
    """A request to the editor that has no answer yet."""

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        """The whole message that answers it."""


def claim_stdio(log: int) -> tuple[int, int]:
    """Return private copies of standard input and output. What other code prints goes to the log instead, and no
    child process inherits the copies."""
    source, target = os.dup(0), os.dup(1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    os.dup2(log, 1)
    return source, target


async def open_reader(descriptor: int) -> asyncio.StreamReader:
    """Return a reader of a pipe, a socket, a terminal, a file or a device."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=READ_BYTES)
    if _is_file(descriptor):
        descriptor = _copy_to_pipe(descriptor)
    file = os.fdopen(descriptor, "rb", 0)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    return reader


def _copy_to_pipe(source: int) -> int:
    """Return a pipe with the content of a file. A thread reads it only as fast as the pipe is read."""
    taken, given = os.pipe()

    def copy() -> None:
        with suppress(OSError), os.fdopen(given, "wb", 0) as target:
            while chunk := os.read(source, READ_BYTES):
                target.write(chunk)

    threading.Thread(target=copy, daemon=True).start()
    return taken


class Writer:
    """Writes lines in the order of the calls, and waits while the reader is slow."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._stream: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        if _is_file(self._descriptor):
            return
        loop = asyncio.get_running_loop()
        file = os.fdopen(self._descriptor, "wb", 0)
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), file
        )
        self._stream = asyncio.StreamWriter(transport, protocol, None, loop)

    async def write(self, line: bytes) -> None:
        """Raise ConnectionError if the editor is gone."""
        if self._stream is None:
            os.write(self._descriptor, line)
            return
        if self._stream.is_closing():
            raise ConnectionError("The editor is gone.")
        self._stream.write(line)
        await self._stream.drain()

    async def close(self) -> None:
        if self._stream is not None:
            with suppress(OSError, RuntimeError):
                self._stream.close()


class StdioTransport:
    """Implements `acp` 's `Transport`."""

    def __init__(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        self._reader = reader
        self._writer = writer
        self._buffer = bytearray()
        self._searched = 0
        self._is_dropping = False
        self._numbers = count(1)
        self._sent: dict[str, SentRequest] = {}
        self._prompts: dict[str | int, str] = {}
        """Sessions by the ids of the prompts in progress."""
        self._unanswered: set[str | int] = set()
        """The ids of the other requests in progress."""
        self._answered = asyncio.Event()
        self._after: dict[asyncio.Task[Any] | None, list[Answer]] = {}

    # ── Transport ──

    async def receive(self) -> Message | None:
        """Return the next request or notification; None at the end of the input."""
        while True:
            line = await self._read_line()
            if line is None:
                self._fail_sent()
                await self._wait_for_answers()
                return None
            message = await self._accept(line)
            if message is not None:
                return message

    async def send(self, message: Message) -> None:
        """Send a response of the SDK, and then what was to follow it."""
        self._prompts.pop(message.get("id", ""), None)
        self._unanswered.discard(message.get("id", ""))
        self._answered.set()
        if "error" in message:
            message["error"] = describe_error(message["error"])
        await self._write(message)
        for follow in self._after.pop(asyncio.current_task(), ()):
            await follow()

    async def close(self) -> None:
        await self._writer.close()

    # ── Sending ──

    async def notify(self, method: str, params: Message) -> None:
        await self._write({"jsonrpc": "2.0", "method": method, "params": params})

    async def request(self, method: str, params: Message) -> SentRequest:
        """Send a request. The SDK does not number requests with text, so the ids differ."""
        sent = SentRequest(f"treadle-{next(self._numbers)}")
        self._sent[sent.request_id] = sent
        await self._write({"jsonrpc": "2.0", "id": sent.request_id, "method": method, "params": params})
        return sent

    async def cancel_request(self, sent: SentRequest) -> None:
        """Tell the editor that an answer is no longer needed. It may answer nevertheless; that is ignored."""
        if self._sent.pop(sent.request_id, None) is not None:
            await self.notify(CANCEL_REQUEST, {"requestId": sent.request_id})

    def after_response(self, follow: Answer) -> None:
        """Call `follow` when the response to the request of the current task has been sent."""
        self._after.setdefault(asyncio.current_task(), []).append(follow)

    async def _write(self, message: Message) -> None:
        try:
            line = msgspec.json.encode(message, enc_hook=str)
        except (UnicodeEncodeError, msgspec.MsgspecError, TypeError):
            import json

            line = json.dumps(message, default=str).encode()  # it escapes lone surrogates
        await self._writer.write(line + b"\n")

    async def _refuse(self, request_id: object, code: int, text: str) -> None:
        await self._write({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text}})

    # ── Receiving ──

    async def _read_line(self) -> bytes | None:
        while True:
            at = self._buffer.find(b"\n", self._searched)
            if at >= 0:
                line = bytes(self._buffer[:at])
                del self._buffer[: at + 1]
                self._searched = 0
                if not self._is_dropping:
                    return line
                self._is_dropping = False
                await self._refuse(
                    None,
                    INVALID_REQUEST,
                    f"The message is too long: at most {MAX_LINE_BYTES // 1024 // 1024} MB are accepted. Send less "
                    "at once.",
                )
                continue
            self._searched = len(self._buffer)
            if len(self._buffer) > MAX_LINE_BYTES:
                self._is_dropping = True
            if self._is_dropping:
                self._buffer.clear()
                self._searched = 0
            chunk = await self._reader.read(READ_BYTES)
            if not chunk:
                rest = bytes(self._buffer)
                self._buffer.clear()
                self._searched = 0
                return rest or None
            self._buffer += chunk

    async def _accept(self, line: bytes) -> Message | None:
        """Return the message of a line if it is for the SDK; None if it is answered, or an answer, or empty."""
        if not line.strip():
            return None
        try:
            found = parse_line(line)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            await self._refuse(None, PARSE_ERROR, f"The message is not JSON: {error}. Send one object per line.")
            return None
        if not isinstance(found, dict):
            await self._refuse(None, INVALID_REQUEST, "The message is not a JSON object. Send single messages.")
            return None
        message = cast("Message", found)
        request_id = message.get("id")
        if isinstance(request_id, bool) or not isinstance(request_id, str | int | None):
            await self._refuse(None, INVALID_REQUEST, "The id of the message is neither text nor an integer.")
            return None
        if "method" not in message and ("result" in message or "error" in message):
            self._resolve(message)
            return None
        if not isinstance(message.get("method"), str):
            await self._refuse(request_id, INVALID_REQUEST, "The message has no method.")
            return None
        return self._translate(message)

    def _resolve(self, message: Message) -> None:
        sent = self._sent.pop(str(message.get("id")), None)
        if sent is not None and not sent.answer.done():
            sent.answer.set_result(message)

    def _translate(self, message: Message) -> Message | None:
        """Remember prompts, and turn the cancellation of one into that of its session."""
        params = message.get("params")
        values: Message = cast("Message", params) if isinstance(params, dict) else {}
        if "id" in message and message["method"] == PROMPT:
            self._prompts[message["id"]] = str(values.get("sessionId"))
        elif "id" in message:
            self._unanswered.add(message["id"])
        if message["method"] != CANCEL_REQUEST:
            return message
        session_id = self._prompts.get(cast("str | int", values.get("requestId", "")))
        if session_id is None:
            return None
        return {"jsonrpc": "2.0", "method": CANCEL, "params": {"sessionId": session_id}}

    async def _wait_for_answers(self) -> None:
        """Wait for the answers to requests from before the end of the input. Prompts are left to their runs."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                while self._unanswered:
                    self._answered.clear()
                    await self._answered.wait()
        for _ in range(SETTLE_ROUNDS):
            await asyncio.sleep(0)  # a prompt that is not valid is refused at once

    def _fail_sent(self) -> None:
        for sent in self._sent.values():
            if not sent.answer.done():
                sent.answer.set_exception(ConnectionError("The editor is gone."))
                sent.answer.exception()  # nothing may wait for it any more
        self._sent.clear()


def parse_line(line: bytes) -> Any:
    """Return the JSON of a line. Half of a character, as editors written in JavaScript send it, is replaced."""
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeError) as error:
        import json

        try:
            text = json.dumps(json.loads(line.decode()), ensure_ascii=False)
        except (ValueError, RecursionError):
            raise error from None
        return msgspec.json.decode(make_sendable(text))


def describe_error(error: Message) -> Message:
    """Return an error of the SDK with a message that says what is wrong, and without the input that it repeats."""
    data = error.get("data")
    values: Message = cast("Message", data) if isinstance(data, dict) else {}
    match error.get("code"):
        case -32602 if isinstance(values.get("errors"), list):
            found = cast("list[Message]", values["errors"])
            named = [f"{'.'.join(map(str, each.get('loc', ())))}: {each.get('msg')}" for each in found]
            more = f"; and {len(named) - MAX_LISTED_ERRORS} more" if len(named) > MAX_LISTED_ERRORS else ""
            text = f"Invalid params: {'; '.join(named[:MAX_LISTED_ERRORS])}{more}."
            return {"code": INVALID_PARAMS, "message": text}
        case -32601 if "method" in values:
            text = f"Method not found: `{values['method']}` is not supported."
            return {"code": METHOD_NOT_FOUND, "message": text}
        case _:
            return {key: value for key, value in error.items() if value is not None}


def _is_file(descriptor: int) -> bool:
    """Return whether a descriptor is one that the event loop cannot wait for: a file, or a device such as
    /dev/null."""
    mode = os.fstat(descriptor).st_mode
    return not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor))
