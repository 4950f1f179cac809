"""Shortening the transcript: results are truncated, or a model writes a summary of the older messages. If no
summary can be written, the transcript stays as it is."""

from collections.abc import Iterator

from treadle.core.context.compaction import (
    Summary,
    extract_notes,
    list_summaries,
    make_instructions,
    make_prompt,
    make_summary_message,
    max_summary_tokens,
    read_summary,
    split_into_pieces,
)
from treadle.core.context.kept_record import (
    USER_MESSAGES,
    list_stored_calls,
    list_user_messages,
    make_record,
    max_record_tokens,
    render_record,
)
from treadle.core.context.projection import estimate_input, max_cost, max_reply_tokens
from treadle.core.context.tokens import estimate_message, estimate_text
from treadle.core.guards.quota import Intent, make_reserved_intent, reserve_model_call
from treadle.core.state import RunState
from treadle.core.steps import Compact, TruncateResults
from treadle.domain.agents import ModelSettings
from treadle.domain.commands import CompactSession
from treadle.domain.errors import UsageError
from treadle.domain.events import (
    CompactionFailed,
    CompactionFailure,
    CompactionStarted,
    ContextCompacted,
    EventData,
    SegmentOpened,
)
from treadle.domain.ids import SegmentId
from treadle.domain.messages import Message, user
from treadle.domain.observations import extract_text, is_truncated
from treadle.domain.runs import Usage
from treadle.engine.deps import SessionDeps
from treadle.engine.guarded_model import request_reply
from treadle.engine.memory import may_save_conversation, save_before_compaction
from treadle.engine.owned_run import OwnedRun
from treadle.ports.model import Completed, Conversation, Failed, ModelRequest, Models, Preamble, Resolved
from treadle.ports.results import Results
from treadle.ports.vault import Redactor

ATTEMPTS_PER_PIECE = 2
"""Attempts per piece, where a retry may help."""
MAX_USER_CHARACTERS = 1_000_000
"""How much of the user's messages can be recalled, the latest."""


async def truncate_results(step: TruncateResults, run: OwnedRun, results: Results) -> None:
    """Store the full results, then truncate them in the transcript."""
    for result in step.results:
        if not is_truncated(result.content):  # else the full text is stored already
            await results.keep(run.origin, result.call_id, extract_text(result.content))
    run.record(step.event)


async def compact(step: Compact, model: Resolved, run: OwnedRun, deps: SessionDeps) -> None:
    """Have a summary written, by the model that the agent names for it or else by the run's own model."""
    for writer in _find_writers(model, run.state, deps.models):
        writer_call = SummaryWriter(step, writer, run.state, run.worker.vault.redactor)
        intent = writer_call.make_intent()
        if not await run.intend(*intent.events, reserve=intent.reserve):
            return  # something was delivered, or an account refused: decide again
        began = run.worker.clock.monotonic()
        completed = await run.run_unless(_must_stop, writer_call.write(), until=run.state.deadline)
        elapsed_ms = round((run.worker.clock.monotonic() - began) * 1000)
        if (summary := writer_call.take_summary()) is not None:
            await writer_call.store_results(run, deps.results)
            saved = await save_before_compaction(summary.remember, run, deps.memories)
            opened = SegmentId(run.worker.ids("seg"))
            run.record(*saved, *writer_call.make_compacted(summary, elapsed_ms, opened))
            return
        if not completed:
            run.record(writer_call.make_interrupted(elapsed_ms))
            return
        run.record(writer_call.make_failure(elapsed_ms))


def _must_stop(state: RunState) -> bool:
    return state.cancelled is not None or state.interrupted is not None or state.steer_mode == "interrupt"


def _find_writers(model: Resolved, state: RunState, models: Models) -> Iterator[Resolved]:
    name = state.agent.compaction.model
    if name is not None:
        try:
            found = models.resolve(name, None)
        except UsageError:  # an unavailable model must not cost the run its summary
            pass
        else:
            yield found
            if (found.provider, found.model) == (model.provider, model.model):
                return
    yield model


class SummaryWriter:
    """One summary, written by one model."""

    def __init__(self, step: Compact, writer: Resolved, state: RunState, redactor: Redactor) -> None:
        self._step = step
        self._writer = writer
        self._state = state
        self._redactor = redactor
        messages = state.transcript.messages
        self._span = [messages[at] for at in range(step.first, step.last) if at not in step.kept]
        own = state.model is not None and (writer.provider, writer.model) == (
            state.model.provider,
            state.model.model,
        )
        window = state.window if own else writer.profile.context_window
        self._max_tokens = min(max_summary_tokens(state.window), max_summary_tokens(window))
        self._pieces = split_into_pieces(self._span, window)
        self._preamble = Preamble(make_instructions(may_save_conversation(state)), ())
        self._focus = state.command.focus if isinstance(state.command, CompactSession) else ""
        record = make_record(self._span, list_summaries(self._span), state.tools)
        self._record = redactor.redact(render_record(record, max_record_tokens(state.window))).text
        self._usage = Usage()
        self._calls = 0
        self._prompt = ""
        self.summary: Summary | None = None
        self.reason = "There is nothing to write about."
        self.cause: CompactionFailure = "nothing"

    def make_intent(self) -> Intent:
        text = sum(estimate_text(piece) for piece in self._pieces)
        tokens = text + len(self._pieces) * (estimate_text(self._preamble.system) + self._max_tokens)
        settings = ModelSettings(max_tokens=self._max_tokens * max(1, len(self._pieces)))
        step, state = self._step, self._state
        started = CompactionStarted(
            stage=step.stage,
            trigger=step.trigger,
            first=step.first,
            last=step.last,
            provider=self._writer.provider,
            model=self._writer.model,
            input_estimate=tokens,
            cost_estimate=max_cost(tokens, settings, self._writer.profile),
            repeats_lost=state.context.is_compacting,
        )
        most = tokens + max_reply_tokens(settings, self._writer.profile)
        return make_reserved_intent(
            (), started, reserve_model_call(state, state.step.number, 0, most, started.cost_estimate)
        )

    async def write(self) -> None:
        """Ask for the notes piece by piece, each time with the notes so far."""
        so_far, remember = extract_notes(self._span), dict[str, None]()
        for piece in self._pieces:
            written = await self._ask(make_prompt(so_far, piece, self._focus, self._record))
            if written is None:
                return
            so_far = written.text
            remember |= dict.fromkeys(written.remember)
        if self._pieces:
            self.summary = Summary(so_far, tuple(remember))

    async def store_results(self, run: OwnedRun, results: Results) -> None:
        """Store what the record says how to recall: results, and the user's messages."""
        for result in list_stored_calls(self._span, self._state.tools):
            if not is_truncated(result.content):  # else the full text is stored already
                await results.keep(run.origin, result.call_id, extract_text(result.content))
        known = await results.read(run.origin.session_id, USER_MESSAGES) or ""
        messages = [text for text in list_user_messages(self._span) if text not in known]
        if messages:
            text = "\n\n".join([*([known] if known else []), *messages])
            await results.keep(run.origin, USER_MESSAGES, text[-MAX_USER_CHARACTERS:])

    async def _ask(self, prompt: str) -> Summary | None:
        request = ModelRequest(
            model=self._writer.model,
            preamble=self._preamble,
            conversation=Conversation((user(prompt),)),
            settings=ModelSettings(max_tokens=self._max_tokens),
            tool_choice="none",
            provider=self._writer.provider,
            profile=self._writer.profile,
        )
        self._prompt = prompt
        for _ in range(ATTEMPTS_PER_PIECE):
            self._calls += 1
            end = await request_reply(self._writer.client, request, lambda delta: None, self._redactor)
            self._usage = _add_usage(self._usage, end.usage)
            match end:
                case Completed(parts):
                    found = read_summary(Message("assistant", parts).text, self._max_tokens)
                    if found is not None:
                        return found
                    self.reason, self.cause = "The model wrote nothing.", "empty"
                case Failed(message=message, retryable=retryable):
                    self.reason, self.cause = message, "failed"
                    if not retryable:
                        return None
        return None

    def take_summary(self) -> Summary | None:
        """Return the summary if there is one and it is shorter than what it replaces."""
        if self.summary is None or self._saved_tokens(self.summary) > 0:
            return self.summary
        self.reason, self.cause = "The summary is not shorter than the messages it would replace.", "not_shorter"
        return None

    def _saved_tokens(self, summary: Summary) -> int:
        """Return the estimated number of tokens that the summary saves."""
        step, sizes = self._step, self._state.transcript.sizes
        gone = sum(sizes[at] for at in range(step.first, step.last) if at not in step.kept)
        return gone - estimate_message(make_summary_message(summary.text, self._record))

    def make_compacted(self, summary: Summary, elapsed_ms: int, segment: SegmentId) -> tuple[EventData, ...]:
        step, state = self._step, self._state
        before = estimate_input(state)
        after = max(0, before - round(self._saved_tokens(summary) * state.context.tokens.rate))
        left = len(state.transcript.messages) - len(self._span) + 1 + bool(state.turn.inbox)
        compacted = ContextCompacted(
            stage=step.stage,
            trigger=step.trigger,
            first=step.first,
            last=step.last,
            kept=step.kept,
            summary=summary.text,
            tokens_before=before,
            tokens_after=after,
            model=f"{self._writer.provider}/{self._writer.model}",
            usage=self._usage,
            duration_ms=elapsed_ms,
            cost=self._cost(),
            calls=self._calls,
            record=self._record,
        )
        return compacted, SegmentOpened(segment, state.segment.segment_id, "compaction", left)

    def make_failure(self, elapsed_ms: int) -> CompactionFailed:
        step = self._step
        return CompactionFailed(
            stage=step.stage,
            trigger=step.trigger,
            reason=self.reason,
            usage=self._usage,
            duration_ms=elapsed_ms,
            cost=self._cost(),
            calls=max(1, self._calls),
            cause=self.cause,
        )

    def make_interrupted(self, elapsed_ms: int) -> CompactionFailed:
        """Return the failure of a summary that was interrupted. The provider may charge for it, so its usage is
        estimated."""
        lost = Usage(estimate_text(self._preamble.system) + estimate_text(self._prompt), estimated=True)
        self._usage = _add_usage(self._usage, lost)
        self.reason, self.cause = "It was interrupted.", "interrupted"
        return self.make_failure(elapsed_ms)

    def _cost(self) -> float | None:
        return 0.0 if self._usage == Usage() else self._writer.profile.cost(self._usage)


def _add_usage(one: Usage, other: Usage) -> Usage:
    return Usage(
        one.input_tokens + other.input_tokens,
        one.output_tokens + other.output_tokens,
        one.cache_read_tokens + other.cache_read_tokens,
        one.cache_write_tokens + other.cache_write_tokens,
        one.estimated or other.estimated,
    )
