"""An old run through the real loop, offline: the journal says what the world did, and the loop of today writes what
it would write. The first event that differs is where they part."""

from msgspec import Struct

from treadle.core.context.projection import estimate_input, max_result_characters
from treadle.core.context.tokens import TokenCount
from treadle.core.context.transcript import make_transcript
from treadle.core.context.truncation import MARK_CHARACTERS
from treadle.core.fold import fold_all
from treadle.core.state import RunState, new_state
from treadle.core.tools.permissions import permits_everything
from treadle.domain import events as e
from treadle.engine.deps import EngineDeps, ToolTimeouts
from treadle.engine.event_hub import EventHub
from treadle.engine.isolation import NoIsolation
from treadle.engine.loop import advance
from treadle.engine.transcript_cache import CachedTranscript, TranscriptCache
from treadle.ports.tool import Toolbox
from treadle.replay.event_loop import Stage
from treadle.replay.journal import BEFORE, Mismatch, RecordedJournal
from treadle.replay.recorded_children import RecordedAgents, seconds_for_children, why_unsure
from treadle.replay.recorded_environment import (
    RecordedApprovals,
    RecordedHook,
    RecordedMemories,
    RecordedSessions,
    RecordedSurroundings,
    RecordedTime,
    RecordedTimers,
    RecordedVault,
    has_hooks,
)
from treadle.replay.recorded_models import RecordedModels
from treadle.replay.recorded_summaries import INTERRUPTED
from treadle.replay.recorded_tools import REPORTED, RecordedTools, brought, was_stopped
from treadle.replay.recording import Recorded
from treadle.replay.script import Script
from treadle.replay.sentence_facts import seconds_given

IN_VAIN = 20
"""So often something is let happen that nobody minds, before a worker is taken to be gone."""


class ReplayProgress(Struct, frozen=True):
    """How far a run came."""

    events: int
    """That were written again as they were recorded."""
    mismatch: Mismatch | None = None
    stopped: bool = False
    """Today's code writes nothing more, where something was recorded."""
    cannot: str = ""
    """Why it could not be told how it goes on; empty: it could."""


class Player:
    """Plays one run. `carried`: how many runs of its session have gone on with what the one before had counted."""

    def __init__(self, recorded: Recorded, known: Toolbox, carried: int = 0) -> None:
        self._script = script = Script(recorded)
        self._journal = RecordedJournal(script)
        self._tools = RecordedTools(script, known)
        self._timers = RecordedTimers()
        self._urged = (-1, 0)
        self._prompted = ((-1, -1), 0)
        self._stage = Stage(self._prompt)
        script.tell = self._tell
        self._tools.on_begun = self._end_at_once
        time, queued = RecordedTime(script), _queued(recorded)
        models = RecordedModels(script, queued.agent, queued.credits_per_dollar)
        self._hub = EventHub(time, lambda prefix: f"{prefix}_live", lambda run_id, at: None)
        self._deps = EngineDeps(
            self._journal,
            self._hub,
            models,
            self._tools,
            time,
            time,
            models.client.chance,
            "replay",
            _timeouts(recorded),
            _conversations(recorded, carried),
            self._timers,
            (RecordedHook(script),) if has_hooks(script) else (),
            RecordedVault(script),
            RecordedApprovals(script),
            memories=RecordedMemories(script),
            agent_context=RecordedSurroundings(script),
            sessions=RecordedSessions(script),
            agents=RecordedAgents(script),
            isolation=NoIsolation(),
        )

    # ── From claim to claim ──

    def play(self) -> ReplayProgress:
        """See it through, as far as it goes."""
        try:
            while not self._script.is_over:
                parted = self._carry()
                if self._script.cannot:
                    return ReplayProgress(self._script.committed, cannot=self._script.cannot)
                if parted is not None:
                    unsure = self._unsure_of(parted)
                    return ReplayProgress(parted.events, cannot=unsure) if unsure else parted
        finally:
            self._stage.close()
        return ReplayProgress(self._script.committed)

    def _carry(self) -> ReplayProgress | None:
        """One worker's hold on the run, and how it parted from the record; None: it goes on. What differs is held
        against a worker who takes the run up just there, who has not heard of all that was delivered, or whose
        clock was read a moment earlier: none of that is on record."""
        script = self._script
        parted = self._hold()
        if parted is None or script.cannot:
            return None
        beginning = script.delivered_before(parted.events)
        for early in (False, True):
            for known in range(parted.events - beginning, -1, -1):
                script.committed = beginning
                self._hold(early, known)
                if script.cannot or script.committed > parted.events:
                    return None
        script.committed = parted.events
        return parted

    def _hold(self, early: bool = False, known: int | None = None) -> ReplayProgress | None:
        script, journal = self._script, self._journal
        script.early, before, journal.known = early, script.committed, known
        try:
            self._stage.play(advance(script.recorded.origin.run_id, self._deps))
        finally:
            script.early = False
        if journal.is_over:
            script.committed = len(script.events)
            return None
        script.settle()
        if journal.mismatch is not None:
            return ReplayProgress(script.committed, journal.mismatch)
        return ReplayProgress(script.committed, stopped=True) if script.committed == before else None

    def _unsure_of(self, parted: ReplayProgress) -> str:
        """Why a difference may be none: it comes from what is not on record."""
        recorded = self._script.events[parted.events].data
        today = "" if parted.mismatch is None else parted.mismatch.made.type
        name, agent = getattr(recorded, "name", ""), _queued(self._script.recorded).agent
        goes_ahead = today in ("tool_call_start", "approval_requested")
        if isinstance(recorded, e.ToolCallError) and recorded.kind == "invalid_arguments" and goes_ahead:
            return (
                f"the arguments of {recorded.call_id} were not taken then, and would be today: `{name}` is another "
                "one now, or a hook had changed them, which is not on record."
            )
        if name in self._tools.guessed and _is_ruled_on(recorded, self._script.state()):
            return (
                f"the tool `{name}` is not known here, and the rules for approvals look into its arguments. Replay "
                "it in a program that has this tool."
            )
        if unsure := why_unsure(recorded):
            return unsure
        writer = agent.compaction.model
        if writer is not None and isinstance(recorded, e.CompactionStarted) and today == "compaction_started":
            return f"what was known of {writer}, which writes the summaries, is not on record."
        return ""

    # ── When nobody can go on by themselves ──

    def _prompt(self) -> None:
        """Let happen what the script has next; where it has nothing for those who wait, their worker was gone."""
        data = None if (event := self._script.next()) is None else event.data
        if self._journal.dead or data is None or self._script.cannot or self._is_in_vain():
            self._leave()
        elif isinstance(data, REPORTED) and self._tools.under_way:
            for call in tuple(self._tools.under_way.values()):  # one that may report anything does
                if self._script.next() is event:
                    call.context.report(data)
        elif (call_id := getattr(data, "call_id", None)) in self._tools.under_way and self._end_call(str(call_id)):
            pass
        elif _is_cut_short(data):
            self._urge()
        else:
            self._leave()

    def _is_in_vain(self) -> bool:
        """Whether nothing has come of all that was let happen."""
        at = (self._script.committed, self._script.drafted)
        self._prompted = (at, self._prompted[1] + 1 if self._prompted[0] == at else 0)
        return self._prompted[1] > IN_VAIN

    def _end_at_once(self, call_id: str) -> None:
        """A call that was over before anything else happened: one beside it had not even begun."""
        event = self._script.next()
        if event is None or isinstance(event.data, REPORTED) or self._script.waiting():
            return
        if getattr(event.data, "call_id", None) == call_id:
            self._end_call(call_id)

    def _end_call(self, call_id: str) -> bool:
        """Let a call end as it did. False: it did not by itself."""
        call, outcome = self._tools.under_way[call_id], self._script.outcome_of(call_id)
        if outcome is None or was_stopped(outcome) or call.result.done():
            return False
        if self._told_before_a_cut(call_id):
            return True
        if not isinstance(outcome, e.HookBlocked):
            self._script.monotonic = call.began + outcome.duration_ms / 1000
        if isinstance(outcome, e.ToolCallError) and outcome.kind == "timeout":
            self._timers.fire(call.task)
        else:
            call.result.set_result(brought(outcome, self._started_with(call_id)))
        return True

    def _told_before_a_cut(self, call_id: str) -> bool:
        """How much of a long result is shown depends on what had been said by then: let that be heard first."""
        data = self._script.next()
        if data is None or not isinstance(cut := data.data, e.ResultTruncated) or not self._script.waiting():
            return False
        outcome = self._script.outcome_of(call_id)
        shown = cut.length if outcome is None else len(outcome.content)
        count = self._script.heard(
            lambda state: abs(max_result_characters(state) + MARK_CHARACTERS - shown) <= MARK_CHARACTERS
        )
        if count:
            self._tell(count)
        return bool(count)

    def _started_with(self, call_id: str) -> str:
        for event in reversed(self._script.events[: self._script.committed]):
            if isinstance(event.data, e.ToolCallStart) and event.data.call_id == call_id:
                return event.data.arguments
        return ""

    def _urge(self) -> None:
        """Somebody wanted it to stop, or its time had come; else whoever did it had died."""
        at, times = self._urged
        times = times + 1 if at == self._script.drafted else 0
        self._urged = (self._script.drafted, times)
        if times == 0:
            self._tell(self._heard())
        elif times == 1:
            self._timers.fire()
        else:
            self._leave()

    def _heard(self) -> int:
        """How many deliveries were known to whoever broke off what is under way."""
        event, waiting = self._script.next(), self._script.waiting()
        assert event is not None, "something comes next"
        usage = event.data.usage if isinstance(event.data, e.LlmResponse) else None
        of_a_reply = event.data.stop == "interrupted" if isinstance(event.data, e.LlmResponse) else False

        def fits(state: RunState) -> bool:
            stops = state.cancelled is not None or state.interrupted is not None
            if not of_a_reply or usage is None:
                return stops
            return (stops or state.steered == "interrupt") and estimate_input(state) == usage.input_tokens

        found = self._script.heard(fits) if waiting else 0
        return sum(each.timestamp <= event.timestamp for each in waiting) if found is None else found

    def _tell(self, count: int) -> None:
        self._script.deliveries(count)
        self._hub.delivered(self._script.recorded.origin.run_id)

    def _leave(self) -> None:
        """The worker is gone, with all that it had not written."""
        self._journal.dead = True
        self._stage.leave()


def _is_ruled_on(data: e.EventData, state: RunState) -> bool:
    """Whether a rule for approvals has decided that, or a tool that was cautious."""
    match data:
        case e.ApprovalRequested():
            return True
        case e.ToolCallStart() | e.ToolCallError(kind="denied"):
            return not permits_everything(state)
        case _:
            return False


def _is_cut_short(data: e.EventData) -> bool:
    match data:
        case e.LlmResponse(stop="interrupted") | e.ToolCallError(kind="interrupted" | "cancelled"):
            return True
        case e.CompactionFailed(reason=reason):
            return reason == INTERRUPTED
        case _:
            return False


def _queued(recorded: Recorded) -> e.RunQueued:
    queued = recorded.events[0].data
    assert isinstance(queued, e.RunQueued), f"the first event of a run is {recorded.events[0].type}"
    return queued


def _timeouts(recorded: Recorded) -> ToolTimeouts:
    """The time that calls had by default then, as far as one of them did not end within it."""
    specs: dict[str, float | None] = {}
    for event in recorded.events:
        match event.data:
            case e.RunStart(tools):
                specs = {spec.name: spec.timeout for spec in tools}
            case e.ToolCallError(name=name, kind="timeout", content=content) if specs.get(name) is None:
                if (given := seconds_given(content)) is not None:
                    return ToolTimeouts(given, seconds_for_children(recorded))
            case _:
                pass
    return ToolTimeouts(agents=seconds_for_children(recorded))


def _conversations(recorded: Recorded, carried: int) -> TranscriptCache:
    """What the process had kept of the session, where it had gone on with it in that many runs before."""
    kept = TranscriptCache()
    if carried:
        tokens, counted_by = TokenCount(), None
        for run in recorded.earlier[-carried:]:
            state = new_state(recorded.origin, run.history)
            state.context.tokens, state.context.counted_by = tokens, counted_by
            fold_all(state, run.events)
            tokens, counted_by = state.context.tokens, state.context.counted_by
        said = CachedTranscript(make_transcript(recorded.history), tokens, counted_by)
        kept.put(recorded.origin.session_id, BEFORE, said)
    return kept
