"""Conversations of sessions that went on here a moment ago, kept in memory from one run to the next: the next run
need not read and encode anew what was said before it. What is not here is read from the journal."""

from collections import OrderedDict

from msgspec import Struct

from treadle.core.context.tokens import CHARACTERS_PER_TOKEN, TokenCount
from treadle.core.context.transcript import Transcript
from treadle.domain.ids import RunId, SessionId

MAX_SESSIONS = 64
MAX_CHARACTERS = 32_000_000
"""Of all conversations together. Their bytes are kept beside them: it may be three times that."""


class CachedTranscript(Struct, frozen=True):
    """What a session has said, and what is known of its size."""

    transcript: Transcript
    tokens: TokenCount
    counted_by: tuple[str, str] | None = None

    @property
    def characters(self) -> int:
        """About how much it holds."""
        return self.transcript.tokens * CHARACTERS_PER_TOKEN + self.transcript.pictures


class TranscriptCache:
    """The latest of each session, by the run that ended it. Whoever takes one has it for good: it grows."""

    def __init__(self) -> None:
        self._kept: OrderedDict[SessionId, tuple[RunId, CachedTranscript]] = OrderedDict()
        self._characters = 0

    def keep(self, session_id: SessionId, run_id: RunId, said: CachedTranscript) -> None:
        """What the session has said, up to and with this run, which has ended."""
        self._drop(session_id)
        self._kept[session_id] = (run_id, said)
        self._characters += said.characters
        while self._kept and (len(self._kept) > MAX_SESSIONS or self._characters > MAX_CHARACTERS):
            self._drop(next(iter(self._kept)))

    def take(self, session_id: SessionId, last: RunId) -> CachedTranscript | None:
        """The conversation, if it is the one that this run has ended."""
        found = self._kept.get(session_id)
        self._drop(session_id)
        return found[1] if found is not None and found[0] == last else None

    def _drop(self, session_id: SessionId) -> None:
        found = self._kept.pop(session_id, None)
        if found is not None:
            self._characters -= found[1].characters
