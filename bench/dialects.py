"""How the three wire formats stream an answer: the events of a turn with a tool call, and of one without."""

import json
import re
from abc import ABC, abstractmethod
from typing import Any

TOKEN = "tok "


def fragments(number: int) -> tuple[str, ...]:
    """Return the arguments of a call in pieces."""
    return ('{"key', '": "k', f'{number}"}}')


def _data(value: Any) -> bytes:
    return f"data: {json.dumps(value, separators=(',', ':'))}\n\n".encode()


class Dialect(ABC):
    result: re.Pattern[bytes]
    """What a tool result looks like in a request."""

    @abstractmethod
    def tool_turn(self, numbers: range, talk: int) -> list[bytes]:
        """Return a short text and a call for each number."""

    @abstractmethod
    def final_turn(self, tokens: int) -> list[bytes]: ...


class Chat(Dialect):
    result = re.compile(rb'"role":\s?"tool"')

    def tool_turn(self, numbers: range, talk: int) -> list[bytes]:
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [{"content": TOKEN}] * talk
        for index, number in enumerate(numbers):
            call: dict[str, Any] = {"index": index, "id": f"call_{number}", "type": "function"}
            pieces = fragments(number)
            deltas += [{"tool_calls": [call | {"function": {"name": "lookup", "arguments": ""}}]}]
            deltas += [{"tool_calls": [{"index": index, "function": {"arguments": piece}}]} for piece in pieces]
        return self._stream(deltas, "tool_calls", talk + 8)

    def final_turn(self, tokens: int) -> list[bytes]:
        return self._stream([{"role": "assistant", "content": ""}, *[{"content": TOKEN}] * tokens], "stop", tokens)

    def _stream(self, deltas: list[dict[str, Any]], finish_reason: str, tokens: int) -> list[bytes]:
        common = {
            "id": "chatcmpl-bench",
            "object": "chat.completion.chunk",
            "created": 1750000000,
            "model": "bench",
        }
        reasons = [None] * len(deltas) + [finish_reason]
        choices = [
            {"index": 0, "delta": delta, "finish_reason": reason}
            for delta, reason in zip([*deltas, {}], reasons, strict=True)
        ]
        usage = {"prompt_tokens": 100, "completion_tokens": tokens, "total_tokens": 100 + tokens}
        events = [_data(common | {"choices": [choice]}) for choice in choices]
        return [*events, _data(common | {"choices": [], "usage": usage}), b"data: [DONE]\n\n"]


class Anthropic(Dialect):
    result = re.compile(rb'"type":\s?"tool_result"')

    def tool_turn(self, numbers: range, talk: int) -> list[bytes]:
        blocks = self._text(0, talk)
        for index, number in enumerate(numbers, 1):
            call: dict[str, object] = {"type": "tool_use", "id": f"toolu_{number}", "name": "lookup", "input": {}}
            blocks += [
                self._event("content_block_start", index=index, content_block=call),
                *(self._delta(index, type="input_json_delta", partial_json=piece) for piece in fragments(number)),
                self._event("content_block_stop", index=index),
            ]
        return self._stream(blocks, "tool_use", talk + 8)

    def final_turn(self, tokens: int) -> list[bytes]:
        return self._stream(self._text(0, tokens), "end_turn", tokens)

    def _text(self, index: int, tokens: int) -> list[bytes]:
        return [
            self._event("content_block_start", index=index, content_block={"type": "text", "text": ""}),
            *[self._delta(index, type="text_delta", text=TOKEN)] * tokens,
            self._event("content_block_stop", index=index),
        ]

    def _stream(self, blocks: list[bytes], stop: str, tokens: int) -> list[bytes]:
        usage = {"input_tokens": 100, "output_tokens": 1}
        message: dict[str, object] = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "bench",
            "content": [],
        }
        return [
            self._event("message_start", message=message | {"usage": usage, "stop_reason": None}),
            self._event("ping"),
            *blocks,
            self._event("message_delta", delta={"stop_reason": stop}, usage={"output_tokens": tokens}),
            self._event("message_stop"),
        ]

    def _delta(self, index: int, **delta: Any) -> bytes:
        return self._event("content_block_delta", index=index, delta=delta)

    def _event(self, kind: str, **data: Any) -> bytes:
        return f"event: {kind}\n".encode() + _data({"type": kind, **data})


class Responses(Dialect):
    result = re.compile(rb'"type":\s?"function_call_output"')

    def tool_turn(self, numbers: range, talk: int) -> list[bytes]:
        items = self._text(0, talk)
        for index, number in enumerate(numbers, 1):
            call = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": "lookup"}
            begun = call | {"arguments": "", "status": "in_progress"}
            pieces = fragments(number)
            done = call | {"arguments": "".join(pieces), "status": "completed"}
            items += [
                self._event("output_item.added", output_index=index, item=begun),
                *(
                    self._event(
                        "function_call_arguments.delta", output_index=index, item_id=call["id"], delta=piece
                    )
                    for piece in pieces
                ),
                self._event("output_item.done", output_index=index, item=done),
            ]
        return self._stream(items, talk + 8)

    def _arguments_delta(self, index: int, call_id: str, piece: str) -> bytes:
        return self._event("function_call_arguments.delta", output_index=index, item_id=call_id, delta=piece)

    def final_turn(self, tokens: int) -> list[bytes]:
        return self._stream(self._text(0, tokens), tokens)

    def _text(self, index: int, tokens: int) -> list[bytes]:
        message = {"type": "message", "id": "msg_1", "role": "assistant"}
        whole: list[dict[str, object]] = [{"type": "output_text", "text": TOKEN * tokens, "annotations": []}]
        delta = self._event(
            "output_text.delta", output_index=index, content_index=0, item_id="msg_1", delta=TOKEN, logprobs=[]
        )
        return [
            self._event("output_item.added", output_index=index, item=message | {"content": []}),
            *[delta] * tokens,
            self._event("output_item.done", output_index=index, item=message | {"content": whole}),
        ]

    def _stream(self, items: list[bytes], tokens: int) -> list[bytes]:
        usage = {"input_tokens": 100, "output_tokens": tokens, "total_tokens": 100 + tokens}
        response: dict[str, object] = {"id": "resp_1", "object": "response", "model": "bench", "output": []}
        return [
            self._event("created", response=response | {"status": "in_progress"}),
            *items,
            self._event("completed", response=response | {"status": "completed", "usage": usage}),
        ]

    def _event(self, kind: str, **data: Any) -> bytes:
        return f"event: response.{kind}\n".encode() + _data({"type": f"response.{kind}", **data})


DIALECTS: dict[bytes, Dialect] = {
    b"POST /v1/chat/completions": Chat(),
    b"POST /v1/messages": Anthropic(),
    b"POST /v1/responses": Responses(),
}
