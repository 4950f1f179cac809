"""Writes the events of sessions to an archive before they are deleted."""

from collections.abc import Sequence
from contextlib import suppress

from treadle.domain.errors import Unknown
from treadle.domain.events import RunForked, UserMessage
from treadle.domain.ids import RunId, SessionId
from treadle.operations.runs import FIRST_EVENTS
from treadle.ports.deletion import DeletionArchive
from treadle.ports.journal import Journal, RunRecord
from treadle.ports.sessions import Sessions, make_title


class SessionArchiver:
    """Writes all events of sessions, in the order of their runs. Results that were too long for an event, and
    memories, are not included."""

    def __init__(self, sessions: Sessions, journal: Journal, past: DeletionArchive) -> None:
        self._sessions = sessions
        self._journal = journal
        self._past = past

    async def keep(self, session_ids: Sequence[SessionId]) -> None:
        """Archive these sessions. Everything is durable when this returns."""
        for session_id in session_ids:
            with suppress(Unknown):  # it was deleted in the meantime
                runs = await self._sessions.runs(session_id)
                await self._keep_title(session_id, runs)
                for run in runs:
                    await self._keep_run(run.origin.run_id)
        self._past.settle()

    async def _keep_title(self, session_id: SessionId, runs: Sequence[RunRecord]) -> None:
        """Write the title of a session, unless it is the one that its first message gives it."""
        record = await self._sessions.find(session_id)
        if record is None or not runs:
            return
        first = [event.data for event in await self._journal.read(runs[0].origin.run_id, 0, FIRST_EVENTS)]
        asked = [data.asked for data in first if isinstance(data, RunForked)]
        said = [data.message.text for data in first if isinstance(data, UserMessage)]
        if record.title != make_title((said or asked or [""])[0]):
            self._past.add_title(session_id, record.title)

    async def _keep_run(self, run_id: RunId) -> None:
        after = 0
        while events := await self._journal.read(run_id, after):
            self._past.add(events)
            after = events[-1].sequence
