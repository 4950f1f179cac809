"""Turns the events of one run into the updates that an editor shows."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from acp.helpers import image_block, start_tool_call, text_block, update_tool_call, update_user_message
from acp.schema import Cost, StopReason, UsageUpdate
from pydantic import BaseModel

from treadle.domain import events as e
from treadle.domain.code_fences import find_open_fence
from treadle.domain.commands import format_command
from treadle.domain.envelope import Event
from treadle.domain.excerpts import take_excerpt
from treadle.domain.ids import RunId
from treadle.domain.memories import describe_recall
from treadle.domain.messages import Image, Message, Text, Thinking, ToolUse
from treadle.domain.silence import is_silence, may_be_silence
from treadle.surfaces.acp.tool_view import (
    KINDS,
    PLAN_TOOL,
    read_plan,
    show_result,
    text_content,
    view_call,
)
from treadle.surfaces.acp.tool_view import fence as fence_text

ANSWER, THOUGHT = "agent_message_chunk", "agent_thought_chunk"
PROGRESS_SECONDS = 0.25
"""The output of a call in progress is sent at most this often: each update repeats it."""
MAX_PROGRESS_CHARACTERS = 8_000
LIMITS: dict[str, StopReason] = {"max_steps": "max_turn_requests", "truncated": "max_tokens"}
PARKED = ("unavailable", "quota", "budget")


class TextPiece(NamedTuple):
    """A piece of a message."""

    kind: str
    message_id: str
    text: str


Update = TextPiece | BaseModel


@dataclass(slots=True)
class _Reply:
    """The reply that is being written: which attempt, and how much of it was sent."""

    attempt: tuple[int, int] = (0, 0)
    text: str = ""
    sent: int = 0
    thought: int = 0


@dataclass(slots=True)
class _Call:
    """A call of the run."""

    name: str
    arguments: str
    output: str = ""
    """The end of what it has written so far."""
    written: int = 0
    shown_at: float = 0.0
    children: dict[RunId, str] = field(default_factory=dict[RunId, str])


@dataclass(slots=True)
class UsageSoFar:
    """What a run has used so far."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    context: int = 0
    window: int = 0
    cost: float = 0.0
    is_priced: bool = True


class RunUpdates:
    """Reads the events of one run, past ones first."""

    def __init__(self, run_id: RunId, folder: Path, cost_before: float = 0.0) -> None:
        self.run_id = run_id
        self.sequence = 0
        self.usage = UsageSoFar()
        self.end: e.RunEnd | None = None
        self.is_past = False
        """The events happened before the session was opened here."""
        self._folder = folder
        self._cost_before = cost_before
        self._reply = _Reply()
        self._calls: dict[str, _Call] = {}
        self._has_answered = False
        self._answer = ""
        """The text of the latest reply that was sent."""

    def apply(self, event: Event, *, is_own: bool = False) -> Iterator[Update]:
        """Yield the updates for one event. A message that this editor has sent is not repeated."""
        data = event.data
        if event.durable:
            if event.sequence <= self.sequence:
                return
            self.sequence = event.sequence
        match data:
            case e.Token() | e.ThinkingDelta() | e.AttemptReset():
                yield from self._apply_live(data)
            case e.ToolCallProgress(call_id=call_id, offset=offset, text=text):
                yield from self._show_progress(call_id, offset, text)
            case e.UserMessage(message=message) | e.MessageSteered(message=message):
                if not is_own:
                    yield from self._show_message(message)
            case e.RunQueued(command=command) if command is not None and not is_own:
                yield update_user_message(text_block(format_command(command)))
            case e.RunForked(asked=asked) if asked and not is_own:
                yield update_user_message(text_block(asked))
            case _:
                yield from self._apply_durable(event)

    # ── The reply that is being written ──

    def _apply_live(self, data: e.Token | e.ThinkingDelta | e.AttemptReset) -> Iterator[Update]:
        reply = self._reply
        if isinstance(data, e.AttemptReset):
            yield from self._discard_reply()
            return
        if reply.attempt != (data.request, data.attempt):
            yield from self._discard_reply()
            reply = self._reply = _Reply((data.request, data.attempt))
        if isinstance(data, e.ThinkingDelta):
            news = data.text[max(0, reply.thought - data.offset) :]
            reply.thought += len(news)
            if news:
                yield TextPiece(THOUGHT, self._message_id, news)
            return
        reply.text += data.text[max(0, len(reply.text) - data.offset) :]
        if not may_be_silence(reply.text):  # the end of the reply decides whether a marker is shown
            yield from self._send_rest(reply)

    @property
    def _message_id(self) -> str:
        request, attempt = self._reply.attempt
        return f"{self.run_id}:{request}:{attempt}"

    def _send_rest(self, reply: _Reply) -> Iterator[Update]:
        news = reply.text[reply.sent :]
        reply.sent = len(reply.text)
        if news:
            self._has_answered = True
            self._answer = reply.text
            yield TextPiece(ANSWER, self._message_id, news)

    def _discard_reply(self, reason: str = "") -> Iterator[Update]:
        """Mark text that was sent as void: an editor cannot remove it."""
        if self._reply.sent:
            why = f": {reason.rstrip('.')}" if reason else ""
            text = self._end_code_block(f"\n\n*The reply was cut off{why}. It starts again.*\n\n")
            yield TextPiece(ANSWER, self._message_id, text)
        self._reply = _Reply()

    def _end_reply(self, response: e.LlmResponse) -> Iterator[Update]:
        reply = self._reply
        thought = "\n\n".join(part.text for part in response.parts if isinstance(part, Thinking) and part.text)
        if thought and not reply.thought:
            yield TextPiece(THOUGHT, self._message_id, thought)
        text = "".join(part.text for part in response.parts if isinstance(part, Text))
        if not is_silence(text) and text.strip() and (not reply.sent or text.startswith(reply.text[: reply.sent])):
            reply.text = text
            yield from self._send_rest(reply)
        for part in response.parts:
            if isinstance(part, ToolUse):
                yield from self._announce(part.call_id, part.name, part.arguments)
        self._reply = _Reply()

    # ── What is committed ──

    def _apply_durable(self, event: Event) -> Iterator[Update]:
        data = event.data
        match data:
            case e.ModelResolved(context_window=window):
                self.usage.window = window
            case e.LlmRequest(attempt=attempt):
                self._reply = _Reply((event.sequence, attempt))
            case e.LlmResponse():
                yield from self._end_reply(data)
                self.last_stop = data.stop
                yield from self._count(data)
            case e.LlmError(message=message):
                yield from self._discard_reply(message)
            case e.CommandObeyed(said=said):
                self._has_answered = True
                yield self.make_note(said)
            case e.ContextCompacted():
                yield self.make_note("The earlier conversation was replaced with a summary.", THOUGHT)
            case e.MemoryRecalled() if data.count:
                yield self.make_note(f"{describe_recall(data.count)}\n\n{fence_text(data.texts)}\n\n", THOUGHT)
            case e.RunWaiting():
                yield from self._wait(data)
            case e.RunEnd():
                yield from self._end(data)
            case _:
                yield from self._apply_call(data)

    def _end_code_block(self, text: str) -> str:
        """Return a text that follows the reply. If the reply left a code block open, the text begins with its end:
        editors draw both as one message."""
        fence, self._answer = find_open_fence(self._answer), ""
        return text if fence is None else f"\n{fence.marks}\n\n{text}"

    def make_note(self, text: str, kind: str = ANSWER) -> TextPiece:
        """Return a message of Treadle itself."""
        if kind == ANSWER:
            text = self._end_code_block(text)
        return TextPiece(kind, f"{self.run_id}:note:{self.sequence}", text)

    def _show_message(self, message: Message) -> Iterator[Update]:
        yield update_user_message(text_block(message.text))
        for part in message.parts:
            if isinstance(part, Image):
                yield update_user_message(image_block(part.data, part.media_type))

    def _count(self, data: e.LlmResponse) -> Iterator[Update]:
        used, usage = data.usage, self.usage
        usage.input_tokens += used.input_tokens
        usage.output_tokens += used.output_tokens
        usage.cached_tokens += used.cache_read_tokens
        usage.context = used.input_tokens + used.output_tokens
        usage.cost += data.cost or 0.0
        usage.is_priced = usage.is_priced and data.cost is not None
        if usage.window:
            total = self._cost_before + usage.cost
            cost = Cost(amount=total, currency="USD") if total else None
            yield UsageUpdate(session_update="usage_update", used=usage.context, size=usage.window, cost=cost)

    def _wait(self, data: e.RunWaiting) -> Iterator[Update]:
        match data.reason:
            case "retry" | "breaker":
                yield self.make_note(f"Waiting for the model: {data.detail}\n\n", THOUGHT)
            case "interrupted":
                yield from self._discard_reply()
                yield self.make_note("*Interrupted. The next message continues the run.*")
            case reason if reason in PARKED:
                yield self.make_note(f"*The run waits ({reason}): {data.detail}*")
            case _:
                pass

    def _end(self, data: e.RunEnd) -> Iterator[Update]:
        self.end = data
        for call_id, call in self._calls.items():
            yield update_tool_call(self._make_id(call_id), status="failed", kind=KINDS.get(call.name))
        self._calls.clear()
        if data.outcome == "cancelled":
            yield from self._discard_reply("the run was cancelled")
        elif data.status != "completed":
            yield self.make_note(f"*The run ended ({data.outcome.replace('_', ' ')}): {self.explain_end()}*")
        elif data.text.strip() and not self._has_answered and not data.silent:
            yield self.make_note(data.text)
        if data.unverified_claim:
            yield self.make_note(f"\n\n*Not verified by any tool call: {data.unverified_claim}*")

    def explain_end(self) -> str:
        """Return why the run ended and how to continue."""
        assert self.end is not None
        parts = [f"{part.rstrip('.')}." for part in (self.end.reason, self.end.next) if part]
        return " ".join(parts) or f"{self.end.outcome}."

    # ── Calls ──

    def _make_id(self, call_id: str) -> str:
        return f"{self.run_id}:{call_id}"

    def _announce(self, call_id: str, name: str, arguments: str) -> Iterator[Update]:
        if call_id in self._calls:
            return
        self._calls[call_id] = _Call(name, arguments)
        if name == PLAN_TOOL and (plan := read_plan(arguments)) is not None:
            yield plan
            return
        view = view_call(name, arguments, self._folder, is_past=self.is_past)
        yield start_tool_call(
            self._make_id(call_id),
            view.title,
            kind=view.kind,
            status="pending",
            content=view.content or None,
            locations=view.locations or None,
            raw_input=view.raw_input,
        )

    def _apply_call(self, data: e.EventData) -> Iterator[Update]:
        match data:
            case e.ToolCallStart(call_id=call_id, name=name, arguments=arguments):
                yield from self._start(call_id, name, arguments)
            case e.ToolCallEnd(call_id=call_id, content=content, exit_code=code, images=images):
                yield from self._close(call_id, take_excerpt(content, data.excerpt), images, is_failed=bool(code))
            case e.ToolCallError(call_id=call_id, content=content):
                yield from self._close(call_id, take_excerpt(content, data.excerpt), is_failed=True)
            case (
                e.ToolCallBlocked(call_id=call_id, content=content)
                | e.HookBlocked(call_id=call_id, content=content)
            ):
                yield from self._close(call_id, content, is_failed=True)
            case e.AgentSpawn(call_id=call_id, run_id=run_id, agent=agent):
                yield from self._show_child(call_id, run_id, f"{agent}: started")
            case e.AgentWaiting(call_id=call_id, run_id=run_id, agent=agent, reason=reason):
                yield from self._show_child(call_id, run_id, f"{agent}: waits ({reason})")
            case e.AgentAnswered(call_id=call_id, run_id=run_id, agent=agent):
                yield from self._show_child(call_id, run_id, f"{agent}: running")
            case e.AgentEnd(call_id=call_id, run_id=run_id, agent=agent, outcome=outcome):
                yield from self._show_child(call_id, run_id, f"{agent}: {outcome}")
            case _:
                pass

    def _start(self, call_id: str, name: str, arguments: str) -> Iterator[Update]:
        yield from self._announce(call_id, name, arguments)
        call = self._calls[call_id]
        if call.name == PLAN_TOOL:
            return
        if call.arguments == arguments:
            yield update_tool_call(self._make_id(call_id), status="in_progress")
            return
        call.arguments = arguments  # a reviewer or a hook has changed them
        view = view_call(name, arguments, self._folder, is_past=self.is_past)
        yield update_tool_call(
            self._make_id(call_id),
            status="in_progress",
            title=view.title,
            kind=view.kind,
            content=view.content or None,
            locations=view.locations or None,
            raw_input=view.raw_input,
        )

    def _show_progress(self, call_id: str, offset: int, text: str) -> Iterator[Update]:
        call = self._calls.get(call_id)
        if call is None:
            return
        news = text[max(0, call.written - offset) :]
        call.written += len(news)
        call.output = (call.output + news)[-MAX_PROGRESS_CHARACTERS:]
        now = time.monotonic()
        if now - call.shown_at >= PROGRESS_SECONDS:
            call.shown_at = now
            shown = fence_text(call.output)
            yield update_tool_call(self._make_id(call_id), status="in_progress", content=[text_content(shown)])

    def _close(
        self, call_id: str, text: str, images: tuple[Image, ...] = (), *, is_failed: bool = False
    ) -> Iterator[Update]:
        call = self._calls.pop(call_id, None)
        if call is None or (call.name == PLAN_TOOL and not is_failed):
            return
        is_edit = KINDS.get(call.name) == "edit" and not is_failed
        content = None if is_edit else show_result(text, images)  # a diff stays
        status = "failed" if is_failed else "completed"
        yield update_tool_call(
            self._make_id(call_id), status=status, content=content, raw_output=text if is_edit else None
        )

    def _show_child(self, call_id: str, run_id: RunId, line: str) -> Iterator[Update]:
        call = self._calls.get(call_id)
        if call is None:
            return
        call.children[run_id] = line
        shown = text_content("\n".join(f"- {each}" for each in call.children.values()))
        yield update_tool_call(self._make_id(call_id), status="in_progress", content=[shown])


def find_stop_reason(updates: RunUpdates) -> StopReason | None:
    """Return why the turn of a run stopped; None if the run failed, which is an error."""
    end = updates.end
    assert end is not None
    if end.outcome == "cancelled":
        return "cancelled"
    if end.outcome == "refused":
        return "refusal"
    return "end_turn" if end.status == "completed" else LIMITS.get(end.outcome)
