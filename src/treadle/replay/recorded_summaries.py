"""Replays the model that wrote the summaries. The journal records the final summary and the number of calls."""

import asyncio

from treadle.core.context.compaction import REMEMBER
from treadle.core.context.projection import estimate_input
from treadle.core.context.tokens import estimate_text
from treadle.domain import events as e
from treadle.domain.messages import Text
from treadle.domain.runs import Usage
from treadle.engine.compaction import ATTEMPTS_PER_PIECE
from treadle.ports.model import Completed, Failed, ModelRequest
from treadle.replay.script import DELIVERY_TURNS, Script

_WITH_SUMMARY = (e.MemorySaved, e.MemoryFlushed, e.Redacted)
Ended = e.ContextCompacted | e.CompactionFailed


class RecordedSummaries:
    """Answers requests for a summary, so that the engine makes as many calls as it did."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._of: e.CompactionStarted | None = None
        self._asked = 0
        self._good = self._bad = 0
        """Replies that are left to give: summaries, and failures that the engine retries."""
        self._failed_just_now = False

    async def reply(self, request: ModelRequest, started: e.CompactionStarted) -> Completed | Failed:
        ended = self._find_end()
        if ended is not None and started is not self._of:
            self._begin(ended, started, request)
            await self._deliver(ended)
        self._asked += 1
        if ended is None or self._script.cannot or (self._is_interrupted(ended) and self._asked == ended.calls):
            await asyncio.get_running_loop().create_future()
            raise AssertionError("the future is never done; the task is cancelled")
        return self._answer(ended, request)

    def _find_end(self) -> Ended | None:
        """Return how the compaction ended, or None if its end is not recorded."""
        for data in self._script.list_upcoming():
            if isinstance(data, Ended):
                return data
            if not isinstance(data, _WITH_SUMMARY):
                return None
        return None

    def _is_interrupted(self, ended: Ended) -> bool:
        return isinstance(ended, e.CompactionFailed) and ended.cause == "interrupted"

    def _begin(self, ended: Ended, started: e.CompactionStarted, request: ModelRequest) -> None:
        if self._is_interrupted(ended) and ended.calls > 1:
            self._script.cannot = (
                "a summary in pieces was interrupted, and the journal does not record the usage of each piece."
            )
        pieces = self._script.count_pieces(started, request.profile)
        self._of, self._asked, self._failed_just_now = started, 0, False
        last = _count_last_calls(ended)
        self._good = min(ended.calls - last, pieces - 1) if last else pieces
        self._bad = max(0, ended.calls - self._good - last)
        self._script.monotonic += ended.duration_ms / 1000

    async def _deliver(self, ended: Ended) -> None:
        """Deliver the messages that the recorded size of the conversation includes."""
        if isinstance(ended, e.CompactionFailed) or not self._script.pending_deliveries():
            return
        count = self._script.count_read(lambda state: estimate_input(state) == ended.tokens_before)
        if count:
            self._script.deliver(count)
            for _ in range(DELIVERY_TURNS):
                await asyncio.sleep(0)

    def _answer(self, ended: Ended, request: ModelRequest) -> Completed | Failed:
        usage = ended.usage if self._asked == 1 else Usage()
        if self._bad and not self._failed_just_now:
            self._bad, self._failed_just_now = self._bad - 1, True
            return Failed("overloaded", "The engine retried.", retryable=True, usage=usage)
        self._failed_just_now = False
        if self._good:
            self._good -= 1
            return Completed((Text(self._text(ended, request)),), "end_turn", usage)
        if isinstance(ended, e.CompactionFailed) and ended.cause == "empty":
            return Completed((), "end_turn", usage)
        reason = ended.reason if isinstance(ended, e.CompactionFailed) else "There is one call more than recorded."
        return Failed("server", reason, retryable=False, usage=usage)

    def _text(self, ended: Ended, request: ModelRequest) -> str:
        if isinstance(ended, e.CompactionFailed):
            return _make_long_text(2 * (request.settings.max_tokens or 0))
        saved = [data.text for data in self._script.list_upcoming() if isinstance(data, e.MemorySaved)]
        flushed = next(
            (data for data in self._script.list_upcoming() if isinstance(data, e.MemoryFlushed | Ended)), None
        )
        count = len(flushed.memories) if isinstance(flushed, e.MemoryFlushed) else 0
        lines = "\n".join(f"- {text}" for text in saved[:count])
        return f"{ended.summary}\n\n## {REMEMBER}\n{lines}" if count else ended.summary


def _count_last_calls(ended: Ended) -> int:
    """Return the number of calls with which a summary ends that was not written. An empty reply is asked for
    again; a failure is replayed as one that is not retried."""
    if isinstance(ended, e.ContextCompacted) or ended.cause == "not_shorter":
        return 0
    return ATTEMPTS_PER_PIECE if ended.cause == "empty" else 1


def _make_long_text(tokens: int) -> str:
    """Return a text of about this many tokens."""
    text = "so " * tokens
    while text and estimate_text(text) > tokens:
        text = text[: len(text) * 9 // 10]
    return text
