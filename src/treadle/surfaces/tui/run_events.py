"""Applies the events of a run to the transcript, and keeps the facts that the status line shows."""

import time
from dataclasses import dataclass, field

from treadle.domain import events as e
from treadle.domain.commands import format_command
from treadle.domain.envelope import Event
from treadle.domain.excerpts import take_excerpt
from treadle.domain.ids import RunId
from treadle.domain.messages import Image, Message, Text, ToolUse
from treadle.domain.messages import Thinking as ThinkingPart
from treadle.domain.silence import is_silence, may_be_silence
from treadle.surfaces.cli.activity import activity
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.run_facts import RunFacts
from treadle.surfaces.tui.transcript import (
    CallState,
    ChildLine,
    Item,
    NoteLevel,
    SessionTranscript,
    ShownAnswer,
    ShownCall,
    ShownNote,
    ShownThinking,
    UserItem,
    UserKind,
)

NOTEWORTHY = (
    e.LlmFallback, e.BreakerOpened, e.RunRecovered, e.CompactionStarted, e.CompactionFailed, e.ContextCompacted,
    e.ContextTrimmed, e.LoopWarning, e.StuckDetected, e.EmptyTurn, e.Continuation, e.PhantomAction, e.CallWritten,
    e.OutputRejected, e.QuotaWarning, e.QualityScored, e.ErrorAnalyzed, e.SecretUsed, e.SecretDenied, e.Redacted,
    e.MemoryRecalled, e.MemoryDegraded, e.SandboxDenied, e.ProcessKilled, e.RunWaiting, e.RecoveryAction,
    e.CallsDropped, e.RunStart,
)  # fmt: skip


@dataclass(slots=True)
class _Reply:
    """The reply that is being written."""

    attempt: tuple[int, int] = (0, 0)
    thinking: ShownThinking | None = None
    answer: ShownAnswer | None = None
    calls: dict[int, ShownCall] = field(default_factory=dict[int, ShownCall])

    @property
    def items(self) -> list[Item]:
        return [item for item in (self.thinking, self.answer, *self.calls.values()) if item is not None]


class RunReader:
    """Turns the events of one run into items."""

    def __init__(self, run_id: RunId, transcript: SessionTranscript) -> None:
        self.facts = RunFacts(run_id)
        self._transcript = transcript
        self._reply = _Reply()
        self._calls: dict[str, ShownCall] = {}
        self._approvals: dict[str, str] = {}
        """Calls by the approvals that they wait for."""
        self.children: dict[RunId, ChildLine] = {}

    def apply(self, event: Event) -> None:
        """Apply one event."""
        data = event.data
        if event.durable:
            if event.sequence <= self.facts.sequence:
                return
            self.facts.sequence = event.sequence
        match data:
            case e.Token() | e.ThinkingDelta() | e.ToolCallDelta() | e.AttemptReset():
                self._apply_live(data)
            case e.ToolCallProgress(call_id=call_id, offset=offset, text=text):
                self._add_output(call_id, offset, text)
            case _:
                self._apply_durable(event, data)

    # ── The reply that is being written ──

    def _apply_live(self, data: e.Token | e.ThinkingDelta | e.ToolCallDelta | e.AttemptReset) -> None:
        reply = self._reply
        if isinstance(data, e.AttemptReset):
            self._discard_reply()
            return
        if reply.attempt != (data.request, data.attempt):
            self._discard_reply()
            reply = self._reply = _Reply((data.request, data.attempt))
        match data:
            case e.Token():
                self._add_token(reply, data)
            case e.ThinkingDelta():
                self.facts.state = "thinking"
                if reply.thinking is None:
                    reply.thinking = ShownThinking(self.facts.run_id, started_at=time.time())
                    self._transcript.add(reply.thinking)
                reply.thinking.text += data.text[max(0, len(reply.thinking.text) - data.offset) :]
                self._transcript.change(reply.thinking)
            case e.ToolCallDelta():
                self.facts.state, self.facts.tool = "calling", data.name
                call = reply.calls.get(data.index)
                if call is None:
                    self._end_thinking(reply)
                    call = reply.calls[data.index] = ShownCall(self.facts.run_id, name=data.name, state="writing")
                    self._transcript.add(call)
                call.arguments += data.arguments[max(0, len(call.arguments) - data.offset) :]
                self._transcript.change(call)

    def _add_token(self, reply: _Reply, data: e.Token) -> None:
        self.facts.state = "answering"
        self._end_thinking(reply)
        if reply.answer is None:
            reply.answer = ShownAnswer(self.facts.run_id)
        before = len(reply.answer.text)
        reply.answer.text += data.text[max(0, before - data.offset) :]
        if may_be_silence(reply.answer.text) and reply.answer.text.strip():
            return  # the end of the reply decides whether it is shown
        if reply.answer not in self._transcript.items[-8:]:
            self._transcript.add(reply.answer)
        self._transcript.change(reply.answer)

    def _end_thinking(self, reply: _Reply) -> None:
        thinking = reply.thinking
        if thinking is not None and not thinking.done:
            thinking.done, thinking.seconds = True, time.time() - thinking.started_at
            self._transcript.change(thinking)

    def _discard_reply(self) -> None:
        self._transcript.remove(self._reply.items)
        self._reply = _Reply()

    def _end_reply(self, response: e.LlmResponse) -> None:
        reply, run_id = self._reply, self.facts.run_id
        self._transcript.remove(reply.calls.values())
        thought = "\n\n".join(part.text for part in response.parts if isinstance(part, ThinkingPart) and part.text)
        self._end_thinking(reply)
        if reply.thinking is not None and thought:
            reply.thinking.text = thought
            self._transcript.change(reply.thinking)
        elif thought:
            self._transcript.add(ShownThinking(run_id, text=thought, done=True))
        text = "".join(part.text for part in response.parts if isinstance(part, Text))
        self._end_answer(reply.answer, "" if is_silence(text) else text)
        for part in response.parts:
            if isinstance(part, ToolUse):
                call = ShownCall(run_id, call_id=part.call_id, name=part.name, arguments=part.arguments)
                self._calls[part.call_id] = call
                self._transcript.add(call)
        self._reply = _Reply()

    def _end_answer(self, answer: ShownAnswer | None, text: str) -> None:
        if not text.strip():
            self._transcript.remove([] if answer is None else [answer])
            return
        if answer is None or answer not in self._transcript.items[-8:]:
            self._transcript.add(ShownAnswer(self.facts.run_id, text=text, done=True))
            return
        answer.text, answer.done = text, True
        self._transcript.change(answer)

    # ── What is committed ──

    def _apply_durable(self, event: Event, data: e.EventData) -> None:
        facts = self.facts
        match data:
            case e.RunQueued(agent=agent, command=command):
                facts.agent, facts.model = agent.name, facts.model or agent.model
                if command is not None:
                    self._transcript.add(UserItem(facts.run_id, text=format_command(command), kind="command"))
            case e.UserMessage() | e.MessageSteered() | e.RunForked():
                self._apply_message(data, event.sequence)
            case e.RunStart():
                facts.started_at, facts.state = event.timestamp, "thinking"
            case e.ModelResolved(provider=provider, model=model, context_window=window):
                facts.provider, facts.model, facts.window = provider, model, window
            case e.StepStart():
                self._resume()
            case e.CommandObeyed():
                self._apply_command(data)
            case e.SegmentOpened() | e.ContextCompacted():
                self._apply_context(data)
            case e.RunEnd():
                self._end(data)
            case e.RunWaiting():
                self._wait(data)
            case e.LlmRequest() | e.LlmResponse() | e.LlmError() | e.LlmRetry():
                self._apply_model(data)
            case e.AgentSpawn() | e.AgentEnd() | e.AgentWaiting() | e.AgentAnswered():
                self._apply_child(data)
            case _:
                self._apply_call(event, data)
        if isinstance(data, NOTEWORTHY) and (line := activity(data)):
            self._note(line.strip(), details=data.texts if isinstance(data, e.MemoryRecalled) else "")

    def _apply_command(self, data: e.CommandObeyed) -> None:
        """Show the answer of a command. The end of the run says why it was not performed."""
        if data.done:
            item = ShownAnswer(self.facts.run_id, text=data.said, done=True, source="command")
            self._transcript.add(item)
        self.facts.detail = "" if data.done else data.said

    def _apply_message(self, data: e.UserMessage | e.MessageSteered | e.RunForked, sequence: int) -> None:
        match data:
            case e.UserMessage(message=message):
                self._add_message(message, "message", sequence)
            case e.MessageSteered(message=message):
                self._add_message(message, "steered", sequence)
                self._resume()
            case e.RunForked(asked=asked):
                self._note(texts.FORKED)
                if asked:
                    self._transcript.add(UserItem(self.facts.run_id, text=asked, sequence=sequence))

    def _add_message(self, message: Message, kind: UserKind, sequence: int) -> None:
        images = sum(isinstance(part, Image) for part in message.parts)
        item = UserItem(self.facts.run_id, text=message.text, kind=kind, images=images, sequence=sequence)
        self._transcript.add(item)

    def _resume(self) -> None:
        if not self.facts.ended:
            self.facts.state, self.facts.detail, self.facts.retry_at = "thinking", "", None

    def _wait(self, data: e.RunWaiting) -> None:
        facts = self.facts
        facts.state, facts.detail = f"waiting:{data.reason}", data.detail
        facts.retry_at = data.wake_at if data.reason in ("retry", "breaker") else None
        if data.reason == "interrupted":
            self._discard_reply()
            self._note(texts.INTERRUPTED, "warning")

    def _apply_context(self, data: e.SegmentOpened | e.ContextCompacted) -> None:
        if isinstance(data, e.ContextCompacted):
            self.facts.context = data.tokens_after
        elif data.reason != "compaction":
            self.facts.context, self.facts.has_new_conversation = 0, True

    def _end(self, data: e.RunEnd) -> None:
        facts = self.facts
        facts.ended, facts.state, facts.retry_at = True, f"ended:{data.outcome}", None
        self._transcript.remove(item for item in self._reply.items if not item.is_final)
        self._reply = _Reply()
        for call in self._calls.values():
            if not call.is_final:
                self._close(call, "failed", call.result)
        if data.status != "completed":
            said = " ".join(f"{part.rstrip('.')}." for part in (data.reason, data.next) if part)
            level: NoteLevel = "warning" if data.outcome in ("cancelled", "interrupted") else "error"
            outcome = "" if data.outcome == "cancelled" else f"{data.outcome.replace('_', ' ')}: "
            self._note(f"{outcome}{said}", level)
        if data.unverified_claim:
            self._note(texts.UNVERIFIED.format(claim=data.unverified_claim), "warning")

    def _apply_model(self, data: e.LlmRequest | e.LlmResponse | e.LlmError | e.LlmRetry) -> None:
        facts = self.facts
        match data:
            case e.LlmRequest(input_estimate=estimate):
                facts.state, facts.retry_at = "thinking", None
                facts.context = estimate or facts.context
            case e.LlmResponse(usage=usage, cost=cost):
                facts.input_tokens += usage.input_tokens
                facts.output_tokens += usage.output_tokens
                facts.context = usage.input_tokens + usage.output_tokens
                facts.cost += cost or 0.0
                facts.unpriced = facts.unpriced or cost is None
                facts.failure, facts.retry_at = "", None
                self._end_reply(data)
            case e.LlmError(message=message, cost=cost):
                facts.failure = message
                facts.cost += cost or 0.0
                self._discard_reply()
            case e.LlmRetry(wake_at=wake_at):
                facts.retry_at = wake_at

    # ── Calls ──

    def _apply_call(self, event: Event, data: e.EventData) -> None:
        match data:
            case e.ToolCallStart(call_id=call_id, name=name, arguments=arguments):
                call = self._find_call(call_id, name, arguments)
                call.state, call.started_at, call.arguments = "running", event.timestamp, arguments
                self.facts.state, self.facts.tool = "calling", name
                self._transcript.change(call)
            case e.ToolCallEnd(call_id=call_id, name=name, content=content, duration_ms=duration, exit_code=code):
                call = self._find_call(call_id, name)
                state: CallState = "failed" if code else "done"
                call.exit_code, call.truncated = code, data.truncated
                self._close(call, state, take_excerpt(content, data.excerpt), duration)
            case e.ToolCallError(call_id=call_id, name=name, kind=kind, content=content, duration_ms=duration):
                call = self._find_call(call_id, name)
                call.truncated = data.truncated
                self._close(
                    call, "denied" if kind == "denied" else "failed", take_excerpt(content, data.excerpt), duration
                )
            case (
                e.ToolCallBlocked(call_id=call_id, name=name, content=content)
                | e.HookBlocked(call_id=call_id, name=name, content=content)
            ):
                self._close(self._find_call(call_id, name), "blocked", content)
            case e.ApprovalRequested(approval_id=approval_id, call_id=call_id, name=name, arguments=arguments):
                call = self._find_call(call_id, name, arguments)
                call.state, call.note = "approval", ""
                self._approvals[approval_id] = call_id
                self._transcript.change(call)
            case e.ApprovalDecided(approval_id=approval_id, decision=decision, note=note, arguments=edited):
                self._decide(approval_id, decision, note, edited)
            case e.ClarifyRequested(call_id=call_id):
                call = self._find_call(call_id, "clarify")
                call.state = "question"
                self._transcript.change(call)
            case e.ClarifyAnswered(call_id=call_id, text=text):
                call = self._find_call(call_id, "clarify")
                call.note = text
                self._transcript.change(call)
            case _:
                pass

    def _decide(self, approval_id: str, decision: e.Decision, note: str, edited: str | None) -> None:
        call = self._calls.get(self._approvals.get(approval_id, ""))
        if call is None:
            return
        call.note = note
        if decision == "approve":
            call.state, call.arguments = "pending", edited or call.arguments
            call.note = texts.EDITED if edited else note
        else:
            call.state = "denied"
        self._transcript.change(call)

    def _find_call(self, call_id: str, name: str, arguments: str = "") -> ShownCall:
        if call_id not in self._calls:
            call = self._calls[call_id] = ShownCall(
                self.facts.run_id, call_id=call_id, name=name, arguments=arguments
            )
            self._transcript.add(call)
        return self._calls[call_id]

    def _add_output(self, call_id: str, offset: int, text: str) -> None:
        call = self._calls.get(call_id)
        if call is not None:
            call.add_output(offset, text)
            self._transcript.change(call)

    def _close(self, call: ShownCall, state: CallState, result: str, duration_ms: int | None = None) -> None:
        call.state, call.result, call.duration_ms, call.output = state, result, duration_ms, ""
        self._transcript.change(call)

    def _note(self, text: str, level: NoteLevel = "info", details: str = "") -> None:
        self._transcript.add(ShownNote(self.facts.run_id, text=text, level=level, details=details))

    # ── Child runs ──

    def _apply_child(self, data: e.AgentSpawn | e.AgentEnd | e.AgentWaiting | e.AgentAnswered) -> None:
        match data:
            case e.AgentSpawn(call_id=call_id, run_id=run_id, agent=agent):
                call = self._find_call(call_id, "agent")
                child = self.children[run_id] = ChildLine(run_id, agent)
                call.children.append(child)
                if call.state == "pending":
                    call.state, call.started_at = "running", time.time()
                self._transcript.change(call)
            case e.AgentEnd(run_id=run_id, outcome=outcome, steps=steps):
                self.change_child(run_id, outcome, "", steps=steps, ended=True)
            case e.AgentWaiting(run_id=run_id, reason=reason):
                self.change_child(run_id, texts.CHILD_WAITS.get(reason, reason), "")
            case e.AgentAnswered(run_id=run_id):
                self.change_child(run_id, "running", "")

    def change_child(self, run_id: RunId, state: str, doing: str, *, steps: int = 0, ended: bool = False) -> None:
        """Change the line of a child run."""
        child = self.children.get(run_id)
        if child is None or child.ended:
            return
        child.state, child.doing, child.steps, child.ended = state, doing, max(steps, child.steps), ended
        for call in self._calls.values():
            if child in call.children:
                self._transcript.change(call)

    def apply_to_child(self, event: Event) -> None:
        """Show what a child run does, from an event of its own journal."""
        child = self.children.get(event.run_id)
        if child is None:
            return
        match event.data:
            case e.StepStart(step=step):
                self.change_child(event.run_id, "running", texts.CHILD_THINKS, steps=step)
            case e.ToolCallStart() | e.LlmRetry() | e.LlmFallback():
                line = (activity(event.data, 60) or "").strip(" ·")
                self.change_child(event.run_id, "running", line)
            case e.AgentSpawn(run_id=run_id, agent=agent):
                call = next((each for each in self._calls.values() if child in each.children), None)
                if call is not None and run_id not in self.children:
                    below = self.children[run_id] = ChildLine(run_id, agent, child.depth + 1)
                    call.children.insert(call.children.index(child) + 1, below)
                    self._transcript.change(call)
            case e.RunEnd(outcome=outcome):
                self.change_child(event.run_id, outcome, "", ended=True)
            case _:
                pass
