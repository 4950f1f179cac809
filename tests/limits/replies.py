"""Replies with many tool calls in every wire format, as a stream and as one document."""

import json
from collections.abc import Iterable, Sequence
from time import thread_time

import msgspec

from treadle.domain.agents import ModelSettings
from treadle.domain.messages import user
from treadle.domain.models import Profile
from treadle.domain.tools import ToolSpec
from treadle.models.formats import load_format
from treadle.models.http.sse import DocumentParser, PayloadParser
from treadle.ports.model import Completed, Conversation, Delta, ModelRequest, Preamble

READ_BYTES = 64 * 1024
PLAIN = Profile()
ADD = ToolSpec("add", "Add two numbers.", {"type": "object", "properties": {"a": {"type": "integer"}}})


def request(max_calls: int = 128, profile: Profile = PLAIN) -> ModelRequest:
    return ModelRequest(
        "m-1",
        Preamble("Be brief.", (ADD,)),
        Conversation([user("hello")]),
        ModelSettings(),
        provider="fake",
        profile=profile,
        max_calls=max_calls,
    )


class Reading(msgspec.Struct):
    """A complete reply, and what reading it cost."""

    whole: Completed
    shown: list[Delta]
    seconds: float
    longest: float
    """The longest time in seconds for which one piece kept the event loop busy."""


def read_reply(mode: str, body: bytes, asked: ModelRequest | None = None) -> Reading:
    """Read a reply as the client does: in pieces as a socket delivers them."""
    asked = asked or request()
    reply = load_format(mode).reply(asked)  # pyright: ignore[reportArgumentType]
    parser = DocumentParser() if body[:1] == b"{" else PayloadParser()
    shown: list[Delta] = []
    seconds = longest = 0.0
    for at in range(0, len(body) + READ_BYTES, READ_BYTES):
        began = thread_time()
        piece = body[at : at + READ_BYTES]
        assert not reply.feed(parser.feed(piece) if piece else parser.end())
        reply.show_new(shown.append)
        spent = thread_time() - began
        seconds, longest = seconds + spent, max(longest, spent)
        if reply.done:
            break
    began = thread_time()
    whole = reply.finish(1000)
    spent = thread_time() - began
    return Reading(whole, shown, seconds + spent, max(longest, spent))


def event(**fields: object) -> bytes:
    return b"data: " + msgspec.json.encode(fields) + b"\n\n"


def end(reason: str) -> bytes:
    choice: dict[str, object] = {"index": 0, "delta": {}, "finish_reason": reason}
    return event(choices=[choice])


def chat_stream(count: int, *, indexes: Sequence[int | None] | None = None) -> bytes:
    """Return a stream with so many calls. `indexes` replaces the number of each call."""

    def pieces() -> Iterable[bytes]:
        for number in range(count):
            index = number if indexes is None else indexes[number]
            first = {"index": index, "id": f"c{number}", "function": {"name": "add", "arguments": '{"a":'}}
            rest = {"index": index, "function": {"arguments": f"{number}}}"}}
            for call in (first, rest):
                yield event(choices=[{"index": 0, "delta": {"tool_calls": [call]}}])
        yield end("tool_calls")
        yield b"data: [DONE]\n\n"

    return b"".join(pieces())


def chat_document(count: int) -> bytes:
    calls = [{"id": f"c{n}", "function": {"name": "add", "arguments": f'{{"a":{n}}}'}} for n in range(count)]
    return msgspec.json.encode({"choices": [{"message": {"tool_calls": calls}, "finish_reason": "tool_calls"}]})


def anthropic_stream(count: int) -> bytes:
    def pieces() -> Iterable[bytes]:
        for number in range(count):
            block: dict[str, object] = {"type": "tool_use", "id": f"c{number}", "name": "add", "input": {}}
            yield event(type="content_block_start", index=number, content_block=block)
            delta = {"type": "input_json_delta", "partial_json": f'{{"a":{number}}}'}
            yield event(type="content_block_delta", index=number, delta=delta)
            yield event(type="content_block_stop", index=number)
        yield event(type="message_delta", delta={"stop_reason": "tool_use"})
        yield event(type="message_stop")

    return b"".join(pieces())


def anthropic_document(count: int) -> bytes:
    blocks = [{"type": "tool_use", "id": f"c{n}", "name": "add", "input": {"a": n}} for n in range(count)]
    return msgspec.json.encode({"type": "message", "content": blocks, "stop_reason": "tool_use"})


def _responses_items(count: int) -> list[dict[str, object]]:
    return [
        {"type": "function_call", "id": f"i{n}", "call_id": f"c{n}", "name": "add", "arguments": f'{{"a":{n}}}'}
        for n in range(count)
    ]


def responses_stream(count: int) -> bytes:
    items = _responses_items(count)

    def pieces() -> Iterable[bytes]:
        for number, item in enumerate(items):
            started = {**item, "arguments": ""}
            yield event(type="response.output_item.added", output_index=number, item=started)
            delta = item["arguments"]
            yield event(type="response.function_call_arguments.delta", output_index=number, delta=delta)
            yield event(type="response.output_item.done", output_index=number, item=item)
        yield event(type="response.completed", response={"status": "completed", "output": items})

    return b"".join(pieces())


def responses_document(count: int) -> bytes:
    return msgspec.json.encode({"object": "response", "status": "completed", "output": _responses_items(count)})


def written_calls(count: int) -> str:
    """Return calls that a model writes in its text, as Hermes does."""
    call = json.dumps({"name": "add", "arguments": {"a": 1}})
    return f"<tool_call>{call}</tool_call>\n" * count


def chat_text(text: str) -> bytes:
    """Return a stream with this text in pieces of 20 characters."""
    pieces = [
        event(choices=[{"index": 0, "delta": {"content": text[at : at + 20]}}]) for at in range(0, len(text), 20)
    ]
    return b"".join((*pieces, end("stop"), b"data: [DONE]\n\n"))


FLOODS = {
    "chat stream": ("chat_completions", chat_stream),
    "chat document": ("chat_completions", chat_document),
    "anthropic stream": ("anthropic_messages", anthropic_stream),
    "anthropic document": ("anthropic_messages", anthropic_document),
    "responses stream": ("responses", responses_stream),
    "responses document": ("responses", responses_document),
}
"""Name -> wire format, and what makes a reply with so many calls."""
