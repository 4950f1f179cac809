"""Assembles a reply in the `chat_completions` format from its chunks: text, reasoning, calls, usage, end."""

from typing import Any

from treadle.domain.events import StopReason
from treadle.domain.messages import Part, Text, Thinking, ToolUse
from treadle.domain.models import CallDialect
from treadle.domain.runs import Usage
from treadle.models.finish import STOP_REASONS, Ending
from treadle.models.formats.chat_calls import ChatCalls
from treadle.models.formats.chat_chunks import (
    OPAQUE_FIELD,
    THOUGHT_TYPES,
    Chunk,
    ChunkDelta,
    ContentPart,
    Fragment,
    ReplyChunkChoice,
    decode_chunk,
    number_calls,
    read_chunk,
    read_usage,
)
from treadle.models.formats.reasoning_details import ReasoningDetails
from treadle.models.formats.thought_tags import ThoughtTags
from treadle.models.http.reported_error import find_reported_error
from treadle.models.http.wire import UNREADABLE, UnusableReply, as_fields, check_end, estimate_tokens
from treadle.ports.model import Completed, ModelRequest, ReasoningDelta, Show, TextDelta

_DONE = b"[DONE]"


class ChatReply:
    """The part of a reply received so far."""

    def __init__(self, request: ModelRequest) -> None:
        self._provider = request.provider
        self._model = request.model
        self.done = False
        self.ending = Ending()
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._tags = ThoughtTags(self._text, self._reasoning)
        self._field: str | None = None
        """The field in which the reasoning arrives."""
        self._details: ReasoningDetails | None = None
        self._opaque = ""
        self._offered = frozenset([tool.name for tool in request.preamble.tools])
        self._max_calls = request.max_calls
        self._calls = ChatCalls(self._offered, self._max_calls)
        self._dialect: CallDialect | None = request.profile.call_dialect if self._offered else None
        self._others: list[ReplyChunkChoice] = []
        """The pieces of the first other choice, used at the end if no choice has the index 0."""
        self._text_shown = 0
        self._held = ""
        """The end of the text that is not shown because calls may start there."""
        self._has_written_calls = False
        self._reasoning_shown = 0
        self._refused = False
        self._usage: Usage | None = None

    def feed(self, payloads: list[bytes]) -> Any:
        """Add chunks. Stop at a chunk that reports an error, and return that error."""
        text, tags = self._text, self._tags
        for payload in payloads:
            if payload == _DONE:
                self.done = True
                return None
            try:
                chunk = decode_chunk(payload)
            except UNREADABLE:
                if self._is_odd_end(payload):
                    return None
                chunk = read_chunk(payload)
            if chunk.error:
                return chunk.error
            if chunk.usage is not None:
                self._usage = read_usage(chunk.usage) or self._usage
            if not chunk.choices:
                if error := self._read_notice(chunk, payload):
                    return error
                continue
            choice = chunk.choices[0]
            if choice.index or len(chunk.choices) > 1:
                choice = self._select_choice(chunk.choices)
            if choice.error:
                return choice.error
            delta = choice.delta or self._read_message(choice.message)
            if delta is not None:
                content = delta.content
                if (
                    isinstance(content, str)
                    and tags.flows
                    and "<" not in content
                    and not (
                        delta.tool_calls
                        or delta.reasoning_content
                        or delta.reasoning
                        or delta.reasoning_details
                        or delta.reasoning_text
                        or delta.reasoning_opaque
                        or delta.refusal
                        or delta.function_call
                        or delta.extra_content
                    )
                ):
                    text.append(content)  # the common case
                else:
                    self._add_delta(delta)
            if choice.finish_reason or choice.native_finish_reason:
                self._finish(choice)
        return None

    def _read_notice(self, chunk: Chunk, payload: bytes) -> Any:
        """Read a chunk without a piece of the reply. Return the error that it reports, or None."""
        if chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason:
            self.ending.add(str(chunk.prompt_feedback.block_reason), "filtered")
        return find_reported_error(payload)

    def _is_odd_end(self, payload: bytes) -> bool:
        """Return whether a payload is `[DONE]` in another spelling, and record it."""
        self.done = payload.strip(b' \r\n"').upper() == _DONE
        return self.done

    def _read_message(self, message: ChunkDelta | None) -> ChunkDelta | None:
        """Return a complete message as the piece of a reply, without what has already arrived in pieces."""
        if message is not None and message.tool_calls and not len(self._calls):
            message.tool_calls = self._calls.cut(message.tool_calls)
        number_calls(message)
        if message is not None and (self._text or len(self._calls)):
            if message.content == "".join(self._text):
                message.content = None
            if len(self._calls):
                self._calls.repeated = message.tool_calls or []
                message.tool_calls = message.function_call = None
        return message

    def _select_choice(self, choices: list[ReplyChunkChoice]) -> ReplyChunkChoice:
        """Return the choice with the index 0, or an empty one. Keep the pieces of another choice."""
        for choice in choices:
            if not choice.index:
                return choice
        index = self._others[0].index if self._others else choices[0].index
        self._others += [choice for choice in choices if choice.index == index]
        return ReplyChunkChoice()

    def _use_other_choice(self) -> None:
        """Use the only choice of a server that numbers choices differently."""
        for choice in self._others:
            delta = choice.delta or number_calls(choice.message)
            if delta is not None:
                self._add_delta(delta)
            if choice.finish_reason or choice.native_finish_reason:
                self._finish(choice)

    def _finish(self, choice: ReplyChunkChoice) -> None:
        """Record how the reply ended. The finish word of the provider behind a gateway counts only if it is a
        warning."""
        self._tags.end()
        if choice.finish_reason:
            self.ending.add(str(choice.finish_reason))
        if choice.native_finish_reason:
            behind = Ending()
            behind.add(str(choice.native_finish_reason))
            if behind.end in ("cut", "filtered", "malformed", "failed"):
                self.ending.add(str(choice.native_finish_reason))

    def _add_delta(self, delta: ChunkDelta) -> None:
        if delta.content:
            self._add_content(delta, delta.content)
        self._add_rare_fields(delta)

    def _add_content(self, delta: ChunkDelta, content: str | list[ContentPart | str]) -> None:
        if delta.extra_content and as_fields(as_fields(delta.extra_content).get("google")).get("thought"):
            self._append_reasoning("", content if isinstance(content, str) else "")
        elif isinstance(content, str):
            self._tags.feed(content)
        else:
            self._add_content_list(content)

    def _add_reasoning(self, delta: ChunkDelta) -> None:
        text = ""
        if delta.reasoning_details:
            self._details = self._details or ReasoningDetails()
            text = self._details.add(delta.reasoning_details)
        if isinstance(delta.reasoning_content, str) and delta.reasoning_content:
            self._append_reasoning("reasoning_content", delta.reasoning_content)
        elif isinstance(delta.reasoning, str) and delta.reasoning:
            self._append_reasoning("reasoning", delta.reasoning)
        elif text and not self._field:
            self._append_reasoning("", text)
        elif isinstance(delta.reasoning_text, str) and not self._field:
            self._append_reasoning("", delta.reasoning_text)
        if isinstance(delta.reasoning_opaque, str):
            self._opaque = delta.reasoning_opaque or self._opaque

    def _append_reasoning(self, field: str, text: str) -> None:
        self._field = self._field or field or None
        self._reasoning.append(text)

    def _add_rare_fields(self, delta: ChunkDelta) -> None:
        """Add the fields that most chunks do not have."""
        if (
            delta.reasoning_content
            or delta.reasoning
            or delta.reasoning_details
            or delta.reasoning_text
            or delta.reasoning_opaque
        ):
            self._add_reasoning(delta)
        if delta.refusal:
            self._refused = True
            self._text.append(delta.refusal)
        for fragment in delta.tool_calls or ():
            self._calls.add(fragment)
        if delta.function_call is not None and not delta.tool_calls:
            self._calls.add(Fragment(0, function=delta.function_call))

    def _add_content_list(self, content: list[ContentPart | str]) -> None:
        for piece in content:
            if isinstance(piece, str):
                self._tags.feed(piece)
            elif piece.type in THOUGHT_TYPES or piece.thinking:
                thought = piece.thinking or piece.text or ""
                if not isinstance(thought, str):
                    thought = "".join([part if isinstance(part, str) else part.text or "" for part in thought])
                self._reasoning.append(thought)
            elif piece.text:
                self._tags.feed(piece.text)

    def show_new(self, show: Show) -> None:
        """Show what arrived since the last call. Pieces that arrived together are shown together."""
        if self._tags.retracted:
            self._tags.retracted = False
            self._text_shown, self._reasoning_shown = 0, len(self._reasoning)
            self._held, self._has_written_calls = "", False
        if len(self._reasoning) > self._reasoning_shown:
            if words := "".join(self._reasoning[self._reasoning_shown :]):
                show(ReasoningDelta(words))
            self._reasoning_shown = len(self._reasoning)
        if len(self._text) > self._text_shown:
            if self._dialect is not None:
                self._show_before_calls(self._dialect, show)
            elif words := "".join(self._text[self._text_shown :]):
                show(TextDelta(words))
            self._text_shown = len(self._text)
        if self._calls.unshown:
            self._calls.show_new(show)

    def _show_before_calls(self, dialect: CallDialect, show: Show) -> None:
        """Show the text up to where calls may start. The rest is shown when it is complete."""
        from treadle.models.formats.call_dialects import find_calls_start, starts_with_calls

        if self._has_written_calls:
            return
        text = self._held + "".join(self._text[self._text_shown :])
        end = find_calls_start(text, dialect)
        if end:
            show(TextDelta(text[:end]))
        self._held = text[end:]
        self._has_written_calls = starts_with_calls(self._held, dialect)

    def finish(self, sent_bytes: int) -> Completed:
        """Return the complete reply. Raise UnusableReply if it is incomplete.

        Calls are included only if the provider says that the reply ended normally. A reply without a finish reason
        is incomplete: its last call may be cut off."""
        ending = self.ending
        if self._others and ending.end is None and not self._text and not len(self._calls):
            self._use_other_choice()
        if ending.end is None:
            raise UnusableReply("it ended without saying why, so it is probably cut off")
        check_end(ending, has_calls=len(self._calls) > 0)
        self._tags.end()
        may_run = ending.runs_calls and not self._refused
        calls = self._calls.build_calls(self._provider, self._model) if may_run else []
        self._calls.check_repeated(calls)
        text, excess = "".join(self._text), self._calls.excess
        if self._dialect is not None and may_run and not calls:
            from treadle.models.formats.call_dialects import read_calls

            if found := read_calls(text, self._dialect, self._offered, self._max_calls):
                text, calls, excess = found
        parts: list[Part] = [*self._build_thinking(), *([Text(text)] if text else ()), *calls]
        stop = self._stop(calls)
        raw_stop = ending.word_for(stop)
        dropped = () if may_run else self._calls.names
        usage, refusal = self.usage(sent_bytes), ending.refusal
        return Completed(
            parts=tuple(parts),
            stop=stop,
            usage=usage,
            raw_stop=raw_stop,
            dropped_calls=dropped,
            excess_calls=excess,
            refusal=refusal,
            window_full=ending.window_full,
        )

    def _build_thinking(self) -> list[Part]:
        details = self._details.build() if self._details is not None else None
        text = "".join(self._reasoning)
        if self._details is not None and not self._field and self._tags.tag is None:
            text = self._details.text
        if self._opaque:
            return [Thinking(text, self._provider, self._model, sealed=self._opaque, field=OPAQUE_FIELD)]
        if not text.strip() and details is None:
            return []
        field = self._field or self._tags.returned_tag
        text = text if self._field else text.strip()
        return [Thinking(text, self._provider, self._model, field=field, details=details)]

    def usage(self, sent_bytes: int) -> Usage:
        """Return the usage reported by the provider, or else an estimate."""
        if self._usage is not None:
            return self._usage
        received = sum(map(len, self._text)) + sum(map(len, self._reasoning)) + self._calls.characters
        return Usage(estimate_tokens(sent_bytes), estimate_tokens(received), estimated=True)

    @property
    def stop(self) -> StopReason:
        """Return why the reply ended, as far as known."""
        return "refusal" if self._refused else STOP_REASONS.get(self.ending.end or "unknown", "other")

    def _stop(self, calls: list[ToolUse]) -> StopReason:
        if self.stop == "end_turn" and calls:
            return "tool_use"
        return "other" if self.stop == "tool_use" and not calls else self.stop
