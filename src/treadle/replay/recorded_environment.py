"""All else that the loop asks for, as it was on record: time, hooks, secrets, memories, the surroundings of the
prompt, what a session had gone through."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from treadle.core.context.memory_prompt import recalled_lines
from treadle.domain import events as e
from treadle.domain.agents import AgentSpec
from treadle.domain.events import RunEnd
from treadle.domain.ids import AgentId, Instant, Prefix, SessionId
from treadle.domain.memories import Memory, MemoryId, MemoryScope
from treadle.domain.secret_refs import make_secret_ref
from treadle.domain.tools import ToolSpec
from treadle.domain.users import UserId
from treadle.engine.null_ports import NoApprovals, NoSessions
from treadle.ports.approvals import Grant
from treadle.ports.hooks import Block, Hook, HookedCall, Rewrite
from treadle.ports.memory import NO_EXCLUSION, FoundMemory, Recall, RecallExclusion
from treadle.ports.sessions import SegmentRecord
from treadle.ports.skills import Skill
from treadle.ports.tool import Observation
from treadle.ports.vault import Redaction, SecretRefused, TextStream
from treadle.replay.script import Script
from treadle.replay.sentence_facts import memories_in
from treadle.system.timers import Timer, Timers

_FAILED, _WITHHELD = " failed: ", "` has run, but its result is withheld: "


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
    """They ring when the script says that a time had come."""

    def __init__(self) -> None:
        super().__init__()
        self._set: dict[Timer, asyncio.Task[Any] | None] = {}

    def set(self, timer: Timer, at: float) -> None:
        self._set[timer] = asyncio.current_task()

    def cancel(self, timer: Timer) -> None:
        self._set.pop(timer, None)

    def fire(self, task: "asyncio.Task[Any] | None" = None) -> None:
        """All of them, or those of one task: each looks for itself whether its time has come."""
        for timer, owner in tuple(self._set.items()):
            if task is None or owner is task:
                timer.fire()


# ── Hooks ──────────────────────────────────────────────────────────────────────────────────────────


def has_hooks(script: Script) -> bool:
    """Whether anything on record was done by a hook."""
    asked: dict[str, str] = {}
    for event in script.events:
        match event.data:
            case e.HookBlocked():
                return True
            case e.LlmResponse(parts=parts):
                asked |= {use.call_id: use.arguments for part in parts for use in _uses(part)}
            case e.ToolCallStart() | e.ApprovalRequested():
                if asked.get(event.data.call_id) not in (None, event.data.arguments):
                    return True
            case _:
                pass
    return False


def _uses(part: Any) -> tuple[Any, ...]:
    return (part,) if hasattr(part, "arguments") else ()


class RecordedHook(Hook):
    """Does what all hooks together have done."""

    def __init__(self, script: Script) -> None:
        self._script = script

    @property
    def name(self) -> str:
        """Of the one that blocks next."""
        return next((data.hook for data in self._script.upcoming() if isinstance(data, e.HookBlocked)), "")

    async def before(self, call: HookedCall) -> Block | Rewrite | None:
        for data in self._script.clearing():
            match data:
                case e.HookBlocked(call_id, name, _, content) if call_id == call.call_id:
                    return Block(content.removeprefix(f"`{name}` was not run: "))
                case e.ToolCallStart() | e.ApprovalRequested() if data.call_id == call.call_id:
                    arguments = msgspec.json.decode(data.arguments or "{}", type=dict[str, Any])
                    return None if arguments == call.arguments else Rewrite(arguments)
                case _:
                    pass
        return None

    async def after(self, call: HookedCall, result: Observation) -> Observation | None:
        data = self._script.outcome_of(call.call_id)
        if not isinstance(data, e.HookBlocked):
            return None
        reason = data.content.partition(_WITHHELD)[2].removeprefix(f"the hook {data.hook}")
        if "did not answer within" in reason:
            raise TimeoutError
        if reason.startswith(_FAILED):
            kind, _, told = reason.removeprefix(_FAILED).partition(": ")
            raise type(kind, (Exception,), {})(told)
        answered: Any = type(reason.removeprefix(" answered ").partition(",")[0], (), {})
        return answered()


# ── Secrets ────────────────────────────────────────────────────────────────────────────────────────


class _Whole:
    """Implements `ports.vault.TextStream`."""

    def feed(self, piece: str) -> str:
        return piece

    def flush(self) -> str:
        return ""


class RecordedRedactor:
    """Takes nothing out, which was taken out already, and names what was. Implements `ports.vault.Redactor`."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.is_idle = not any(_is_of_secrets(event.data) for event in script.events)

    def redact(self, text: str) -> Redaction:
        names: tuple[str, ...] = ()
        for data in self._script.upcoming():
            match data:
                case e.Redacted(names=found):
                    names = found
                case e.LlmResponse(parts=parts, secrets=secrets):
                    calls = [
                        use.call_id for part in parts for use in _uses(part) if text in _spellings(use.arguments)
                    ]
                    held = [name for call_id, name in secrets if call_id in calls]
                    return Redaction(text, tuple(dict.fromkeys(held)) if calls else names)
                case _:
                    break
        return Redaction(text, names)

    def stream(self) -> TextStream:
        return _Whole()


def _is_of_secrets(data: e.EventData) -> bool:
    if isinstance(data, e.Redacted):
        return data.where != "user_message"
    return isinstance(data, e.LlmResponse) and bool(data.secrets)


def _spellings(arguments: str) -> tuple[str, ...]:
    """Arguments as they were written, and as they are once they have been read."""
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

    def granted(self, agent: str, tool: str) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for data in self._script.upcoming():
            if not isinstance(data, e.SecretUsed):
                break
            found[data.name] = ""
        return found

    def reveal(self, name: str, agent: str, tool: str) -> str:
        denied = self._script.next()
        if denied is None or not isinstance(denied.data, e.SecretDenied):
            return make_secret_ref(name)
        outcome = self._script.outcome_of(denied.data.call_id)
        told = "" if outcome is None else outcome.content.partition("` failed: ")[2]
        raise SecretRefused(told.partition(" Do not make up a result")[0], denied.data.reason)


# ── Memories, the system prompt, the session ───────────────────────────────────────────────────────


class RecordedMemories:
    """Implements `ports.memory.Memories`."""

    def __init__(self, script: Script) -> None:
        self._script = script

    async def recall(
        self, scope: MemoryScope, text: str, limit: int, embedder: str, without: RecallExclusion = NO_EXCLUSION
    ) -> Recall:
        agent_id = scope.agent_id
        degraded: e.MemoryDegraded | None = None
        for data in self._script.upcoming():
            match data:
                case e.MemoryDegraded():
                    degraded = data
                case e.MemoryRecalled():
                    return _recalled(data, agent_id, degraded)
                case e.CommandObeyed(said):
                    found = memories_in(said, agent_id)
                    return Recall(tuple([FoundMemory(memory, 1.0, "text") for memory in found]))
                case e.LlmRequest():
                    break
                case _:
                    pass
        return Recall(degraded=degraded)

    async def find_duplicate(self, agent_id: AgentId, owner: UserId, text: str) -> MemoryId | None:
        return next((data.repeats for data in self._script.upcoming() if isinstance(data, e.MemorySaved)), None)

    async def latest(self, scope: MemoryScope, limit: int) -> Sequence[Memory]:
        obeyed = next((data for data in self._script.upcoming() if isinstance(data, e.CommandObeyed)), None)
        return () if obeyed is None else memories_in(obeyed.said, scope.agent_id)


def _recalled(data: e.MemoryRecalled, agent_id: AgentId, degraded: e.MemoryDegraded | None) -> Recall:
    lines = "\n".join(recalled_lines(data.section))
    ids = tuple([reminder.memory_id for reminder in data.reminders])
    shown = memories_in(lines, agent_id, ids)
    found = [
        FoundMemory(memory, reminder.score, data.by)
        for memory, reminder in zip(shown, data.reminders, strict=False)
    ]
    return Recall(tuple(found), tuple(shown[len(data.reminders) :]), data.by, degraded)


class RecordedSurroundings:
    """Implements `ports.agent_context.AgentContext`."""

    def __init__(self, script: Script) -> None:
        start = next((event.data for event in script.events if isinstance(event.data, e.RunStart)), None)
        self._start = start or e.RunStart(())
        queued = script.events[0].data
        told = isinstance(queued, e.RunQueued) and bool(queued.instructions)
        sections = self._start.sections
        self._sections = sections[:-1] if told and sections else sections

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
        raise LookupError("A replay loads no skills.")


class RecordedApprovals(NoApprovals):
    """Implements `ports.approvals.Approvals`."""

    def __init__(self, script: Script) -> None:
        self._script = script

    async def grants(self, session_id: SessionId) -> Sequence[Grant]:
        """What was granted for the session, by others or by this run until now."""
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
