"""The mode of a session: changed for its next runs, and delivered to its runs in progress, which pass it on to
their child runs."""

from collections.abc import Awaitable, Callable

from treadle.domain.errors import InvalidState
from treadle.domain.events import ModeChanged
from treadle.domain.ids import SessionId
from treadle.domain.modes import ApprovalMode
from treadle.operations.event_factory import DraftFactory
from treadle.operations.journal_pages import read_queued
from treadle.operations.not_found import unknown_session
from treadle.ports.journal import Journal, Runs
from treadle.ports.sessions import SessionCatalog

SandboxCheck = Callable[[], Awaitable[str]]
"""Returns why this machine cannot confine commands, and what to do; empty if it can."""


class ModeService:
    def __init__(
        self,
        journal: Journal,
        runs: Runs,
        sessions: SessionCatalog,
        drafts: DraftFactory,
        explain_missing_sandbox: SandboxCheck,
    ) -> None:
        self._journal = journal
        self._runs = runs
        self._sessions = sessions
        self._drafts = drafts
        self._explain_missing_sandbox = explain_missing_sandbox

    async def change(self, session_id: SessionId, mode: ApprovalMode | None, by: str) -> None:
        """Change the mode of a session, from the next tool call of its runs in progress on. Callers check that it
        may be widened."""
        known = await self._sessions.basics(session_id)
        if known is None:
            raise unknown_session(session_id)
        unfinished = await self._runs.list_unfinished(session_id)
        if any(run.origin.parent_run_id is not None for run in unfinished):
            raise InvalidState(
                f"{session_id} belongs to a sub-agent and has the mode of the session above it. Change the mode "
                "there."
            )
        if mode == "auto":
            latest = await read_queued(known.latest_run, self._journal)
            await self.check_auto(latest.agent.name, is_confined=latest.agent.confinement.mode != "off")
        await self._sessions.set_mode(session_id, mode)
        for run in await self._runs.list_unfinished(session_id):  # also those that were queued meanwhile
            draft = self._drafts.make(ModeChanged(mode, by))
            await self._journal.deliver(run.origin.run_id, draft, draft.event_id)

    async def check_auto(self, agent: str, *, is_confined: bool) -> None:
        """Raise InvalidState if commands would run without a sandbox: the mode auto relies on it."""
        if not is_confined:
            raise InvalidState(
                f"The mode auto needs a sandbox, and agent `{agent}` runs commands without one (`sandbox: off`). "
                "Remove that from its file, or choose the mode accept_edits."
            )
        if reason := await self._explain_missing_sandbox():
            raise InvalidState(
                f"The mode auto needs a sandbox, and this machine has none: {reason}. Then choose it again, or "
                "choose the mode accept_edits."
            )
