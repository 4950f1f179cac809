"""Replays the environment of the loop: time, hooks, secrets, memories, the context of the prompt, approvals and the
earlier runs of the session."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import Any

import msgspec

from treadle.core.guards.output import MAX_ATTEMPTS
from treadle.domain import events as e
from treadle.domain.agents import AgentSpec
from treadle.domain.events import RunEnd
from treadle.domain.excerpts import take_excerpt
from treadle.domain.ids import AgentId, Instant, Prefix, RunId, SessionId
from treadle.domain.memories import Memory, MemoryId, MemoryScope, ShownMemory
from treadle.domain.secret_refs import make_secret_ref
from treadle.domain.tools import ToolSpec
from treadle.domain.users import UserId
from treadle.domain.workspaces import NO_WORKSPACE, WorkspaceId
from treadle.engine.null_ports import NoApprovals, NoSessions
from treadle.engine.tool_hooks import BlockedByHook
from treadle.ports.approvals import Grant
from treadle.ports.hooks import Block, Hook, HookedCall, Rewrite
from treadle.ports.memory import NO_EXCLUSION, FoundMemory, Recall, RecallExclusion
from treadle.ports.sessions import SegmentRecord
from treadle.ports.skills import Skill
from treadle.ports.tool import Observation
from treadle.ports.vault import Redaction, SecretRefused, TextStream
from treadle.replay.script import Script
from treadle.system.timers import Timer, Timers


class RecordedTime:
    """Implements `ports.clock.Clock` and `ports.clock.Ids`."""

    def __init__(self, script: Script) -> None:
        self._script = script

    def now(self) -> Instant:
        return self._script.now()

    def monotonic(self) -> float:
        return self._script.monotonic

    def __call__(self, prefix: Prefix) -> str:
        return self._script.new_id(prefix)


class RecordedTimers(Timers):
    """Timers that go off when the script says so."""

    def __init__(self) -> None:
        super().__init__()
        self._set: dict[Timer, asyncio.Task[Any] | None] = {}

    def set(self, timer: Timer, at: float) -> None:
        self._set[timer] = asyncio.current_task()

    def cancel(self, timer: Timer) -> None:
        self._set.pop(timer, None)

    def fire(self, task: "asyncio.Task[Any] | None" = None) -> None:
        """Let the timers of a task go off, or all timers. Each checks whether it is due."""
        for timer, owner in tuple(self._set.items()):
            if task is None or owner is task:
                timer.fire()


# ── Hooks ──


def has_hooks(script: Script) -> bool:
    """Return whether a hook acted on any call. A reviewer may have edited its arguments."""
    asked: dict[str, str] = {}
    reviewed: dict[str, str] = {}
    for event in script.events:
        match event.data:
            case e.HookBlocked():
                return True
            case e.LlmResponse(parts=parts):
                asked |= {use.call_id: use.arguments for part in parts for use in _list_calls(part)}
            case e.ToolCallStart() | e.ApprovalRequested():
                if asked.get(event.data.call_id) not in (None, event.data.arguments):
                    return True
                if isinstance(event.data, e.ApprovalRequested):
                    reviewed[event.data.approval_id] = event.data.call_id
            case e.ApprovalDecided(approval_id=approval_id, arguments=str() as edited) if approval_id in reviewed:
                asked[reviewed[approval_id]] = edited
            case _:
                pass
    return False


def _list_calls(part: Any) -> tuple[Any, ...]:
    return (part,) if hasattr(part, "arguments") else ()


class RecordedHook(Hook):
    """Does what all hooks together did."""

    def __init__(self, script: Script) -> None:
        self._script = script

    @property
    def name(self) -> str:
        """Return the name of the hook that blocks next."""
        return next((data.hook for data in self._script.list_upcoming() if isinstance(data, e.HookBlocked)), "")

    async def before(self, call: HookedCall) -> Block | Rewrite | None:
        for data in self._script.list_decisions():
            match data:
                case e.HookBlocked(stage="before") if data.call_id == call.call_id:
                    raise _make_block(data)
                case e.ToolCallStart() | e.ApprovalRequested() if data.call_id == call.call_id:
                    arguments = msgspec.json.decode(data.arguments or "{}", type=dict[str, Any])
                    return None if arguments == call.arguments else Rewrite(arguments)
                case _:
                    pass
        return None

    async def after(self, call: HookedCall, result: Observation) -> Observation | None:
        data = self._script.find_outcome(call.call_id)
        if isinstance(data, e.HookBlocked):
            raise _make_block(data)
        return None


def _make_block(data: e.HookBlocked) -> BlockedByHook:
    return BlockedByHook(data.hook, take_excerpt(data.content, data.excerpt), data.cause)


# ── Secrets ──


class _PlainStream:
    """Implements `ports.vault.TextStream`."""

    def feed(self, piece: str) -> str:
        return piece

    def flush(self) -> str:
        return ""


class RecordedRedactor:
    """Implements `ports.vault.Redactor`. Recorded texts are redacted already; it only names the secrets."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.is_idle = not any(_is_redaction(event.data) for event in script.events)

    def redact(self, text: str) -> Redaction:
        names: tuple[str, ...] = ()
        for data in self._script.list_upcoming():
            match data:
                case e.Redacted(names=found):
                    names = found
                case e.LlmResponse(parts=parts, secrets=secrets):
                    calls = [
                        use.call_id
                        for part in parts
                        for use in _list_calls(part)
                        if text in _list_spellings(use.arguments)
                    ]
                    held = [name for call_id, name in secrets if call_id in calls]
                    return Redaction(text, tuple(dict.fromkeys(held)) if calls else names)
                case _:
                    break
        return Redaction(text, names)

    def stream(self) -> TextStream:
        return _PlainStream()


def _is_redaction(data: e.EventData) -> bool:
    if isinstance(data, e.Redacted):
        return data.where != "user_message"
    return isinstance(data, e.LlmResponse) and bool(data.secrets)


def _list_spellings(arguments: str) -> tuple[str, ...]:
    """Return the arguments as the model wrote them, and as they are encoded after decoding."""
    try:
        return arguments, msgspec.json.encode(msgspec.json.decode(arguments)).decode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return (arguments,)


class RecordedVault:
    """Implements `ports.vault.Vault`."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.redactor = RecordedRedactor(script)

    def names(self, agent: str) -> Collection[str]:
        return ()

    def read_granted_secrets(self, agent: str, tool: str) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for data in self._script.list_upcoming():
            if not isinstance(data, e.SecretUsed):
                break
            found[data.name] = ""
        return found

    def reveal(self, name: str, agent: str, tool: str) -> str:
        denied = self._script.next()
        if denied is None or not isinstance(denied.data, e.SecretDenied):
            return make_secret_ref(name)
        outcome = self._script.find_outcome(denied.data.call_id)
        message = "" if outcome is None else take_excerpt(outcome.content, outcome.excerpt)
        raise SecretRefused(message, denied.data.reason)


# ── Memories, the system prompt and the session ──


class RecordedMemories:
    """Implements `ports.memory.Memories`."""

    def __init__(self, script: Script) -> None:
        self._script = script

    async def recall(
        self, scope: MemoryScope, text: str, limit: int, embedder: str, without: RecallExclusion = NO_EXCLUSION
    ) -> Recall:
        agent_id = scope.agent_id
        degraded: e.MemoryDegraded | None = None
        for data in self._script.list_upcoming():
            match data:
                case e.MemoryDegraded():
                    degraded = data
                case e.MemoryRecalled():
                    return _make_recall(data, agent_id, degraded)
                case e.CommandObeyed():
                    found = [_make_memory(shown, data.said, agent_id) for shown in data.memories]
                    return Recall(tuple([FoundMemory(memory, 1.0, "text") for memory in found]))
                case e.LlmRequest():
                    break
                case _:
                    pass
        return Recall(degraded=degraded)

    async def find_duplicate(
        self, agent_id: AgentId, owner: UserId, text: str, workspace: WorkspaceId = NO_WORKSPACE
    ) -> MemoryId | None:
        return next(
            (data.repeats for data in self._script.list_upcoming() if isinstance(data, e.MemorySaved)), None
        )

    async def latest(self, scope: MemoryScope, limit: int) -> Sequence[Memory]:
        obeyed = next((data for data in self._script.list_upcoming() if isinstance(data, e.CommandObeyed)), None)
        if obeyed is None:
            return ()
        return [_make_memory(shown, obeyed.said, scope.agent_id) for shown in obeyed.memories]


def _make_recall(data: e.MemoryRecalled, agent_id: AgentId, degraded: e.MemoryDegraded | None) -> Recall:
    found = [
        FoundMemory(_make_memory(reminder, data.section, agent_id), reminder.score, data.by)
        for reminder in data.reminders
    ]
    notes = [_make_memory(note, data.section, agent_id) for note in data.notes]
    return Recall(tuple(found), tuple(notes), data.by, degraded)


def _make_memory(shown: ShownMemory | e.Reminder, text: str, agent_id: AgentId) -> Memory:
    """Return a memory from the text that shows it."""
    created_at = inf if shown.created_at is None else shown.created_at
    return Memory(shown.memory_id, agent_id, "long_term", take_excerpt(text, shown.excerpt), created_at)


class RecordedAgentContext:
    """Implements `ports.agent_context.AgentContext`."""

    def __init__(self, script: Script) -> None:
        start = next((event.data for event in script.events if isinstance(event.data, e.RunStart)), None)
        self._start = start or e.RunStart(())
        queued = script.events[0].data
        has_instructions = isinstance(queued, e.RunQueued) and bool(queued.instructions)
        sections = self._start.sections
        self._sections = sections[:-1] if has_instructions and sections else sections

    def rules(self) -> str:
        return self._sections[0] if self._sections else ""

    def skills(self, agent: AgentSpec) -> Sequence[Skill]:
        return (Skill("recorded", "", "home"),) if len(self._sections) > 1 else ()

    def catalog(self, skills: Sequence[Skill]) -> str:
        return self._sections[1]

    def workspace(self, agent: AgentSpec) -> str:
        return self._start.workspace

    def notes(self, agent: AgentSpec) -> str:
        return self._start.notes

    def guidance(self, agent: AgentSpec, tools: Sequence[ToolSpec]) -> str:
        return self._start.guidance

    def load(self, agent: AgentSpec, name: str, file: str | None = None) -> str:
        raise LookupError("A replay cannot load skills.")


class RecordedApprovals(NoApprovals):
    """Implements `ports.approvals.Approvals`."""

    def __init__(self, script: Script) -> None:
        self._script = script

    async def grants(self, run_id: RunId) -> Sequence[Grant]:
        """Return the approvals for the session, from earlier runs and from this run so far."""
        asked: dict[str, e.ApprovalRequested] = {}
        later: set[Grant] = set()
        for event in self._script.events:
            match event.data:
                case e.ApprovalRequested():
                    asked[event.data.approval_id] = event.data
                case e.ApprovalDecided(approval_id, "approve", remember="session"):
                    known = asked.get(approval_id)
                    if known and known.pattern and event.sequence > self._script.committed:
                        later.add(Grant(known.name, known.pattern))
                case _:
                    pass
        return [grant for grant in self._script.recorded.grants if grant not in later]


class RecordedSessions(NoSessions):
    """Implements `ports.sessions.Sessions`."""

    def __init__(self, script: Script) -> None:
        self._recorded = script.recorded

    async def ends(self, session_id: SessionId) -> Sequence[RunEnd]:
        return self._recorded.ends

    async def segments(self, session_id: SessionId) -> Sequence[SegmentRecord]:
        return self._recorded.segments


class RecordedAnswers:
    """What the type of the answer said about the answers of the run."""

    def __init__(self, script: Script) -> None:
        self._script = script

    def find_error(self, schema: Mapping[str, Any], answer: str) -> str | None:
        """Return why the answer was refused, or None. The last refusal ended the run."""
        match next(self._script.list_upcoming(), None):
            case e.OutputRejected(error=error):
                return error
            case RunEnd(outcome="failed") as end if self._count_rejected() == MAX_ATTEMPTS - 1:
                return end.mismatch
            case _:
                return None

    def _count_rejected(self) -> int:
        events = self._script.events[: self._script.committed]
        return sum(isinstance(event.data, e.OutputRejected) for event in events)
