"""Whoever writes summaries, again: of what they answered only the last word is on record, and how often they were
asked."""

import asyncio

from treadle.core.context.compaction import REMEMBER
from treadle.core.context.projection import estimate_input
from treadle.core.context.tokens import estimate_text
from treadle.domain import events as e
from treadle.domain.messages import Text
from treadle.domain.runs import Usage
from treadle.ports.model import Completed, Failed, ModelRequest
from treadle.replay.script import Script

TURNS = 5
"""Of the event loop, in which the owner of a run has heard what it was told."""
INTERRUPTED = "It was interrupted."
NO_SHORTER = "The summary is no shorter than what it would stand for."
_BESIDE = (e.MemorySaved, e.MemoryFlushed, e.Redacted)
Ended = e.ContextCompacted | e.CompactionFailed


class RecordedSummaries:
    def __init__(self, script: Script) -> None:
        self._script = script
        self._of: e.CompactionStarted | None = None
        self._asked = 0
        self._good = self._bad = 0
        """Answers that are still to be given: good ones, and bad ones that are asked for again."""
        self._failed_just_now = False

    async def reply(self, request: ModelRequest, started: e.CompactionStarted) -> Completed | Failed:
        ended = self._ended()
        if ended is not None and started is not self._of:
            self._begin(ended, started, request)
            await self._hear(ended)
        self._asked += 1
        if ended is None or self._script.cannot or (self._is_interrupted(ended) and self._asked == ended.calls):
            await asyncio.get_running_loop().create_future()
            raise AssertionError("what never ends is ended by others")
        return self._answer(ended, request)

    def _ended(self) -> Ended | None:
        """What came of it; None: nothing is on record."""
        for data in self._script.upcoming():
            if isinstance(data, Ended):
                return data
            if not isinstance(data, _BESIDE):
                return None
        return None

    def _is_interrupted(self, ended: Ended) -> bool:
        return isinstance(ended, e.CompactionFailed) and ended.reason == INTERRUPTED

    def _begin(self, ended: Ended, started: e.CompactionStarted, request: ModelRequest) -> None:
        if self._is_interrupted(ended) and ended.calls > 1:
            self._script.cannot = (
                "a summary in pieces was interrupted, and what each of them used is not on record."
            )
        pieces = self._script.pieces_of(started, request.profile)
        self._of, self._asked, self._failed_just_now = started, 0, False
        is_written = isinstance(ended, e.ContextCompacted) or ended.reason == NO_SHORTER
        self._good = pieces if is_written else min(ended.calls - 1, pieces - 1)
        self._bad = max(0, ended.calls - self._good - (not is_written))
        self._script.monotonic += ended.duration_ms / 1000

    async def _hear(self, ended: Ended) -> None:
        """What was said meanwhile counts for how long the conversation was when the summary came."""
        if isinstance(ended, e.CompactionFailed) or not self._script.waiting():
            return
        count = self._script.heard(lambda state: estimate_input(state) == ended.tokens_before)
        if count:
            self._script.tell(count)
            for _ in range(TURNS):
                await asyncio.sleep(0)

    def _answer(self, ended: Ended, request: ModelRequest) -> Completed | Failed:
        usage = ended.usage if self._asked == 1 else Usage()
        if self._bad and not self._failed_just_now:
            self._bad, self._failed_just_now = self._bad - 1, True
            return Failed("overloaded", "It was asked again.", retryable=True, usage=usage)
        self._failed_just_now = False
        if self._good:
            self._good -= 1
            return Completed((Text(self._text(ended, request)),), "end_turn", usage)
        reason = ended.reason if isinstance(ended, e.CompactionFailed) else "It was asked once more than then."
        return Failed("server", reason, retryable=False, usage=usage)

    def _text(self, ended: Ended, request: ModelRequest) -> str:
        if isinstance(ended, e.CompactionFailed):
            return _as_long_as_may_be(2 * (request.settings.max_tokens or 0))
        saved = [data.text for data in self._script.upcoming() if isinstance(data, e.MemorySaved)]
        flushed = next(
            (data for data in self._script.upcoming() if isinstance(data, e.MemoryFlushed | Ended)), None
        )
        count = len(flushed.memories) if isinstance(flushed, e.MemoryFlushed) else 0
        lines = "\n".join(f"- {text}" for text in saved[:count])
        return f"{ended.summary}\n\n## {REMEMBER}\n{lines}" if count else ended.summary


def _as_long_as_may_be(tokens: int) -> str:
    text = "so " * tokens
    while text and estimate_text(text) > tokens:
        text = text[: len(text) * 9 // 10]
    return text
