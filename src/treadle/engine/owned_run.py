"""Owning a run: the fold of its journal, what is staged for the next commit, and the wish of others to stop it."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from typing import Any

from msgspec import Struct

from treadle.core.context.tokens import TokenCount
from treadle.core.context.transcript import Transcript, transcribed
from treadle.core.fold import fold, fold_all
from treadle.core.guards.quota import warning
from treadle.core.state import RunState, beginning, joined
from treadle.domain.envelope import Draft, Event, Origin, drafts
from treadle.domain.errors import Fenced, NotClaimable, UsageError
from treadle.domain.events import EventData, RunFenced
from treadle.domain.ids import Instant, RunId
from treadle.engine.deps import EngineDeps
from treadle.engine.interruption import Interruption
from treadle.engine.redaction import NEVER_SECRET, redact_event
from treadle.engine.transcript_cache import CachedTranscript
from treadle.ports.accounts import Reserve, Short
from treadle.ports.journal import ANY, Advance, Claim, NewRun, Release, Tell

logger = logging.getLogger(__name__)

RETRY_AFTER_FAULT_SECONDS = 60.0
"""Seconds before a run is looked at again whose journal could not be folded."""

StopCondition = Callable[[RunState], bool]
"""Whether what others have asked for means that the work under way must stop."""


class NewChild(Struct, frozen=True):
    """A run under this one, as it is begun."""

    origin: Origin
    events: tuple[EventData, ...]


class ChildMessage(Struct, frozen=True):
    """What another run is told, once for a key."""

    run_id: RunId
    event: EventData
    key: str


class OwnedRun:
    """The owner's hold on a run. `state` is always the fold of everything it knows to have happened."""

    def __init__(self, claim: Claim, deps: EngineDeps, said: CachedTranscript | None = None) -> None:
        self.origin = claim.origin
        self.death = claim.death
        self.epoch = claim.epoch
        began = beginning(claim.origin, said.transcript if said else Transcript(), claim.session)
        if said is not None:
            began.tokens, began.counted_by = said.tokens, said.counted_by
        self.state = fold_all(began, claim.events)
        self._deps = deps
        self.refused: Short | None = None
        """The account that stood in the way of the latest intent."""
        self._seen = claim.events[-1].sequence if claim.events else 0
        self._facts: list[Draft] = []
        self._released = False
        self._folded = 0
        """How many deliveries were folded: what a decision was made with."""
        self._committing = asyncio.Lock()
        self._under_way: tuple[StopCondition, Interruption] | None = None
        self._delivered = False
        self._listening: asyncio.Task[None] | None = None
        deps.hub.on_delivery(claim.origin.run_id, self.on_delivery)

    def record(self, *happened: EventData) -> None:
        """What has happened. It is folded now and committed with whatever is committed next."""
        now, state = self._deps.clock.now(), self.state
        facts = self._without_secrets(happened)
        self._facts += drafts(self._deps.ids, now, facts)
        for data in facts:
            fold(state, data, state.sequence + 1, now)

    def state_after(self, *events: EventData) -> RunState:
        """What the state would be with these events, which may never come to be."""
        if not events:
            return self.state
        state = deepcopy(self.state)
        for data in events:
            fold(state, data, state.sequence + 1, self._deps.clock.now())
        return state

    def _without_secrets(self, events: Sequence[EventData]) -> Sequence[EventData]:
        for data in events:
            if type(data) not in NEVER_SECRET:
                redactor = self._deps.vault.redactor
                return events if redactor.is_idle else [redact_event(each, redactor) for each in events]
        return events

    async def intend(
        self,
        *intents: EventData,
        reserve: Reserve | None = None,
        begin: Sequence[NewChild] = (),
        tell: Sequence[ChildMessage] = (),
    ) -> bool:
        """What is about to happen, committed before it does, with what it may use, the runs that it begins and what
        others are told of it. False when something was delivered meanwhile, which is folded now, or when an account
        does not have that much: `refused` tells. The owner must decide again."""
        return await self._commit(intents, None, reserve, begin, tell)

    async def flush(self) -> None:
        """Commit what was recorded, now. A caller that is cancelled meanwhile changes nothing about it."""
        if self._facts:
            committing = asyncio.ensure_future(self._commit(()))
            committing.add_done_callback(_consume_error)
            await asyncio.shield(committing)

    async def release(self, release: Release, *intents: EventData, tell: Sequence[ChildMessage] = ()) -> bool:
        """Let go of the run with these last events. False, as for `intend`, when something was delivered."""
        self._released = await self._commit(intents, release, tell=tell)
        if self._released and release.said is not None and (release.said or not self.state.said):
            self._hand_on(self.state)  # unless what it has said is left out of the conversation
        return self._released

    def _hand_on(self, state: RunState) -> None:
        """Keep the conversation for the next run of the session. One that was cancelled before its turn came has
        not seen all of it."""
        if state.started:
            if state.inbox:
                state.transcript.add(joined(state.inbox))
            state.transcript.close()
            said = CachedTranscript(state.transcript, state.tokens, state.counted_by)
            self._deps.conversations.keep(self.origin.session_id, self.origin.run_id, said)

    def live(self, data: EventData, sequence: int) -> None:
        self._deps.hub.live(self.origin, sequence, data)

    async def unless(
        self, wish: StopCondition, work: Coroutine[Any, Any, None], until: Instant | None = None
    ) -> bool:
        """Do the work, unless a delivery makes the wish come true or the time comes first; whether it was done.

        Work that was not done has been cancelled, and has ended, when this returns. The work runs in the caller's
        own task, as under `asyncio.timeout`: nothing more is started unless something is delivered."""
        if wish(self.state):
            work.close()
            return False
        left = None if until is None else lambda: until - self._deps.clock.now()
        interruption = Interruption(self._deps.timers, left)
        self._under_way = (wish, interruption)
        if self._delivered:
            self._listen()
        try:
            await work
        except asyncio.CancelledError:
            if interruption.take_back():
                return False
            raise
        else:
            return True
        finally:
            self._under_way = None
            interruption.over()

    def on_delivery(self) -> None:
        """Something was delivered. If work is under way, fold it and see whether the work must stop."""
        self._delivered = True
        if self._under_way is not None:
            self._listen()

    def _listen(self) -> None:
        if self._listening is None:
            self._listening = asyncio.ensure_future(self._fold_deliveries())
            self._listening.add_done_callback(self._listened)

    async def _fold_deliveries(self) -> None:
        while self._delivered:
            async with self._committing:
                self._delivered = False
                delivered = await self._deps.journal.read(self.origin.run_id, after=self._seen)
                if (
                    self._under_way is None
                ):  # the owner is deciding; what it has not seen, its next commit will find
                    return
                self._fold(delivered)
                wish, interruption = self._under_way
                if wish(self.state):
                    interruption.interrupt()

    def _listened(self, task: "asyncio.Task[None]") -> None:
        self._listening = None
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("run %s: a delivery could not be read: %s", self.origin.run_id, error)
        elif self._delivered and self._under_way is not None:  # it came when all before it had been read
            self._listen()

    async def _commit(
        self,
        data: Sequence[EventData],
        release: Release | None = None,
        reserve: Reserve | None = None,
        begin: Sequence[NewChild] = (),
        tell: Sequence[ChildMessage] = (),
    ) -> bool:
        known, self.refused = self._folded, None
        await self._committing.acquire()  # calls that end side by side must not overtake each other
        try:
            if self._folded != known and (data or release is not None):
                return False  # a delivery was folded while this waited for its turn: decide again
            if not (data or self._facts or release is not None):
                return True  # somebody else's commit took it along
            now = self._deps.clock.now()
            intents = self._drafts(now, data) if data else ()
            facts, self._facts = tuple(self._facts), []
            runs = tuple([NewRun(child.origin, self._drafts(now, child.events)) for child in begin])
            told = tuple([Tell(each.run_id, self._drafts(now, (each.event,))[0], each.key) for each in tell])
            wanted = Advance(
                self.origin.run_id, self.epoch, self._seen, facts, intents, release, reserve, runs, told
            )
            try:
                advanced = await self._deps.journal.advance(wanted)
            except UsageError:  # nothing was written, and what has happened has
                self._facts[:0] = facts
                raise
            if advanced.delivered:
                self._fold(advanced.delivered)
            if advanced.accepted:
                first = advanced.sequence - len(intents) + 1
                for offset, made in enumerate(intents):
                    fold(self.state, made.data, first + offset, now)
            self._seen = self.state.sequence = advanced.sequence
            self.refused = advanced.refused
            if advanced.near:
                self.record(*map(warning, advanced.near))
            return advanced.accepted
        finally:
            self._committing.release()

    def _drafts(self, now: Instant, events: Sequence[EventData]) -> tuple[Draft, ...]:
        return tuple(drafts(self._deps.ids, now, self._without_secrets(events)))

    def _fold(self, delivered: Sequence[Event]) -> None:
        for event in delivered:
            if event.sequence > self._seen:
                fold(self.state, event.data, event.sequence, event.timestamp)
                self._seen = event.sequence
                self._folded += 1

    async def let_go(self) -> None:
        """Give the run back, unfinished and due at once, with all that was recorded."""
        if not self._released:
            self._released = True
            async with self._committing:  # a commit on its way comes first, and takes its own facts with it
                facts, self._facts = tuple(self._facts), []
                release = Release(wake_at=self._deps.clock.now())
                await self._deps.journal.advance(Advance(self.origin.run_id, self.epoch, ANY, facts, (), release))


def _consume_error(task: "asyncio.Task[bool]") -> None:
    """Take note of an error that nobody waits for any more: the next commit meets it too."""
    if not task.cancelled():
        task.exception()


async def _claim(run_id: RunId, deps: EngineDeps) -> Claim:
    """Claim the run. A caller that is cancelled meanwhile leaves it as it was, and not in the hands of nobody."""
    claiming = asyncio.ensure_future(deps.journal.claim(run_id, deps.worker))
    try:
        return await asyncio.shield(claiming)
    except asyncio.CancelledError:
        with suppress(NotClaimable, Fenced):
            claim = await claiming
            due = Release(wake_at=deps.clock.now())
            await deps.journal.advance(Advance(run_id, claim.epoch, ANY, release=due))
        raise


async def _load_transcript(claim: Claim, deps: EngineDeps) -> CachedTranscript | None:
    """The conversation that the run goes on with: as the run before left it here, or from the journal."""
    last, origin = claim.session.last, claim.origin
    if last is None:
        return None
    kept = deps.conversations.take(origin.session_id, last)
    return kept or CachedTranscript(transcribed(await deps.journal.history(origin.run_id)), TokenCount())


@asynccontextmanager
async def claim_run(run_id: RunId, deps: EngineDeps) -> AsyncGenerator[OwnedRun, None]:
    """Hold a run, fenced by its epoch. Raises NotClaimable when it is not to be had.

    A worker that finds itself fenced leaves quietly: the run is in other hands."""
    claim = await _claim(run_id, deps)
    try:
        log = OwnedRun(claim, deps, await _load_transcript(claim, deps))
    except BaseException as fault:  # a journal that cannot be folded is left for a version that can
        pause = RETRY_AFTER_FAULT_SECONDS if isinstance(fault, Exception) else 0.0
        later = Release(wake_at=deps.clock.now() + pause)
        with suppress(Fenced):
            await deps.journal.advance(Advance(run_id, claim.epoch, ANY, release=later))
        raise
    deps.hub.taken(claim.events)
    try:
        try:
            yield log
        finally:
            await log.let_go()
    except Fenced:
        log.live(RunFenced(log.epoch), log.state.sequence)
    finally:
        deps.hub.let_go(run_id, log.on_delivery)
