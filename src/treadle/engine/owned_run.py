"""Ownership of a run: the fold of its journal, the events staged for the next commit, and interruption by
deliveries."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from typing import Any

from msgspec import Struct

from treadle.core.context.tokens import TokenCount
from treadle.core.context.transcript import Transcript, make_transcript
from treadle.core.fold import fold, fold_all
from treadle.core.guards.quota import make_warning
from treadle.core.state import RunState, join_messages, new_state_on
from treadle.domain.envelope import Draft, Event, Origin, make_drafts
from treadle.domain.errors import Fenced, NotClaimable, UsageError
from treadle.domain.events import EventData, RunFenced
from treadle.domain.ids import Instant, RunId
from treadle.domain.quotas import Shortage
from treadle.engine.deps import Worker
from treadle.engine.interruption import Interruption
from treadle.engine.redaction import NEVER_SECRET, redact_event
from treadle.engine.transcript_cache import CachedTranscript
from treadle.ports.accounts import Reserve
from treadle.ports.journal import ANY, Advance, Claim, Release, RunDraft, RunMessage

logger = logging.getLogger(__name__)

RETRY_AFTER_FAULT_SECONDS = 60.0
"""Delay before a run is claimed again after its journal could not be folded."""

StopCondition = Callable[[RunState], bool]
"""Returns whether the deliveries so far require that the work in progress stops."""


class NewChild(Struct, frozen=True):
    """A child run that is about to begin."""

    origin: Origin
    events: tuple[EventData, ...]


class ChildMessage(Struct, frozen=True):
    """A message to another run. The key makes its delivery idempotent."""

    run_id: RunId
    event: EventData
    key: str


class Receipt:
    """A delivery that the owner has applied and not committed yet."""

    def __init__(self, key: str) -> None:
        self.key = key
        self._waiters: list[asyncio.Future[int | None]] = []

    async def wait(self) -> int | None:
        """Return its sequence as soon as it is committed, or None if it was not committed."""
        waiter: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return await waiter

    def resolve(self, sequence: int | None) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(sequence)


class OwnedRun:
    """A run that this worker has claimed. `state` is the fold of everything that is known to have happened."""

    def __init__(self, claim: Claim, worker: Worker, cached: CachedTranscript | None = None) -> None:
        self.origin = claim.origin
        self.death = claim.death
        self.epoch = claim.epoch
        self.previous = claim.session.last
        """The previous run of the session that added to the conversation."""
        state = new_state_on(claim.origin, cached.transcript if cached else Transcript(), claim.session)
        if cached is not None:
            state.context.tokens, state.context.counted_by = cached.tokens, cached.counted_by
        self.state = fold_all(state, claim.events)
        self.worker, self._adopt = worker, worker.adopt
        self.refused: Shortage | None = None
        """The account that refused the latest intent."""
        self._seen = claim.events[-1].sequence if claim.events else 0
        self._facts: list[Draft] = []
        self._receipt: Receipt | None = None
        """The first of the facts, if it was delivered to this process. The other facts follow from it."""
        self._released = False
        self._folded = 0
        """Number of deliveries folded so far. A decision made with fewer is out of date."""
        self._committing = asyncio.Lock()
        self._in_progress: tuple[StopCondition, Interruption] | None = None
        self._delivered = False
        self._delivery_task: asyncio.Task[None] | None = None
        self._flush_task: asyncio.Task[None] | None = None
        self._flush_error: BaseException | None = None
        """Why what was recorded could not be committed while work was in progress, which stops the work."""
        self._waiters: list[tuple[StopCondition, asyncio.Future[None]]] = []
        worker.hub.set_owner(claim.origin.run_id, self.on_delivery)

    def record(self, *events: EventData) -> None:
        """Fold events that have happened. They are committed together with the next commit."""
        now, state = self.worker.clock.now(), self.state
        facts = self._redact(events)
        if self._adopt is not None:
            facts = self._adopt(facts)
        self._facts += make_drafts(self.worker.ids, now, facts)
        for data in facts:
            fold(state, data, state.sequence + 1, now)

    def preview(self, *events: EventData) -> RunState:
        """Return the state as it would be after these events, which may never happen."""
        if not events:
            return self.state
        state = deepcopy(self.state)
        for data in events:
            fold(state, data, state.sequence + 1, self.worker.clock.now())
        return state

    def _redact(self, events: Sequence[EventData]) -> Sequence[EventData]:
        for data in events:
            if type(data) not in NEVER_SECRET:
                redactor = self.worker.vault.redactor
                return events if redactor.is_idle else [redact_event(each, redactor) for each in events]
        return events

    async def intend(
        self,
        *intents: EventData,
        reserve: Reserve | None = None,
        begin: Sequence[NewChild] = (),
        tell: Sequence[ChildMessage] = (),
    ) -> bool:
        """Commit what is about to happen, with its reservation, the child runs that it begins and the messages
        that it sends.

        Return False if something was delivered meanwhile, which is folded now, or if an account refused, as
        `refused` tells. The caller must then decide again."""
        return await self._commit(intents, None, reserve, begin, tell)

    async def flush(self) -> None:
        """Commit what was recorded, now. Cancelling the caller does not cancel the commit."""
        if self._facts:
            commit = asyncio.ensure_future(self._commit(()))
            commit.add_done_callback(_consume_error)
            await asyncio.shield(commit)

    def flush_soon(self) -> None:
        """Commit what was recorded, without waiting for it. What is recorded until then is in the same commit."""
        if self._flush_task is None:
            self._flush_task = asyncio.ensure_future(self._flush_all())
            self._flush_task.add_done_callback(self._on_flushed)

    async def _flush_all(self) -> None:
        while self._facts:
            await self._commit(())

    def _on_flushed(self, task: "asyncio.Task[None]") -> None:
        self._flush_task = None
        if not task.cancelled() and (error := task.exception()) is not None and self._in_progress is not None:
            self._flush_error = error
            self._in_progress[1].interrupt()

    async def release(self, release: Release, *intents: EventData, tell: Sequence[ChildMessage] = ()) -> bool:
        """Release the run with these last events. Return False, as `intend` does, if something was delivered
        meanwhile."""
        self._released = await self._commit(intents, release, tell=tell)
        if self._released and release.said is not None and (release.said or not self.state.own_messages):
            self._cache_transcript(self.state)  # unless the session leaves out what it said
        return self._released

    def _cache_transcript(self, state: RunState) -> None:
        """Cache the transcript for the session's next run. A run that was cancelled before it started has not seen
        all of it."""
        if state.has_started:
            if state.turn.inbox:
                state.transcript.add(join_messages(state.turn.inbox))
            state.transcript.close()
            cached = CachedTranscript(state.transcript, state.context.tokens, state.context.counted_by)
            self.worker.transcripts.put(self.origin.session_id, self.origin.run_id, cached)

    def show_live(self, data: EventData, sequence: int) -> None:
        self.worker.hub.show_live(self.origin, sequence, data)

    async def run_unless(
        self, must_stop: StopCondition, work: Coroutine[Any, Any, None], until: Instant | None = None
    ) -> bool:
        """Do the work and return True, unless a delivery meets the stop condition or the time is up first.

        Work that is not done has been cancelled and has ended when this returns. It runs in the caller's task, as
        under `asyncio.timeout`: nothing more is started unless something is delivered."""
        if self._receipt is not None:
            await self.flush()
        if must_stop(self.state):
            work.close()
            return False
        time_left = None if until is None else lambda: until - self.worker.clock.now()
        interruption = Interruption(self.worker.timers, time_left)
        self._flush_error = None
        self._in_progress = (must_stop, interruption)
        if self._delivered:
            self._read_deliveries()
        try:
            await work
        except asyncio.CancelledError:
            if not interruption.undo():
                raise
            if self._flush_error is not None:
                raise self._flush_error from None
            return False
        else:
            return True
        finally:
            self._in_progress = None
            interruption.close()

    async def wait_until(self, condition: StopCondition) -> None:
        """Wait, while work is in progress, until a delivery meets the condition."""
        if condition(self.state):
            return
        waiter = (condition, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        try:
            await waiter[1]
        finally:
            self._waiters.remove(waiter)

    async def wait_until_settled(self) -> None:
        """Return when no commit is in progress, and no delivery to this process waits for one."""
        while self._receipt is not None or self._committing.locked():
            if self._receipt is not None:
                await self._receipt.wait()
            else:
                async with self._committing:
                    pass

    def receive(self, made: Draft, key: str) -> Receipt | None:
        """Apply a delivery to this process, which the next commit contains, and stop the work in progress if it
        meets the stop condition. The journal need not be read.

        Return None if the delivery must go to the journal, because the order of what happened is not certain."""
        is_certain = not (self._facts or self._delivered or self._delivery_task or self._committing.locked())
        if self._in_progress is None or self._receipt is not None or not is_certain:
            return None
        self._receipt = Receipt(key)
        self._facts.append(made)
        fold(self.state, made.data, self.state.sequence + 1, made.timestamp)
        must_stop, interruption = self._in_progress
        if must_stop(self.state):
            interruption.interrupt()
        return self._receipt

    def on_delivery(self) -> None:
        """Fold what was delivered if work is in progress, and stop the work if the stop condition is met."""
        self._delivered = True
        if self._in_progress is not None:
            self._read_deliveries()

    def _read_deliveries(self) -> None:
        if self._delivery_task is None and self._receipt is None:
            self._delivery_task = asyncio.ensure_future(self._fold_deliveries())
            self._delivery_task.add_done_callback(self._on_deliveries_read)

    async def _fold_deliveries(self) -> None:
        while self._delivered:
            async with self._committing:
                self._delivered = False
                delivered = await self.worker.journal.read(self.origin.run_id, after=self._seen)
                if self._in_progress is None:  # the owner is deciding; its next commit finds what it has not seen
                    return
                self._fold(delivered)
                must_stop, interruption = self._in_progress
                if must_stop(self.state):
                    interruption.interrupt()

    def _on_deliveries_read(self, task: "asyncio.Task[None]") -> None:
        self._delivery_task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("run %s: cannot read a delivery: %s", self.origin.run_id, error)
        elif self._delivered and self._in_progress is not None:  # it arrived after the last read
            self._read_deliveries()

    async def _commit(
        self,
        data: Sequence[EventData],
        release: Release | None = None,
        reserve: Reserve | None = None,
        begin: Sequence[NewChild] = (),
        tell: Sequence[ChildMessage] = (),
    ) -> bool:
        known, self.refused = self._folded, None
        await self._committing.acquire()  # calls that end at the same time must not overtake each other
        try:
            if self._folded != known and (data or release is not None):
                return False  # a delivery was folded while this waited: decide again
            if not (data or self._facts or release is not None):
                return True  # another commit included it
            now = self.worker.clock.now()
            if data and self._adopt is not None:
                data = self._adopt(data)
            intents = self._make_drafts(now, data) if data else ()
            facts, self._facts = tuple(self._facts), []
            receipt, self._receipt = self._receipt, None
            request = Advance(
                run_id=self.origin.run_id,
                epoch=self.epoch,
                seen=self._seen,
                facts=facts,
                intents=intents,
                release=release,
                reserve=reserve,
                begin=self._draft_runs(now, begin) if begin else (),
                tell=self._draft_messages(now, tell) if tell else (),
                key=None if receipt is None else receipt.key,
            )
            try:
                advanced = await self.worker.journal.advance(request)
            except UsageError:  # nothing was written, but the facts have happened
                self._facts[:0] = facts
                self._receipt = receipt
                raise
            except BaseException:
                if receipt is not None:
                    receipt.resolve(None)
                raise
            if receipt is not None:
                written = len(facts) + (len(intents) if advanced.accepted else 0)
                receipt.resolve(advanced.sequence - written + 1)
            if advanced.delivered:
                self._fold(advanced.delivered)
            if advanced.accepted:
                for sequence, event in enumerate(intents, advanced.sequence - len(intents) + 1):
                    fold(self.state, event.data, sequence, now)
            self._seen = self.state.sequence = advanced.sequence
            self.refused = advanced.refused
            if advanced.near:
                self.record(*map(make_warning, advanced.near))
            return advanced.accepted
        finally:
            self._committing.release()

    def _make_drafts(self, now: Instant, events: Sequence[EventData]) -> tuple[Draft, ...]:
        return tuple(make_drafts(self.worker.ids, now, self._redact(events)))

    def _draft_runs(self, now: Instant, children: Sequence[NewChild]) -> tuple[RunDraft, ...]:
        return tuple([RunDraft(child.origin, self._make_drafts(now, child.events)) for child in children])

    def _draft_messages(self, now: Instant, messages: Sequence[ChildMessage]) -> tuple[RunMessage, ...]:
        return tuple(
            [RunMessage(each.run_id, self._make_drafts(now, (each.event,))[0], each.key) for each in messages]
        )

    def _fold(self, delivered: Sequence[Event]) -> None:
        for event in delivered:
            if event.sequence > self._seen:
                fold(self.state, event.data, event.sequence, event.timestamp)
                self._seen = event.sequence
                self._folded += 1
        for condition, waiter in self._waiters:
            if not waiter.done() and condition(self.state):
                waiter.set_result(None)

    async def release_unfinished(self) -> None:
        """Release the run unfinished and due at once, with all that was recorded. A delivery that is not committed
        yet goes to the journal instead, and what follows from it is decided again."""
        if not self._released:
            self._released = True
            async with self._committing:  # a commit in progress comes first and includes its own facts
                facts, self._facts = tuple(self._facts), []
                if self._receipt is not None:
                    self._receipt.resolve(None)
                    self._receipt, facts = None, ()
                release = Release(wake_at=self.worker.clock.now())
                await self.worker.journal.advance(
                    Advance(
                        run_id=self.origin.run_id,
                        epoch=self.epoch,
                        seen=ANY,
                        facts=facts,
                        intents=(),
                        release=release,
                    )
                )


def _consume_error(task: "asyncio.Task[bool]") -> None:
    """Retrieve an error that no caller waits for any more. The next commit fails with it too."""
    if not task.cancelled():
        task.exception()


async def _claim(run_id: RunId, worker: Worker) -> Claim:
    """Claim the run. If the caller is cancelled meanwhile, release it again."""
    claim_task = asyncio.ensure_future(worker.journal.claim(run_id, worker.name))
    try:
        return await asyncio.shield(claim_task)
    except asyncio.CancelledError:
        with suppress(NotClaimable, Fenced):
            claim = await claim_task
            due = Release(wake_at=worker.clock.now())
            await worker.journal.advance(Advance(run_id, claim.epoch, ANY, release=due))
        raise


async def _load_transcript(claim: Claim, worker: Worker) -> CachedTranscript | None:
    """Return the session's transcript before this run, from the cache or from the journal, or None for its first
    run."""
    last, origin = claim.session.last, claim.origin
    if last is None:
        return None
    cached = worker.transcripts.take(origin.session_id, last)
    return cached or CachedTranscript(make_transcript(await worker.journal.history(origin.run_id)), TokenCount())


@asynccontextmanager
async def claim_run(run_id: RunId, worker: Worker) -> AsyncGenerator[OwnedRun, None]:
    """Claim a run, fenced by its epoch. Raise NotClaimable if it cannot be claimed.

    A worker that is fenced leaves quietly: another worker owns the run."""
    claim = await _claim(run_id, worker)
    try:
        run = OwnedRun(claim, worker, await _load_transcript(claim, worker))
    except BaseException as fault:  # another version may be able to fold the journal
        pause = RETRY_AFTER_FAULT_SECONDS if isinstance(fault, Exception) else 0.0
        release = Release(wake_at=worker.clock.now() + pause)
        with suppress(Fenced):
            await worker.journal.advance(Advance(run_id, claim.epoch, ANY, release=release))
        raise
    worker.hub.notify_claimed(claim.events)
    try:
        try:
            yield run
        finally:
            await run.release_unfinished()
    except Fenced:
        run.show_live(RunFenced(run.epoch), run.state.sequence)
    finally:
        worker.hub.remove_owner(run_id, run.on_delivery)
