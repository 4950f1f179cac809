"""Retention: deleting one session, and pruning sessions that have been idle for long."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from treadle.domain.errors import Unknown
from treadle.domain.ids import RunId, SessionId
from treadle.ports.clock import Clock
from treadle.ports.deletion import Deletions, IdleSession, Tombstone
from treadle.ports.journal import Runs

if TYPE_CHECKING:
    from treadle.ports.file_versions import FileVersions

SESSIONS_AT_ONCE = 50
EVENTS_AT_ONCE = 20_000
"""How much is deleted in one transaction, so that runs in progress do not wait long for theirs."""
REQUESTS_KEPT_SECONDS = 86_400.0
"""How long the response to a request with an idempotency key is stored."""


Keep = Callable[[Sequence[SessionId]], Awaitable[None]]
"""Called with sessions that are about to be deleted, to archive them."""


async def keep_nothing(session_ids: Sequence[SessionId]) -> None:
    """Archive nothing."""


async def _sweep_nothing() -> None:
    """Delete no versions of files."""


def make_file_sweep(files: "Callable[[], FileVersions]", runs: Runs) -> Callable[[], Awaitable[None]]:
    """Return what deletes the versions of files that only deleted runs have."""

    async def exists(run_id: RunId) -> bool:
        try:
            await runs.record(run_id)
        except Unknown:
            return False
        return True

    return lambda: files().sweep(exists)


class Deleted(Struct, frozen=True):
    """What was deleted, and where parts of its text may remain."""

    tombstones: tuple[Tombstone, ...]
    recalled_in: tuple[SessionId, ...] = ()
    """Other sessions in which memories of it were recalled. Their journals contain the text."""


class Pruned(Struct, frozen=True):
    sessions: int = 0
    runs: int = 0
    events: int = 0
    memories: int = 0
    requests: int = 0
    """Stored responses that were deleted."""


class RetentionService:
    """Deletes sessions permanently, in the process that owns the database."""

    def __init__(
        self,
        deletions: Deletions,
        clock: Clock,
        keep: Keep = keep_nothing,
        sweep_files: Callable[[], Awaitable[None]] = _sweep_nothing,
    ) -> None:
        self._deletions = deletions
        self._clock = clock
        self._keep = keep
        self._sweep_files = sweep_files
        """Deletes the versions of files that only deleted runs have."""

    async def delete_session(self, session_id: SessionId, by: str) -> Deleted:
        """Delete a session and everything that came from it. A tombstone without content remains."""
        recalled = await self._deletions.find_recalling_sessions(session_id)
        buried = await self._deletions.delete(session_id, by)
        await self._deletions.clear(self._clock.now() - REQUESTS_KEPT_SECONDS)
        await self._sweep_files()
        gone = {tombstone.session_id for tombstone in buried}
        return Deleted(tuple(buried), tuple(other for other in recalled if other not in gone))

    async def idle(self, older_than: float, agent: str | None = None) -> Sequence[IdleSession]:
        """Return the sessions that `prune` would delete, oldest first."""
        return await self._deletions.idle(self._clock.now() - older_than, agent)

    async def prune(
        self,
        older_than: float,
        agent: str | None,
        by: str,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Pruned:
        """Delete sessions whose runs have ended and that had no event for this many seconds.

        Sessions are archived and deleted in batches. If it is interrupted, the deleted batches stay deleted, and
        the next call continues."""
        before = self._clock.now() - older_than
        sessions = await self._deletions.idle(before, agent)
        buried: list[Tombstone] = []
        for part in _parts(sessions):
            progress(len(buried), len(sessions))
            await self._keep(part)
            buried += await self._deletions.prune(part, before, by)
        requests = await self._deletions.clear(self._clock.now() - REQUESTS_KEPT_SECONDS)
        await self._sweep_files()
        return Pruned(
            len(buried),
            sum(tombstone.runs for tombstone in buried),
            sum(tombstone.events for tombstone in buried),
            sum(tombstone.memories for tombstone in buried),
            requests,
        )


def _parts(sessions: Sequence[IdleSession]) -> Iterator[list[SessionId]]:
    part: list[SessionId] = []
    events = 0
    for session in sessions:
        if part and (len(part) >= SESSIONS_AT_ONCE or events + session.events > EVENTS_AT_ONCE):
            yield part
            part, events = [], 0
        part.append(session.session_id)
        events += session.events
    if part:
        yield part
