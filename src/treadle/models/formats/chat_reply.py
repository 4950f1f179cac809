"""A reply in the `chat_completions` format, put together from its chunks: text, reasoning, calls, usage, end."""

from typing import Any

import msgspec
from msgspec import Struct

from treadle.domain.events import StopReason
from treadle.domain.messages import Part, Text, Thinking, ToolUse
from treadle.domain.runs import Usage
from treadle.models.http.wire import UNREADABLE, Unusable, json_object, reader, tokens
from treadle.ports.model import CallDelta, Completed, ModelRequest, ReasoningDelta, Show, TextDelta

_DONE = b"[DONE]"

_STOPS: dict[str, StopReason] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}


class _Function(Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _Fragment(Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Content(Struct, gc=False):
    """A piece of a message, from servers that send lists of them; reasoning is a list of its own."""

    text: str | None = None
    thinking: list["_Content"] | str | None = None


class _Delta(Struct, gc=False):
    content: str | list[_Content] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_Fragment] | None = None


class _Choice(Struct, gc=False):
    delta: _Delta | None = None
    message: _Delta | None = None
    """The whole reply, from servers that do not stream."""
    finish_reason: str | None = None


class _PromptDetails(Struct, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _Usage(Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None


class Chunk(Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_decode = msgspec.json.Decoder(Chunk).decode
_read = reader(Chunk)


class _Call:
    """A call as far as it has come."""

    __slots__ = ("arguments", "id", "index", "name", "shown")

    def __init__(self, index: int | None) -> None:
        self.index = index  # the provider's; ours is the place in the list
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.shown = 0  # how many pieces of the arguments


class ChatReply:
    """What has come of one reply so far."""

    def __init__(self, request: ModelRequest) -> None:
        self._provider = request.provider
        self._model = request.model
        self.done = False
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_Call] = []
        self._fresh_calls: dict[int, None] = {}
        self._text_shown = 0
        self._reasoning_shown = 0
        self._refused = False
        self._usage: _Usage | None = None
        self.finish_reason: str | None = None

    def take(self, payloads: list[bytes]) -> Any:
        """Add chunks, up to one that reports an error: that is returned."""
        text = self._text
        for payload in payloads:
            if payload == _DONE:
                self.done = True
                return None
            try:
                chunk = _decode(payload)
            except UNREADABLE:
                chunk = _read(payload)
            if chunk.error:
                return chunk.error
            if chunk.usage is not None:
                self._usage = chunk.usage
            if not chunk.choices:
                continue
            choice = chunk.choices[0]
            if choice.finish_reason:
                self.finish_reason = choice.finish_reason
            delta = choice.delta or _numbered(choice.message)
            if delta is None:
                continue
            if delta.content:
                if isinstance(delta.content, str):
                    text.append(delta.content)
                else:
                    self._take_list(delta.content)
            if delta.tool_calls or delta.reasoning_content or delta.reasoning or delta.refusal:
                self._take_more(delta)
        return None

    def _take_more(self, delta: _Delta) -> None:
        """What most chunks do not have."""
        if reasoning := delta.reasoning_content or delta.reasoning:
            self._reasoning.append(reasoning)
        if delta.refusal:
            self._refused = True
            self._text.append(delta.refusal)
        for fragment in delta.tool_calls or ():
            self._merge(fragment)

    def _take_list(self, content: list[_Content]) -> None:
        for piece in content:
            if piece.text:
                self._text.append(piece.text)
            if piece.thinking:
                thought = piece.thinking
                thought = thought if isinstance(thought, str) else "".join([part.text or "" for part in thought])
                self._reasoning.append(thought)

    def show_news(self, show: Show) -> None:
        """Show what has come since the last time. What came together is shown together."""
        if len(self._reasoning) > self._reasoning_shown:
            show(ReasoningDelta("".join(self._reasoning[self._reasoning_shown :])))
            self._reasoning_shown = len(self._reasoning)
        if len(self._text) > self._text_shown:
            show(TextDelta("".join(self._text[self._text_shown :])))
            self._text_shown = len(self._text)
        if self._fresh_calls:
            for place in self._fresh_calls:
                call = self._calls[place]
                show(CallDelta(place, call.name, "".join(call.arguments[call.shown :])))
                call.shown = len(call.arguments)
            self._fresh_calls.clear()

    def completed(self, sent_bytes: int) -> Completed:
        """The whole reply. Raises Unusable if it is not whole."""
        if self.finish_reason is None:
            raise Unusable("it ended without saying why, so it is probably cut off")
        calls = self._whole_calls()
        parts: list[Part] = []
        if reasoning := "".join(self._reasoning):
            parts.append(Thinking(reasoning, self._provider, self._model))
        if text := "".join(self._text):
            parts.append(Text(text))
        parts.extend(calls)
        stop = self._stop(has_calls=bool(calls))
        raw_stop = self.finish_reason if stop == "other" else None
        return Completed(tuple(parts), stop, self.usage(sent_bytes), raw_stop)

    def usage(self, sent_bytes: int) -> Usage:
        """What the provider counted, or else our estimate."""
        said = self._usage
        if said is None or not (said.prompt_tokens or said.completion_tokens):
            received = sum(map(len, self._text)) + sum(map(len, self._reasoning))
            received += sum(len(piece) for call in self._calls for piece in call.arguments)
            return Usage(tokens(sent_bytes), tokens(received), estimated=True)
        details = said.prompt_tokens_details or _PromptDetails()
        read, written = details.cached_tokens or 0, details.cache_write_tokens or 0
        return Usage(said.prompt_tokens or 0, said.completion_tokens or 0, read, written)

    def _stop(self, *, has_calls: bool) -> StopReason:
        stop = _STOPS.get(self.finish_reason or "", "other")
        if self._refused:
            return "refusal"
        if stop == "end_turn" and has_calls:  # some servers say `stop` whatever they sent
            return "tool_use"
        if stop == "tool_use" and not has_calls:
            return "other"
        return stop

    # ── Calls ──────────────────────────────────────────────────────────────────────────────────────

    def _merge(self, fragment: _Fragment) -> None:
        function = fragment.function or _Function()
        if self._calls and not function.name and not fragment.id:  # nearly always: more of the latest call
            latest = self._calls[-1]
            if latest.index == fragment.index and isinstance(function.arguments, str):
                latest.arguments.append(function.arguments)
                self._fresh_calls[len(self._calls) - 1] = None
                return
        arguments = function.arguments or ""
        if isinstance(arguments, dict):
            arguments = msgspec.json.encode(arguments).decode()
        place = self._place(fragment, function.name or "", arguments)
        call = self._calls[place]
        call.id = call.id or fragment.id or ""
        call.name = call.name or function.name or ""
        if arguments:
            call.arguments.append(arguments)
        self._fresh_calls[place] = None

    def _place(self, fragment: _Fragment, name: str, arguments: str) -> int:
        """Which call a fragment belongs to. Its index says so, where the provider sends one that can be
        trusted: some leave it out, and some give every call the index 0."""
        place = self._latest(fragment)
        if place is not None and not (name and _begins_another(self._calls[place], fragment, name, arguments)):
            return place
        self._calls.append(_Call(fragment.index))
        return len(self._calls) - 1

    def _latest(self, fragment: _Fragment) -> int | None:
        """The last call that the fragment may continue."""
        if self._calls and fragment.index == self._calls[-1].index and fragment.index is not None:
            return len(self._calls) - 1
        places = range(len(self._calls) - 1, -1, -1)
        if fragment.index is not None:
            return next((place for place in places if self._calls[place].index == fragment.index), None)
        same_id = (place for place in places if fragment.id and self._calls[place].id == fragment.id)
        return next(same_id, places[0] if places else None)

    def _whole_calls(self) -> list[ToolUse]:
        calls: list[ToolUse] = []
        cut = self.finish_reason == "length"
        for place, call in enumerate(self._calls, start=1):
            text = "".join(call.arguments).strip()
            last = place == len(self._calls)
            arguments = json_object(text) if text or (cut and last) else "{}"
            if call.name and arguments is not None:
                calls.append(ToolUse(call.id, call.name, arguments))
            elif not (cut and last):  # the call that the token limit cut is left out; the engine goes on from there
                what = "has no name" if not call.name else "has arguments that are not a JSON object"
                raise Unusable(f"call {place} of it ({call.name or 'unnamed'}) {what}, so it is probably cut off")
        return calls


def _numbered(message: _Delta | None) -> _Delta | None:
    """A whole message: its calls have no index, and are told apart by their places."""
    if message is not None:
        for place, call in enumerate(message.tool_calls or ()):
            call.index = place if call.index is None else call.index
    return message


def _begins_another(call: _Call, fragment: _Fragment, name: str, arguments: str) -> bool:
    """Whether a fragment with a name, for a place that is taken, is a call of its own. Names and ids may be
    repeated in every fragment, and ids may even differ, so neither is enough."""
    if fragment.id and call.id:
        if fragment.id == call.id:
            return False
        return fragment.index is None or name != call.name or json_object("".join(call.arguments)) is not None
    return bool(arguments) and json_object("".join(call.arguments)) is not None
