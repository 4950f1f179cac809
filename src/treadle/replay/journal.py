"""The journal of a replay. It accepts the events that were recorded, and rejects the first one that differs."""

from collections.abc import Sequence

from msgspec import Struct

from treadle.domain import events as e
from treadle.domain.envelope import Draft, Event, Origin
from treadle.domain.errors import Fenced, NotClaimable
from treadle.domain.events import SegmentOpened
from treadle.domain.ids import RunId
from treadle.domain.messages import Message
from treadle.domain.quotas import Shortage
from treadle.ports.accounts import Reserve
from treadle.ports.journal import ANY, Advance, Advanced, Claim, Death, SessionFacts
from treadle.replay.comparison import Difference, compare
from treadle.replay.recorded_children import find_tree_shortage
from treadle.replay.recording import is_delivery
from treadle.replay.script import Script

PREVIOUS_RUN = RunId("run_before")
"""Stands for the previous run of the session."""


def _is_engine_failure(data: e.EventData) -> bool:
    return isinstance(data, e.RunRecovered) and data.cause == "engine_failed"


class Mismatch(Struct, frozen=True):
    """An event that the current code makes in the place of a recorded one."""

    position: int
    """Number of events before it."""
    made: Draft
    differences: tuple[Difference, ...]


def _guess_refusal(reason: str, reserve: Reserve) -> Shortage:
    """Return a refusal that makes the run wait. The journal does not say which account refused."""
    account = reserve.accounts[0]
    if reason == "quota":
        return Shortage(
            account=account.account,
            kind="calls",
            ceiling=account.calls or 0,
            used=0.0,
            reserved=0.0,
            wanted=reserve.calls,
        )
    return Shortage(account.account, "tokens", account.tokens or 0, 0.0, wanted=0.0)


class RecordedJournal:
    """Implements `ports.journal.Journal` over a script."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._epoch = 0
        self.dead = False
        """Whether the worker has died, according to the script."""
        self.known: int | None = None
        """Number of deliveries that the worker has read when it claims the run; None: all."""
        self.mismatch: Mismatch | None = None
        self.is_over = False
        """Whether the current code writes more events than were recorded."""

    # ── Calls of the worker ──

    async def claim(self, run_id: RunId, worker: str) -> Claim:
        script = self._script
        script.commit_deliveries(self.known)
        while (found := script.next()) and _is_engine_failure(found.data):
            script.commit()  # the current engine need not fail
            script.commit_deliveries(self.known)
            script.discard_drafts()
        if script.is_over:
            raise NotClaimable("No more events are recorded.")
        self._epoch += 1
        self.dead, self.mismatch = False, None
        script.discard_drafts()
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
        return SessionFacts(segment, at, None, PREVIOUS_RUN)

    async def advance(self, advance: Advance) -> Advanced:
        self._check_alive(advance.epoch)
        script = self._script
        delivered = [event for event in script.events[advance.seen : script.committed] if is_delivery(event.data)]
        for made in advance.facts:
            delivered += script.commit_deliveries()
            self._write(made)
        if advance.intents or advance.release is not None:
            delivered += script.commit_deliveries()
        refused: Shortage | None = None
        accepted = not delivered
        if accepted and advance.reserve is not None and advance.intents:
            refused = self._find_shortage(advance.reserve)
            accepted = refused is None
        if accepted:
            for made in advance.intents:
                self._write(made)
        script.discard_drafts()
        near = self._find_warnings() if accepted and advance.reserve is not None else ()
        return Advanced(accepted, tuple(delivered), script.committed, refused, near)

    def _check_alive(self, epoch: int) -> None:
        if self.dead or epoch != self._epoch:
            raise Fenced("According to the script, this worker has died.")

    def _write(self, made: Draft) -> None:
        """Commit an event that was recorded. Raise Fenced for any other."""
        script = self._script
        if script.is_over:
            self.dead = self.is_over = True
            raise Fenced("No more events are recorded.")
        event = script.events[script.committed]
        found = compare(event, script.find_time_before(event), made.data).facts
        if found:
            self.dead = True
            self.mismatch = Mismatch(script.committed, made, found)
            raise Fenced("Another event was recorded.")
        script.commit()

    def _find_shortage(self, reserve: Reserve) -> Shortage | None:
        """Return the account that refused the reservation, according to the script, or None."""
        script = self._script
        if script.is_over:
            return None
        if (tree := find_tree_shortage(script, reserve)) is not None:
            return tree
        event = script.events[script.committed]
        match event.data:
            case e.RunWaiting("quota" | "budget", shortage=Shortage() as short):
                return short
            case e.RunWaiting("quota" | "budget" as reason):
                return _guess_refusal(reason, reserve)
            case e.BudgetExhausted() | e.QuotaExceeded():
                return self._find_final_shortage(event.data)
            case e.RunWaiting("child"):
                return self._find_later_shortage()
            case _:
                return None

    def _find_later_shortage(self) -> Shortage | None:
        """Return the shortage that ends the run once the child runs have ended that it told to stop, or None."""
        for data in self._script.list_uncommitted():
            match data:
                case e.BudgetExhausted() | e.QuotaExceeded():
                    return self._find_final_shortage(data)
                case e.RunWaiting("child") | e.TrialStarted() | e.RunRecovered():
                    pass
                case _:
                    return None
        return None

    def _find_final_shortage(self, data: e.BudgetExhausted | e.QuotaExceeded) -> Shortage:
        """Return the shortage that ends the run, with what the end of the run records about it."""
        kind = data.kind if isinstance(data, e.QuotaExceeded) else "cost"
        resets_at = data.resets_at if isinstance(data, e.QuotaExceeded) else None
        wanted, reserved = None if data.unpriced else data.wanted, 0.0
        for following in self._script.list_uncommitted():
            if isinstance(following, e.RunEnd) and following.shortage is not None:
                reserved = following.shortage.reserved
        return Shortage(
            account=data.account,
            kind=kind,
            ceiling=data.ceiling,
            used=data.used,
            reserved=reserved,
            wanted=wanted,
            resets_at=resets_at,
        )

    def _find_warnings(self) -> tuple[Shortage, ...]:
        found: list[Shortage] = []
        for data in self._script.list_upcoming():
            if not isinstance(data, e.QuotaWarning):
                break
            found.append(
                Shortage(data.account, data.kind, data.ceiling, data.used, wanted=0.0, resets_at=data.resets_at)
            )
        return tuple(found)

    # ── Calls of readers ──

    async def history(self, run_id: RunId) -> Sequence[Message]:
        recorded = self._script.recorded
        return recorded.history if run_id == recorded.origin.run_id else recorded.others[run_id].history

    async def read(self, run_id: RunId, after: int = 0, limit: int = 1000) -> Sequence[Event]:
        recorded = self._script.recorded
        if run_id == PREVIOUS_RUN:
            return ()  # what the run took from it is part of its own events
        if run_id != recorded.origin.run_id:
            return recorded.others[run_id].events[after : after + limit]
        return self._script.events[after : self._script.committed]

    async def submit(self, origin: Origin, events: Sequence[Draft], key: str | None = None) -> RunId:
        raise AssertionError("a replay submits no runs")

    async def deliver(self, run_id: RunId, event: Draft, key: str, seen: int = ANY) -> int | None:
        raise AssertionError("only recorded events are delivered in a replay")
