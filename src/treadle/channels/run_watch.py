"""Follows a run for a conversation: shows the answer as it is written, asks for approvals, and sends the end.

Everything is keyed by the run and by positions in its journal, so a process that follows the run again after a
crash sends nothing twice."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import aclosing, suppress

from msgspec.structs import replace

from treadle.channels.answer_files import collect_files
from treadle.channels.outbox import ChannelOutbox
from treadle.channels.parts import split_for_channel
from treadle.channels.prompts import (
    add_recalled,
    describe_decision,
    describe_end,
    describe_wait,
    make_approval_prompt,
    make_question_key,
    make_question_prompt,
    spell_commands,
)
from treadle.channels.tasks import TaskSet
from treadle.domain.channels import ChannelConfig
from treadle.domain.errors import RunDeleted, UnknownRun
from treadle.domain.events import StreamReset
from treadle.domain.ids import ApprovalId, RunId
from treadle.domain.plans import PLAN_MARKS, summarize_plan
from treadle.domain.transcript import (
    AnswerItem,
    ApprovalItem,
    CallItem,
    Change,
    ChildItem,
    EndItem,
    Item,
    ItemAdded,
    ItemChanged,
    LiveReplaced,
    NoteItem,
    PlanItem,
    PlanStep,
    QuestionItem,
    TextAppended,
    append_text,
)
from treadle.operations.service import LocalService
from treadle.operations.transcripts import RunTranscript
from treadle.ports.channel import FileSource, Outgoing
from treadle.ports.channel_store import ChannelStore
from treadle.ports.clock import Clock

MIN_DRAFT_CHARACTERS = 24
"""An answer is shown from this length on, so that a silent completion is never shown."""


class RunWatch:
    """Follows the runs of one channel."""

    def __init__(
        self,
        name: str,
        config: ChannelConfig,
        store: ChannelStore,
        service: LocalService,
        outbox: ChannelOutbox,
        clock: Clock,
        files: FileSource,
    ) -> None:
        self.name = name
        self.config = config
        self.store = store
        self.service = service
        self.outbox = outbox
        self.clock = clock
        self.files = files
        self._tasks = TaskSet()
        self._unanswered: defaultdict[str, dict[RunId, asyncio.Event]] = defaultdict(dict)
        """By conversation, in order: the followed runs, and whether their answers are stored."""

    def __len__(self) -> int:
        return len(self._tasks)

    def follow(self, run_id: RunId, conversation: str) -> None:
        """Send to the conversation what the run says. Does nothing if the run is followed already."""
        self._unanswered[conversation].setdefault(run_id, asyncio.Event())
        self._tasks.run_again(run_id, lambda: _FollowedRun(self, run_id, conversation).follow())

    async def wait_for_earlier(self, run_id: RunId, conversation: str) -> None:
        """Wait until the answers of earlier runs of a conversation are stored. Another process may have executed
        several runs while the channel had no connection. A run that has not ended is not waited for."""
        for earlier, is_stored in list(self._unanswered[conversation].items()):
            if earlier == run_id:
                return
            with suppress(UnknownRun, RunDeleted):
                if (await self.service.run(earlier)).outcome is not None:
                    await is_stored.wait()

    def note_stored(self, run_id: RunId, conversation: str) -> None:
        """Let later runs of the conversation continue: the answer of this one is stored."""
        if (is_stored := self._unanswered[conversation].pop(run_id, None)) is not None:
            is_stored.set()
        if not self._unanswered[conversation]:
            del self._unanswered[conversation]

    async def close(self) -> None:
        await self._tasks.close()


class _FollowedRun:
    def __init__(self, watch: RunWatch, run_id: RunId, conversation: str) -> None:
        self._watch = watch
        self._run_id = run_id
        self._conversation = conversation
        self._transcript = RunTranscript(run_id)
        self._section = 0
        """How many messages of this run interrupted the answer. Each begins a message of its own after it."""
        self._answer: AnswerItem | None = None
        """The latest answer."""
        self._answer_section = 0
        """The section that it began in."""
        self._recalled = 0
        """Number of recalled memories."""
        self._totals = self._transcript.totals
        self._is_busy = True
        self._changed = asyncio.Event()
        self._child_prompts: dict[RunId, list[str]] = {}

    async def follow(self) -> None:
        display = asyncio.create_task(self._show_progress())
        try:
            while not await self._read():
                self._transcript = RunTranscript(self._run_id)
                self._section, self._answer, self._recalled = 0, None, 0
            await self._watch.outbox.wait_for_draft(self._conversation)
        except (UnknownRun, RunDeleted):  # deleted with its session
            await self._finish(())
        finally:
            display.cancel()
            await asyncio.wait({display})

    async def _read(self) -> bool:
        """Read the events of the run. Return False if the stream must be read again."""
        async with aclosing(self._watch.service.events(self._run_id)) as events:
            async for event in events:
                if isinstance(event.data, StreamReset):
                    return False
                for change in self._transcript.apply(event):
                    if isinstance(change, ItemAdded) and isinstance(change.item, EndItem):
                        await self._end(change.item)
                        return True
                    await self._handle_change(change)
                self._note_state()
        return False

    def _note_state(self) -> None:
        """Note that the model is asked again, or that the run has begun to wait."""
        before, now = self._totals, self._transcript.totals
        self._totals = now
        if now.asked_at != before.asked_at and now.asked_at is not None:
            self._is_busy = True
            self._changed.set()
        elif now.status != before.status and now.status == "waiting":
            self._is_busy = False

    async def _handle_change(self, change: Change) -> None:
        match change:
            case ItemAdded(item) | ItemChanged(item):
                await self._handle_item(item)
            case TextAppended(key=key) if self._answer is not None and key == self._answer.key:
                answer = append_text(self._answer, change)
                assert isinstance(answer, AnswerItem)
                self._set_answer(answer)
            case LiveReplaced() if self._answer is not None and self._answer.state == "writing":
                self._answer = None
            case _:
                pass

    async def _handle_item(self, item: Item) -> None:
        outbox = self._watch.outbox
        match item:
            case AnswerItem():
                self._set_answer(item)
            case CallItem(state="running"):
                self._is_busy = True
            case ApprovalItem(state="pending"):
                await self._ask(make_approval_prompt(item, self._conversation, self._has_buttons))
            case ApprovalItem(state="approved" | "denied" as state, approval_id=approval_id, by=by):
                self._is_busy = True
                decision = "approve" if state == "approved" else "deny"
                await outbox.revise(f"approval/{approval_id}", describe_decision(decision, by))
            case ApprovalItem(state="expired", approval_id=approval_id):
                await outbox.revise(f"approval/{approval_id}", describe_decision("expired"))
            case QuestionItem(state="open"):
                await self._ask(make_question_prompt(item, self._run_id, self._conversation, self._has_buttons))
            case QuestionItem(state="answered", call_id=call_id):
                self._is_busy = True
                await outbox.revise(make_question_key(self._run_id, call_id), "Answered.")
            case ChildItem(state="waiting", child_run_id=run_id):
                await self._ask_for_child(run_id)
            case ChildItem(state="running", child_run_id=run_id):
                await self._close_prompts(run_id)
            case PlanItem(steps=steps):
                await self._show_plan(steps)
            case NoteItem(topic="memory_recalled", count=count):
                self._recalled += count
            case NoteItem(topic="run_waiting", sequence=sequence):
                await self._wait(sequence)
            case _:
                pass

    @property
    def _text(self) -> str:
        """The answer that is being written in this section."""
        return "" if self._answer is None or self._answer_section < self._section else self._answer.text

    def _set_answer(self, answer: AnswerItem) -> None:
        if self._answer is None or answer.key != self._answer.key:
            self._answer_section = self._section
        self._answer = answer
        self._changed.set()

    # ── Questions ──

    async def _show_plan(self, steps: Sequence[PlanStep]) -> None:
        """Show the plan in one message that is edited, on platforms that can edit messages."""
        channel = await self._watch.outbox.connection()
        if not (channel.traits.can_edit and self._watch.config.streaming):
            return
        text = "\n".join((f"Plan: {summarize_plan(steps)}", *(f"{PLAN_MARKS[s.status]} {s.text}" for s in steps)))
        key = f"{self._run_id}/plan"
        if await self._watch.store.find_sent(self._watch.name, key=key) is not None:
            await self._watch.outbox.revise(key, text)
        else:
            await self._ask(Outgoing(key, self._conversation, text))
            self._is_busy = True

    async def _ask(self, prompt: Outgoing) -> None:
        """Send a prompt, once. The answer continues in a message after it."""
        await self._close_section()
        await self._watch.outbox.post(prompt)
        self._is_busy = False

    async def _ask_for_child(self, run_id: RunId) -> None:
        """Ask for the approvals and questions of a child run, which its root's users decide."""
        service = self._watch.service
        prompts = self._child_prompts.setdefault(run_id, [])
        for record in await service.approvals(run_id):
            prompts.append(f"approval/{record.approval_id}")
            asked = ApprovalItem(
                key=record.approval_id,
                run_id=run_id,
                sequence=0,
                at=0.0,
                approval_id=record.approval_id,
                call_id=record.call_id,
                name=record.tool,
                arguments=record.arguments,
                reason=record.reason,
                pattern=record.pattern,
                destructive=await service.approval_service.find_destruction(record),
            )
            await self._ask(make_approval_prompt(asked, self._conversation, self._has_buttons))
        for question in await service.questions(run_id):
            prompts.append(make_question_key(run_id, question.call_id))
            await self._ask(make_question_prompt(question, run_id, self._conversation, self._has_buttons))

    async def _close_prompts(self, run_id: RunId) -> None:
        """Show that the prompts of a child run are decided."""
        prompts = self._child_prompts.pop(run_id, ())
        self._is_busy = self._is_busy or bool(prompts)
        for key in prompts:
            kind, _, approval_id = key.partition("/")
            if kind == "question":
                await self._watch.outbox.revise(key, "Answered.")
            elif decision := (await self._watch.service.approval(ApprovalId(approval_id))).decision:
                await self._watch.outbox.revise(key, describe_decision(decision))

    async def _wait(self, sequence: int) -> None:
        totals = self._transcript.totals
        if (text := describe_wait(totals.waiting_for, totals.detail)) is not None:
            text = spell_commands(text, self._watch.outbox.command_prefix)
            key = f"{self._run_id}/waiting/{sequence}"
            await self._watch.outbox.post(Outgoing(key, self._conversation, text))

    async def _close_section(self) -> None:
        """Finish the message that is being written, if there is one."""
        watch, key = self._watch, self._key(0)
        known = await watch.store.find_sent(watch.name, key=key)
        if known is not None and known.state == "draft" and self._text:
            await watch.store.finish(watch.name, self._make_parts(self._text), watch.clock.now())
            watch.outbox.wake(self._conversation)
        self._section += 1

    # ── The answer ──

    def _key(self, part: int) -> str:
        return f"{self._run_id}/{self._section}/{part}"

    def _make_parts(self, text: str) -> list[Outgoing]:
        parts = split_for_channel(self._watch.outbox.channel, text)
        return [Outgoing(self._key(number), self._conversation, part) for number, part in enumerate(parts)]

    async def _end(self, end: EndItem) -> None:
        self._is_busy = False
        answer = self._answer
        said = answer.text if answer is not None and answer.key == end.answer_key else end.text
        channel = await self._watch.outbox.connection()  # the length of parts is the platform's
        prefix = channel.traits.command_prefix
        text, files = describe_end(end, said, prefix), ()
        if self._transcript.totals.is_command:
            text = spell_commands(text, prefix)
        if text and "![" in text:
            limits = self._watch.config.limits
            agent = await self._watch.service.agent_of(self._run_id)
            max_bytes = min(limits.sent_file_bytes, channel.traits.max_file_bytes)
            text, files = await collect_files(text, agent, self._watch.files, limits.sent_files, max_bytes)
        parts = self._make_parts(add_recalled(text, self._recalled, prefix)) if text else []
        if files:
            parts[-1] = replace(parts[-1], files=files)
        await self._finish(parts)

    async def _finish(self, messages: Sequence[Outgoing]) -> None:
        watch = self._watch
        await watch.wait_for_earlier(self._run_id, self._conversation)
        await watch.store.finish(watch.name, messages, watch.clock.now(), run_id=self._run_id)
        watch.note_stored(self._run_id, self._conversation)
        watch.outbox.wake(self._conversation)

    @property
    def _has_buttons(self) -> bool:
        channel = self._watch.outbox.channel
        return channel is not None and channel.traits.has_buttons

    # ── While it is written ──

    async def _show_progress(self) -> None:
        """Show the unfinished answer and a typing indicator at the platform's pace, while the run is busy."""
        shown = ""
        while True:
            self._changed.clear()
            channel = await self._watch.outbox.connection()
            traits = channel.traits
            if self._is_busy and traits.typing_seconds is not None and self._watch.outbox.is_free:
                with suppress(Exception):
                    async with asyncio.timeout(10):
                        await channel.show_typing(self._conversation)
            text = self._text
            if self._is_streaming(text, traits.can_edit) and text != shown and self._is_busy:
                first = split_for_channel(channel, text)[0]
                draft = Outgoing(self._key(0), self._conversation, first, is_draft=True)
                if await self._watch.outbox.stream(draft, self._run_id):
                    shown = text
            await asyncio.sleep(traits.edit_seconds if self._is_busy else 0)
            await self._wait_for_change(traits.typing_seconds)

    async def _wait_for_change(self, typing_seconds: float | None) -> None:
        """Wait for more text, or until the typing indicator fades. A run that waits costs nothing."""
        seconds = typing_seconds if self._is_busy else None
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def _is_streaming(self, text: str, can_edit: bool) -> bool:
        return can_edit and self._watch.config.streaming and len(text) >= MIN_DRAFT_CHARACTERS
