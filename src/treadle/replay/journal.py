"""The journal that a run is written into again: it takes what was recorded, and stops at the first that was not."""

from collections.abc import Sequence

from msgspec import Struct

from treadle.domain import events as e
from treadle.domain.envelope import Draft, Event, Origin
from treadle.domain.errors import Fenced, NotClaimable
from treadle.domain.events import SegmentOpened
from treadle.domain.ids import Instant, RunId
from treadle.domain.messages import Message
from treadle.engine.loop import WORKER_DIED
from treadle.ports.accounts import AccountShortage, Reserve
from treadle.ports.journal import Advance, Advanced, Claim, Death, SessionFacts
from treadle.replay.comparison import Difference, differences
from treadle.replay.recorded_children import refused_by_the_tree
from treadle.replay.script import Script
from treadle.replay.sentence_facts import short_of

BEFORE = RunId("run_before")
"""Stands for the run before in the session."""


def _is_failure_of_the_engine(data: e.EventData) -> bool:
    return isinstance(data, e.RunRecovered) and data.reason != WORKER_DIED


class Mismatch(Struct, frozen=True):
    """What would be written where something else was."""

    position: int
    """How many events stand before it."""
    made: Draft
    differences: tuple[Difference, ...]


class RecordedJournal:
    """Implements `ports.journal.Journal` over a script."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._epoch = 0
        self.dead = False
        """Whoever owns the run has died, as the script has it."""
        self.known: int | None = None
        """How many deliveries whoever claims the run knows of; None: all that stand there."""
        self.mismatch: Mismatch | None = None
        self.is_over = False
        """More would be written than was recorded."""

    # ── What an owner does ──

    async def claim(self, run_id: RunId, worker: str) -> Claim:
        script = self._script
        script.deliveries(self.known)
        while (found := script.next()) and _is_failure_of_the_engine(found.data):
            script.commit()  # the engine failed, which a later one need not
            script.deliveries(self.known)
            script.settle()
        if script.is_over:
            raise NotClaimable("There is nothing more on record.")
        self._epoch += 1
        self.dead, self.mismatch = False, None
        script.settle()
        following = script.events[script.committed].data
        recovered = isinstance(following, e.RunRecovered)
        death = Death(following.alone, following.deaths_lately) if recovered else None
        events = script.events[: script.committed]
        return Claim(script.recorded.origin, self._epoch, events, death, self._session())

    def _session(self) -> SessionFacts:
        recorded = self._script.recorded
        segment, at = None, 0.0
        if recorded.segments:
            last = recorded.segments[-1]
            segment = SegmentOpened(last.segment_id, last.parent, last.reason, last.messages)
            at = last.opened_at
        return SessionFacts(segment, at, None, BEFORE)

    async def advance(self, advance: Advance) -> Advanced:
        self._must_live(advance.epoch)
        script = self._script
        delivered: list[Event] = []
        for made in advance.facts:
            delivered += script.deliveries()
            self._write(made)
        if advance.intents or advance.release is not None:
            delivered += script.deliveries()
        refused: AccountShortage | None = None
        accepted = not delivered
        if accepted and advance.reserve is not None and advance.intents:
            refused = self._refused(advance.reserve)
            accepted = refused is None
        if accepted:
            for made in advance.intents:
                self._write(made)
        script.settle()
        near = self._near() if accepted and advance.reserve is not None else ()
        return Advanced(accepted, tuple(delivered), script.committed, refused, near)

    def _must_live(self, epoch: int) -> None:
        if self.dead or epoch != self._epoch:
            raise Fenced("The script goes on without this owner.")

    def _write(self, made: Draft) -> None:
        """Let an event be written that was recorded; else stop here."""
        script = self._script
        if script.is_over:
            self.dead = self.is_over = True
            raise Fenced("There is nothing more on record.")
        event = script.events[script.committed]
        found = differences(event, self._since(event), made)
        if found:
            self.dead = True
            self.mismatch = Mismatch(script.committed, made, found)
            raise Fenced("Something else was recorded.")
        script.commit()

    def _since(self, event: Event) -> Instant:
        """When something last happened before an event: no earlier was the clock read for it."""
        at = event.sequence - 2
        while at > 0 and self._script.events[at].timestamp == event.timestamp:
            at -= 1
        return self._script.events[max(0, at)].timestamp

    def _refused(self, reserve: Reserve) -> AccountShortage | None:
        """The account that was in the way, where the script has it that one was."""
        script = self._script
        if script.is_over:
            return None
        if (short := refused_by_the_tree(script, reserve)) is not None:
            return short
        event = script.events[script.committed]
        match event.data:
            case e.RunWaiting("quota" | "budget") as wait:
                return short_of(wait, reserve)
            case e.BudgetExhausted(account, ceiling, used, wanted):
                return AccountShortage(account, "cost", ceiling, used, 0.0, self._unpriced() or wanted)
            case e.QuotaExceeded(account, kind, ceiling, used, wanted, resets_at):
                return AccountShortage(account, kind, ceiling, used, 0.0, self._unpriced() or wanted, resets_at)
            case _:
                return None

    def _unpriced(self) -> float:
        """Infinity, where the end says that no price was known."""
        for data in self._script.upcoming():
            if isinstance(data, e.RunEnd):
                return float("inf") if "no price is known" in data.reason else 0.0
        return 0.0

    def _near(self) -> tuple[AccountShortage, ...]:
        found: list[AccountShortage] = []
        for data in self._script.upcoming():
            if not isinstance(data, e.QuotaWarning):
                break
            found.append(
                AccountShortage(data.account, data.kind, data.ceiling, data.used, resets_at=data.resets_at)
            )
        return tuple(found)

    # ── What others read ──

    async def history(self, run_id: RunId) -> Sequence[Message]:
        recorded = self._script.recorded
        return recorded.history if run_id == recorded.origin.run_id else recorded.others[run_id].history

    async def read(self, run_id: RunId, after: int = 0, limit: int = 1000) -> Sequence[Event]:
        recorded = self._script.recorded
        if run_id != recorded.origin.run_id:
            return recorded.others[run_id].events[after : after + limit]
        return self._script.events[after : self._script.committed]

    async def submit(self, origin: Origin, events: Sequence[Draft], key: str | None = None) -> RunId:
        raise AssertionError("a replay begins no runs")

    async def deliver(self, run_id: RunId, event: Draft, key: str) -> int | None:
        raise AssertionError("to a replay nothing is delivered but what was")
