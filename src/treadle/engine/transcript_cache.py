"""Transcripts of sessions whose last run ended in this process, so that the next run need not read and encode them
again. A transcript that is not here is read from the journal."""

from collections import OrderedDict

from msgspec import Struct

from treadle.core.context.tokens import CHARACTERS_PER_TOKEN, TokenCount
from treadle.core.context.transcript import Transcript
from treadle.domain.ids import RunId, SessionId

MAX_SESSIONS = 64
MAX_CHARACTERS = 32_000_000
"""Total size of all cached transcripts. Their encoded bytes come on top, so memory use may be three times that."""


class CachedTranscript(Struct, frozen=True):
    """A session's transcript and what is known about its size in tokens."""

    transcript: Transcript
    tokens: TokenCount
    counted_by: tuple[str, str] | None = None

    @property
    def characters(self) -> int:
        """The approximate size in characters."""
        return self.transcript.tokens * CHARACTERS_PER_TOKEN + self.transcript.image_characters


class TranscriptCache:
    """The latest transcript of each session, by the run that ended it. A caller that takes one owns it."""

    def __init__(self) -> None:
        self._kept: OrderedDict[SessionId, tuple[RunId, CachedTranscript]] = OrderedDict()
        self._characters = 0

    def put(self, session_id: SessionId, run_id: RunId, cached: CachedTranscript) -> None:
        """Store the session's transcript up to and including this run, which has ended."""
        self._drop(session_id)
        self._kept[session_id] = (run_id, cached)
        self._characters += cached.characters
        while self._kept and (len(self._kept) > MAX_SESSIONS or self._characters > MAX_CHARACTERS):
            self._drop(next(iter(self._kept)))

    def take(self, session_id: SessionId, last: RunId) -> CachedTranscript | None:
        """Remove and return the transcript, if this run was the last to extend it."""
        found = self._kept.get(session_id)
        self._drop(session_id)
        return found[1] if found is not None and found[0] == last else None

    def _drop(self, session_id: SessionId) -> None:
        found = self._kept.pop(session_id, None)
        if found is not None:
            self._characters -= found[1].characters
