"""Replays one run with the current loop, offline. The journal says what models, tools, clients and clocks did. The
replay stops at the first event whose facts differ from the recorded ones."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from treadle.core.context.projection import estimate_input, max_result_characters
from treadle.core.context.tokens import TokenCount
from treadle.core.context.transcript import make_transcript
from treadle.core.fold import fold_all
from treadle.core.state import RunState, new_state
from treadle.core.tools.permissions import permits_everything
from treadle.domain import events as e
from treadle.domain.envelope import Event
from treadle.engine.deps import ChildDeps, EngineDeps, ModelDeps, SessionDeps, ToolDeps, ToolTimeouts, Worker
from treadle.engine.event_hub import EventHub
from treadle.engine.isolation import NoIsolation
from treadle.engine.loop import advance
from treadle.engine.transcript_cache import CachedTranscript, TranscriptCache
from treadle.ports.tool import Toolbox
from treadle.replay.comparison import WordingDifference, compare, count_added_tokens
from treadle.replay.event_loop import ReplayEventLoop
from treadle.replay.journal import PREVIOUS_RUN, Mismatch, RecordedJournal
from treadle.replay.recorded_children import RecordedAgents, child_timeout_seconds, explain_doubt
from treadle.replay.recorded_environment import (
    RecordedAgentContext,
    RecordedAnswers,
    RecordedApprovals,
    RecordedHook,
    RecordedMemories,
    RecordedSessions,
    RecordedTime,
    RecordedTimers,
    RecordedVault,
    has_hooks,
)
from treadle.replay.recorded_models import RecordedModels
from treadle.replay.recorded_tools import REPORTED, RecordedTools, set_result, was_stopped
from treadle.replay.recording import Recorded
from treadle.replay.script import Script

MAX_IDLE_PROMPTS = 20
"""Number of prompts without progress after which the worker is assumed to have died."""
MAX_READ_EARLY = 3
"""Number of deliveries before a difference of which each may have been read earlier."""


class ReplayProgress(Struct, frozen=True):
    """How far a replay came."""

    events: int
    """Number of events that were reproduced."""
    mismatch: Mismatch | None = None
    stopped: bool = False
    """Whether the current code writes nothing more, although more was recorded."""
    cannot: str = ""
    """Why the replay could not continue; "" if it could."""
    wording: tuple[WordingDifference, ...] = ()
    """The reproduced events that the current code words differently."""


class Player:
    """Replays one run. `carried` is the number of earlier runs whose token counts were still cached."""

    def __init__(self, recorded: Recorded, known: Toolbox, carried: int = 0) -> None:
        self._script = script = Script(recorded)
        self._journal = RecordedJournal(script)
        self._tools = RecordedTools(script, known)
        self._timers = RecordedTimers()
        self._stops = (-1, 0)
        self._prompted = ((-1, -1), 0)
        self._loop = ReplayEventLoop(self._prompt)
        self._wording: dict[int, WordingDifference] = {}
        script.deliver = self._deliver
        self._tools.on_started = self._end_at_once
        time, queued = RecordedTime(script), _find_queued(recorded)
        models = RecordedModels(script, queued.agent, queued.credits_per_dollar)
        self._hub = EventHub(time, lambda prefix: f"{prefix}_live", lambda run_id, at: None)
        tools, timeouts, memories = self._tools, _make_timeouts(recorded), RecordedMemories(script)
        context, sessions = RecordedAgentContext(script), RecordedSessions(script)
        self._deps = EngineDeps(
            worker=Worker(
                name="replay",
                journal=self._journal,
                hub=self._hub,
                clock=time,
                ids=time,
                random=models.client.draw_random,
                vault=RecordedVault(script),
                timers=self._timers,
                transcripts=_make_transcripts(recorded, carried),
                adopt=self._adopt,
            ),
            models=ModelDeps(models, tools, context),
            tools=ToolDeps(
                tools=tools,
                timeouts=timeouts,
                hooks=(RecordedHook(script),) if has_hooks(script) else (),
                approvals=RecordedApprovals(script),
                memories=memories,
                agent_context=context,
            ),
            children=ChildDeps(
                models=models, tools=tools, timeouts=timeouts, agents=RecordedAgents(script), sessions=sessions
            ),
            session=SessionDeps(models, sessions, memories=memories),
            find_answer_error=RecordedAnswers(script).find_error,
            isolation=NoIsolation(),
        )
        self._is_command = queued.command is not None

    # ── Claims ──

    def play(self) -> ReplayProgress:
        """Replay the run as far as possible."""
        progress = self._play()
        wording = [each for at, each in sorted(self._wording.items()) if at <= progress.events]
        return msgspec.structs.replace(progress, wording=tuple(wording))

    def _play(self) -> ReplayProgress:
        try:
            while not self._script.is_over:
                parted = self._execute()
                if self._script.cannot:
                    return ReplayProgress(self._script.committed, cannot=self._script.cannot)
                if parted is not None:
                    unsure = self._explain_doubt(parted)
                    return ReplayProgress(parted.events, cannot=unsure) if unsure else parted
        finally:
            self._loop.close()
        return ReplayProgress(self._script.committed)

    def _execute(self) -> ReplayProgress | None:
        """Let a worker claim the run and execute it. Return where it differs from the record, or None.

        The journal does not record when a worker claims the run, how many deliveries it has read, or the exact time
        that it read from the clock. A difference counts only if none of these explains it."""
        script, start = self._script, self._script.committed
        parted = self._claim_once()
        if parted is None or script.cannot:
            return None
        if self._knows_fewer(start, parted.events):
            return None
        if self._reads_early(start, parted.events):
            return None
        script.committed = parted.events
        return parted

    def _knows_fewer(self, start: int, end: int) -> bool:
        """Claim the run again with fewer deliveries, directly before the difference and then earlier in this claim:
        results are written in the order in which the worker learned of them. Return whether that explains what was
        recorded."""
        script = self._script
        last = script.find_deliveries_before(end)
        earlier = [at for at in (*script.list_delivery_positions(start, last), start) if at < last]
        for beginning in (last, *earlier[:MAX_READ_EARLY]):
            for early in (False, True):
                if self._knows_some(beginning, early, end):
                    return True
        return False

    def _knows_some(self, beginning: int, early: bool, end: int) -> bool:
        """Claim the run again with each number of the deliveries at a position. Stay where the best one came, and
        return whether that is beyond another position."""
        script, best, furthest = self._script, 0, end
        for known in range(script.count_deliveries(beginning), -1, -1):
            script.committed = beginning
            self._claim_once(early, known)
            if script.cannot or script.is_over:
                return True
            if script.committed > furthest:
                best, furthest = known, script.committed
        if furthest > end and script.committed != furthest:
            script.committed = beginning
            self._claim_once(early, best)
        return furthest > end

    def _reads_early(self, start: int, end: int) -> bool:
        """Claim the run again at the start of this claim, with deliveries that the worker reads while it works.
        Return whether that explains what was recorded."""
        script = self._script
        for position in script.list_delivery_positions(start, end)[:MAX_READ_EARLY]:
            script.committed, script.read_early_at = start, position
            self._claim_once()
            script.read_early_at = None
            if script.cannot or script.committed > end:
                return True
        return False

    def _adopt(self, events: Sequence[e.EventData]) -> Sequence[e.EventData]:
        """Return the recorded events in the place of those that differ only in their wording.

        So the sizes of texts, and what follows from them, stay as they were."""
        recorded = [self._script.find_own(offset) for offset in range(len(events))]
        pairs = list(zip(events, recorded, strict=True))
        more_tokens = sum(
            count_added_tokens(event, made) for made, event in pairs if event and type(made) is type(event.data)
        )
        return [made if event is None else self._adopt_one(made, event, more_tokens) for made, event in pairs]

    def _adopt_one(self, made: e.EventData, event: Event, more_tokens: int) -> e.EventData:
        since = self._script.find_time_before(event)
        found = compare(event, since, made, self._is_command, more_tokens)
        if found.facts:
            return made
        if found.wording:
            self._wording[event.sequence] = WordingDifference(event.sequence, event.type, found.wording)
        else:
            self._wording.pop(event.sequence, None)
        return event.data

    def _claim_once(self, early: bool = False, known: int | None = None) -> ReplayProgress | None:
        script, journal = self._script, self._journal
        script.early, before, journal.known = early, script.committed, known
        try:
            self._loop.run_main(advance(script.recorded.origin.run_id, self._deps))
        finally:
            script.early = False
        if journal.is_over:
            script.committed = len(script.events)
            return None
        script.discard_drafts()
        if journal.mismatch is not None:
            return ReplayProgress(script.committed, journal.mismatch)
        return ReplayProgress(script.committed, stopped=True) if script.committed == before else None

    def _explain_doubt(self, parted: ReplayProgress) -> str:
        """Return why a difference may come from something that the journal does not record, or ""."""
        recorded = self._script.events[parted.events].data
        today = "" if parted.mismatch is None else parted.mismatch.made.type
        name, agent = getattr(recorded, "name", ""), _find_queued(self._script.recorded).agent
        goes_ahead = today in ("tool_call_start", "approval_requested")
        if isinstance(recorded, e.ToolCallError) and recorded.kind == "invalid_arguments" and goes_ahead:
            return (
                f"the arguments of {recorded.call_id} were invalid then and are valid today. The tool `{name}` has "
                "changed, or a hook had changed the arguments, which the journal does not record."
            )
        if name in self._tools.guessed and _is_ruled_on(recorded, self._script.state()):
            return (
                f"the tool `{name}` is not known here, and approval rules depend on its arguments. Replay the run "
                "in a program that has this tool."
            )
        if unsure := explain_doubt(recorded):
            return unsure
        writer = agent.compaction.model
        depends = isinstance(recorded, e.CompactionStarted | e.ContextCompacted)
        if writer is not None and depends and today in ("compaction_started", "context_compacted"):
            return f"the journal does not record the profile of {writer}, which writes the summaries."
        return ""

    # ── When no task can continue ──

    def _prompt(self) -> None:
        """Let happen what the script has next. If it has nothing for the tasks that wait, their worker died."""
        data = None if (event := self._script.next()) is None else event.data
        if self._journal.dead or data is None or self._script.cannot or self._is_stalled():
            self._kill_worker()
        elif isinstance(data, REPORTED) and self._tools.in_progress:
            for call in tuple(self._tools.in_progress.values()):  # the call that may report the event does
                if self._script.next() is event:
                    call.context.report(data)
        elif isinstance(data, e.ClarifyRequested) and data.during in self._tools.in_progress:
            self._tools.in_progress[data.during].ask(data)
        elif self._script.read_early_at == self._script.committed:
            self._deliver(len(self._script.pending_deliveries()))
        elif (call_id := getattr(data, "call_id", None)) in self._tools.in_progress and self._end_call(
            str(call_id)
        ):
            pass
        elif _is_interruption(data):
            self._stop_work()
        else:
            self._kill_worker()

    def _is_stalled(self) -> bool:
        """Return whether the last prompts made no progress."""
        at = (self._script.committed, self._script.drafted)
        self._prompted = (at, self._prompted[1] + 1 if self._prompted[0] == at else 0)
        return self._prompted[1] > MAX_IDLE_PROMPTS

    def _end_at_once(self, call_id: str) -> None:
        """End a call whose end is the next event, before other calls start."""
        event = self._script.next()
        if event is None or isinstance(event.data, REPORTED) or self._script.pending_deliveries():
            return
        if getattr(event.data, "call_id", None) == call_id:
            self._end_call(call_id)

    def _end_call(self, call_id: str) -> bool:
        """End a call as recorded. Return False if it did not end on its own."""
        call, outcome = self._tools.in_progress[call_id], self._script.find_outcome(call_id)
        if outcome is None or was_stopped(outcome) or call.result.done():
            return False
        if self._deliver_before_truncation(call_id):
            return True
        if not isinstance(outcome, e.HookBlocked):
            self._script.monotonic = call.began + outcome.duration_ms / 1000
        if isinstance(outcome, e.ToolCallError) and outcome.kind == "timeout" and outcome.cause != "tool_error":
            self._timers.fire(call.task)
        else:
            set_result(call, outcome)
        return True

    def _deliver_before_truncation(self, call_id: str) -> bool:
        """Deliver the messages that had been read before a result was truncated: its size depends on them."""
        event = self._script.next()
        if event is None or not isinstance(event.data, e.ResultTruncated) or not self._script.pending_deliveries():
            return False
        outcome = self._script.find_outcome(call_id)
        if not isinstance(outcome, e.ToolCallEnd | e.ToolCallError) or (cut := outcome.truncation) is None:
            return False
        count = self._script.count_read(lambda state: max_result_characters(state) == cut.head + cut.tail)
        if count:
            self._deliver(count)
        return bool(count)

    def _stop_work(self) -> None:
        """Stop the work in progress: by a delivery, else by a timer, else because the worker died."""
        at, times = self._stops
        times = times + 1 if at == self._script.drafted else 0
        self._stops = (self._script.drafted, times)
        if times == 0:
            self._deliver(self._count_read())
        elif times == 1:
            self._timers.fire()
        else:
            self._kill_worker()

    def _count_read(self) -> int:
        """Return how many deliveries the worker had read when it stopped the work in progress."""
        event, waiting = self._script.next(), self._script.pending_deliveries()
        assert event is not None, "something comes next"
        usage = event.data.usage if isinstance(event.data, e.LlmResponse) else None
        of_a_reply = event.data.stop == "interrupted" if isinstance(event.data, e.LlmResponse) else False
        is_interrupted_call = isinstance(event.data, e.ToolCallError) and event.data.kind == "interrupted"

        def fits(state: RunState) -> bool:
            if is_interrupted_call:  # `_make_stopped_error` names a cancellation first
                return state.cancelled is None and state.interrupted is not None
            stops = state.cancelled is not None or state.interrupted is not None
            if not of_a_reply or usage is None:
                return stops
            return (stops or state.steer_mode == "interrupt") and estimate_input(state) == usage.input_tokens

        found = self._script.count_read(fits) if waiting else 0
        if found is None and usage is not None and usage.estimated:  # a timer stopped the reply
            found = self._script.count_read(lambda state: estimate_input(state) == usage.input_tokens)
        if found is None and is_interrupted_call:
            return 0  # the deadline stopped it before the worker had read the cancellation
        return sum(each.timestamp <= event.timestamp for each in waiting) if found is None else found

    def _deliver(self, count: int) -> None:
        self._script.commit_deliveries(count)
        self._hub.on_delivered(self._script.recorded.origin.run_id)

    def _kill_worker(self) -> None:
        """Let the worker die, with everything that it has not committed."""
        self._journal.dead = True
        self._loop.cancel_main()


def _is_ruled_on(data: e.EventData, state: RunState) -> bool:
    """Return whether an approval rule, or the tool itself, decided it."""
    match data:
        case e.ApprovalRequested():
            return True
        case e.ToolCallStart(name=name) | e.ToolCallError(name=name, kind="denied"):
            return name not in state.tools or not permits_everything(state, state.tools[name])
        case _:
            return False


def _is_interruption(data: e.EventData) -> bool:
    match data:
        case e.LlmResponse(stop="interrupted") | e.ToolCallError(kind="interrupted" | "cancelled"):
            return True
        case e.CompactionFailed(cause="interrupted"):
            return True
        case _:
            return False


def _find_queued(recorded: Recorded) -> e.RunQueued:
    queued = recorded.events[0].data
    assert isinstance(queued, e.RunQueued), f"the first event of a run is {recorded.events[0].type}"
    return queued


def _make_timeouts(recorded: Recorded) -> ToolTimeouts:
    """Return the recorded timeouts of tools, as far as a call reached one of them."""
    specs: dict[str, float | None] = {}
    for event in recorded.events:
        match event.data:
            case e.RunStart(tools):
                specs = {spec.name: spec.timeout for spec in tools}
            case e.ToolCallError(name=name, kind="timeout", limit=float() as limit) if specs.get(name) is None:
                return ToolTimeouts(limit, child_timeout_seconds(recorded))
            case _:
                pass
    return ToolTimeouts(agents=child_timeout_seconds(recorded))


def _make_transcripts(recorded: Recorded, carried: int) -> TranscriptCache:
    """Return the cache with the transcript of the session, with the token counts of this many earlier runs."""
    kept = TranscriptCache()
    if carried:
        tokens, counted_by = TokenCount(), None
        for run in recorded.earlier[-carried:]:
            state = new_state(recorded.origin, run.history)
            state.context.tokens, state.context.counted_by = tokens, counted_by
            fold_all(state, run.events)
            tokens, counted_by = state.context.tokens, state.context.counted_by
        said = CachedTranscript(make_transcript(recorded.history), tokens, counted_by)
        kept.put(recorded.origin.session_id, PREVIOUS_RUN, said)
    return kept
