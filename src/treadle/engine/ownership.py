"""Owning a run: the fold of its journal, what is staged for the next commit, and the wish of others to stop it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from treadle.core.fold import fold, fold_all
from treadle.core.state import RunState, fresh
from treadle.domain.envelope import Draft, Event, draft
from treadle.domain.errors import Fenced
from treadle.domain.events import EventData, RunFenced
from treadle.domain.identity import Instant, RunId
from treadle.engine.deps import Deps
from treadle.ports.clock import event_id
from treadle.ports.journal import ANY, Advance, Claim, Release

Wish = Callable[[RunState], bool]
"""Whether what others have asked for means that the work under way must stop."""


class Log:
    """The owner's hold on a run. `state` is always the fold of everything it knows to have happened."""

    def __init__(self, claim: Claim, deps: Deps) -> None:
        self.origin = claim.origin
        self.recovering = claim.recovering
        self.epoch = claim.epoch
        self.state = fold_all(fresh(claim.origin, claim.history), claim.events)
        self._deps = deps
        self._seen = claim.events[-1].sequence if claim.events else 0
        self._facts: list[Draft] = []
        self._released = False
        self._committing = asyncio.Lock()
        self._delivered = False
        self._change: asyncio.Future[None] | None = None
        deps.hub.on_delivery(claim.origin.run_id, self._on_delivery)

    def record(self, *facts: EventData) -> None:
        """What has happened. It is folded now and committed with whatever is committed next."""
        now = self._deps.clock.now()
        for data in facts:
            self._facts.append(self._draft(data, now))
            fold(self.state, data, self.state.sequence + 1, now)

    async def intend(self, *intents: EventData) -> bool:
        """What is about to happen, committed before it does. False when something was delivered meanwhile: it is
        folded now, and the owner must decide again."""
        return await self._commit(intents)

    async def flush(self) -> None:
        """Commit what was recorded, now."""
        if self._facts:
            await self._commit(())

    async def release(self, release: Release, *intents: EventData) -> bool:
        """Let go of the run with these last events. False, as for `intend`, when something was delivered."""
        self._released = await self._commit(intents, release)
        return self._released

    def live(self, data: EventData, sequence: int) -> None:
        self._deps.hub.live(self.origin, sequence, data)

    async def unless(self, wish: Wish, work: Coroutine[Any, Any, None], until: Instant | None = None) -> bool:
        """Do the work, unless a delivery makes the wish come true or the time comes first; whether it was done.

        Work that was not done has been cancelled, and has ended, when this returns."""
        task = asyncio.ensure_future(work)
        task.add_done_callback(self._on_change)
        try:
            while not task.done():
                if wish(self.state) or not await self._next_change(until):
                    return False
            task.result()
            return True
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))
            if not task.cancelled():
                task.exception()  # whoever stopped the work does not care how it ended

    async def _next_change(self, until: Instant | None) -> bool:
        """Wait until the work ends or something is delivered, and fold that. False when the time has come."""
        loop = asyncio.get_running_loop()
        self._change = loop.create_future()
        timer = None
        if until is not None:
            timer = loop.call_later(max(0.0, until - self._deps.clock.now()), self._on_change)
        try:
            if not self._delivered:
                await self._change
        finally:
            self._change = None
            if timer is not None:
                timer.cancel()
        if self._delivered:
            self._delivered = False
            async with self._committing:
                self._fold(await self._deps.journal.read(self.origin.run_id, after=self._seen))
        return until is None or self._deps.clock.now() < until

    def _on_delivery(self) -> None:
        self._delivered = True
        self._on_change()

    def _on_change(self, _: object = None) -> None:
        if self._change is not None and not self._change.done():
            self._change.set_result(None)

    async def _commit(self, data: Sequence[EventData], release: Release | None = None) -> bool:
        async with self._committing:  # calls that end side by side must not overtake each other
            now = self._deps.clock.now()
            intents = tuple(self._draft(item, now) for item in data)
            facts, self._facts = tuple(self._facts), []
            advanced = await self._deps.journal.advance(
                Advance(self.origin.run_id, self.epoch, self._seen, facts, intents, release)
            )
            self._fold(advanced.delivered)
            if advanced.accepted:
                first = advanced.sequence - len(intents) + 1
                for offset, made in enumerate(intents):
                    fold(self.state, made.data, first + offset, now)
            self._seen = self.state.sequence = advanced.sequence
            return advanced.accepted

    def _fold(self, delivered: Sequence[Event]) -> None:
        for event in delivered:
            if event.sequence > self._seen:
                fold(self.state, event.data, event.sequence, event.timestamp)
                self._seen = event.sequence

    async def let_go(self) -> None:
        """Give the run back, unfinished and due at once, with all that was recorded."""
        if not self._released:
            self._released = True
            await self._deps.journal.advance(
                Advance(
                    self.origin.run_id,
                    self.epoch,
                    ANY,
                    tuple(self._facts),
                    release=Release(wake_at=self._deps.clock.now()),
                )
            )

    def _draft(self, data: EventData, now: Instant) -> Draft:
        return draft(event_id(self._deps.ids), now, data)


@asynccontextmanager
async def own(run_id: RunId, deps: Deps) -> AsyncGenerator[Log, None]:
    """Hold a run, fenced by its epoch. Raises NotClaimable when it is not to be had.

    A worker that finds itself fenced leaves quietly: the run is in other hands."""
    log = Log(await deps.journal.claim(run_id, deps.worker), deps)
    try:
        try:
            yield log
        finally:
            await log.let_go()
    except Fenced:
        log.live(RunFenced(log.epoch), log.state.sequence)
    finally:
        deps.hub.let_go(run_id)
