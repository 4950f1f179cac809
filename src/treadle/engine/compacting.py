"""Making the conversation shorter: results are cut, and what is cut is kept; or a model writes a summary, and where
none is to be had the conversation stays as it is."""

from collections.abc import Iterator

from treadle.core.compaction import (
    Summary,
    instructions,
    notes_so_far,
    pieces,
    read_summary,
    summary_message,
    summary_tokens,
    writing_prompt,
)
from treadle.core.context import input_estimate, most_expensive
from treadle.core.state import RunState
from treadle.core.steps import Compact, Trim
from treadle.core.tokens import tokens_in, tokens_of
from treadle.domain.agents import ModelSettings
from treadle.domain.commands import CompactSession
from treadle.domain.errors import UsageError
from treadle.domain.events import (
    CompactionFailed,
    CompactionStarted,
    ContextCompacted,
    EventData,
    SegmentOpened,
)
from treadle.domain.identity import SegmentId
from treadle.domain.messages import Message, user
from treadle.domain.runs import Usage
from treadle.engine.deps import Deps
from treadle.engine.ownership import Log
from treadle.engine.remembering import flushed
from treadle.ports.model import Completed, Conversation, Failed, ModelRequest, Preamble, Resolved

ATTEMPTS = 2
"""How often a writer is asked for one piece, where asking again may help."""


async def trim(step: Trim, log: Log, deps: Deps) -> None:
    """Keep what is about to be cut, then cut it."""
    session = log.origin.session_id
    for result in step.results:
        if await deps.results.read(session, result.call_id) is None:  # else the whole of it is kept already
            await deps.results.keep(log.origin, result.call_id, result.content)
    log.record(step.event)


async def compact(step: Compact, model: Resolved, log: Log, deps: Deps) -> None:
    """Have a summary written: by the model that the agent names for it, else by its own."""
    for writer in _writers(model, log.state, deps):
        writing = Writing(step, writer, log.state)
        if not await log.intend(writing.started()):
            return  # something was delivered: decide again
        began = deps.clock.monotonic()
        done = await log.unless(_unwanted, writing.write(), until=log.state.deadline)
        elapsed_ms = round((deps.clock.monotonic() - began) * 1000)
        if writing.summary is not None:
            remembered = await flushed(writing.summary.remember, log, deps)
            opened = SegmentId(deps.ids("seg"))
            log.record(*remembered, *writing.succeeded(writing.summary, elapsed_ms, opened))
            return
        log.record(writing.failed(writing.reason if done else "It was interrupted.", elapsed_ms))
        if not done:
            return


def _unwanted(state: RunState) -> bool:
    return state.cancelled is not None or state.interrupted is not None


def _writers(model: Resolved, state: RunState, deps: Deps) -> Iterator[Resolved]:
    wanted = state.agent.compaction.model
    if wanted is not None:
        try:
            found = deps.models.resolve(wanted, None)
        except UsageError:  # a model that cannot be had must not cost the run its summary
            pass
        else:
            yield found
            if (found.provider, found.model) == (model.provider, model.model):
                return
    yield model


class Writing:
    """One summary on its way, by one model."""

    def __init__(self, step: Compact, writer: Resolved, state: RunState) -> None:
        self._step = step
        self._writer = writer
        self._state = state
        self._span = state.transcript.messages[step.first : step.last]
        own = state.model is not None and (writer.provider, writer.model) == (
            state.model.provider,
            state.model.model,
        )
        window = state.window if own else writer.profile.context_window
        self._most = min(summary_tokens(state.window), summary_tokens(window))
        self._pieces = pieces(self._span, window)
        remembers = state.agent.memory.remember
        self._preamble = Preamble(instructions(remembers), ())
        self._focus = state.command.focus if isinstance(state.command, CompactSession) else ""
        self._usage = Usage()
        self._calls = 0
        self.summary: Summary | None = None
        self.reason = "There is nothing to write about."

    def started(self) -> CompactionStarted:
        text = sum(tokens_in(piece) for piece in self._pieces)
        tokens = text + len(self._pieces) * (tokens_in(self._preamble.system) + self._most)
        settings = ModelSettings(max_tokens=self._most * max(1, len(self._pieces)))
        step = self._step
        return CompactionStarted(
            step.stage,
            step.trigger,
            step.first,
            step.last,
            self._writer.provider,
            self._writer.model,
            tokens,
            most_expensive(tokens, settings, self._writer.profile),
            self._state.compacting,
        )

    async def write(self) -> None:
        """Ask for the notes piece by piece, each time with those so far."""
        so_far, remember = notes_so_far(self._span), dict[str, None]()
        for piece in self._pieces:
            written = await self._ask(writing_prompt(so_far, piece, self._focus))
            if written is None:
                return
            so_far = written.text
            remember |= dict.fromkeys(written.remember)
        if self._pieces:
            self.summary = Summary(so_far, tuple(remember))

    async def _ask(self, prompt: str) -> Summary | None:
        request = ModelRequest(
            self._writer.model,
            self._preamble,
            Conversation((user(prompt),)),
            ModelSettings(max_tokens=self._most),
            "none",
            self._writer.provider,
            self._writer.profile,
        )
        for _ in range(ATTEMPTS):
            self._calls += 1
            try:
                end = await self._writer.client.reply(request, lambda delta: None)
            except Exception as fault:  # adapters may be anybody's
                self.reason = f"The model adapter failed: {type(fault).__name__}: {fault}."
                return None
            self._usage = _sum(self._usage, end.usage)
            match end:
                case Completed(parts):
                    found = read_summary(Message("assistant", parts).text, self._most)
                    if found is not None:
                        return found
                    self.reason = "The model wrote nothing."
                case Failed(message=message, retryable=retryable):
                    self.reason = message
                    if not retryable:
                        return None
        return None

    def succeeded(self, summary: Summary, elapsed_ms: int, segment: SegmentId) -> tuple[EventData, ...]:
        step, state = self._step, self._state
        sizes, rate = state.transcript.sizes, state.tokens.rate
        pinned = [index for index, message in enumerate(self._span) if message.mark == "pinned"]
        gone = sum(sizes[step.first : step.last]) - sum(sizes[step.first + index] for index in pinned)
        before = input_estimate(state)
        after = max(0, before - round((gone - tokens_of(summary_message(summary.text))) * rate))
        left = len(state.transcript.messages) - len(self._span) + 1 + len(pinned) + bool(state.inbox)
        compacted = ContextCompacted(
            step.stage,
            step.trigger,
            step.first,
            step.last,
            summary.text,
            before,
            after,
            f"{self._writer.provider}/{self._writer.model}",
            self._usage,
            elapsed_ms,
            self._cost(),
            self._calls,
        )
        return compacted, SegmentOpened(segment, state.segment.segment_id, "compaction", left)

    def failed(self, reason: str, elapsed_ms: int) -> CompactionFailed:
        return CompactionFailed(
            self._step.stage, self._step.trigger, reason, self._usage, elapsed_ms, self._cost(), max(1, self._calls)
        )

    def _cost(self) -> float | None:
        return 0.0 if self._usage == Usage() else self._writer.profile.cost(self._usage)


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(
        one.input_tokens + other.input_tokens,
        one.output_tokens + other.output_tokens,
        one.cache_read_tokens + other.cache_read_tokens,
        one.cache_write_tokens + other.cache_write_tokens,
        one.estimated or other.estimated,
    )
