"""Calls of tools that the sender of a message runs itself: which are open, and the delivery of their results."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

import msgspec

from treadle.domain.envelope import Event
from treadle.domain.errors import Fenced, InvalidState, SizeLimitExceeded, UnknownCall
from treadle.domain.events import (
    ClientCallRequested,
    ClientResult,
    RunQueued,
    RunWaiting,
    StepStart,
    ToolCallEnd,
    ToolCallError,
)
from treadle.domain.ids import RunId, TokenId
from treadle.domain.limits import MAX_RESULT_CHARACTERS, MAX_RESULT_IMAGES
from treadle.domain.messages import make_sendable
from treadle.engine.client_wait import make_result_key
from treadle.engine.event_hub import ClientWait
from treadle.operations.event_factory import DraftFactory
from treadle.operations.journal_pages import read_latest_step, read_queued, read_stored_events
from treadle.operations.refusal import Refusal
from treadle.ports.journal import Journal, RunRecord
from treadle.ports.vault import Vault

RECENT_EVENTS = 12
"""Events that nearly always contain the requests that a run waits for."""
REMEMBERED_RUNS = 1000


class ClientCallService:
    def __init__(
        self, journal: Journal, vault: Vault, drafts: DraftFactory, waits: Mapping[RunId, ClientWait]
    ) -> None:
        self._journal = journal
        self._waits = waits
        self._vault = vault
        self._drafts = drafts
        self._tokens: dict[RunId, tuple[TokenId | None, bool]] = {}
        """The tokens of the latest runs, and whether they brought tools."""

    async def list_open(self, run: RunRecord) -> tuple[ClientCallRequested, ...]:
        """Return the calls for which a run waits. It may still be in memory, and be recorded as running."""
        if run.outcome is not None:
            return ()
        events = await self._read_step(run)
        waits = next((event.data for event in reversed(events) if not isinstance(event.data, ClientResult)), None)
        if not isinstance(waits, RunWaiting) or waits.reason != "client_tool":
            return ()
        return _find_open(events)

    def find_queued(self, run_id: RunId) -> RunQueued | None:
        """Return how a run was queued if it waits for its client in this process, or did a moment ago."""
        waiting = self._waits.get(run_id)
        return None if waiting is None else waiting.queued

    async def deliver_here(self, run_id: RunId, result: ClientResult, token: TokenId | None) -> int | None:
        """Deliver the result of a call to the run that waits for it in this process, and return the sequence of the
        event. Return None if none does: then `deliver` says what becomes of the result."""
        waiting = self._waits.get(run_id)
        if waiting is None or waiting.queued is None or waiting.queued.token != token:
            return None
        return await waiting.receive(result.call_id, partial(self._drafts.make, self._clean(result)))

    async def deliver(self, run: RunRecord, result: ClientResult, token: TokenId | None) -> int:
        """Deliver the result of a call and return the sequence of the event. The same result again is accepted.

        Raise UnknownCall if the client was not asked to run it, a refusal if another client was, and InvalidState
        if the run has another result or no longer waits for one."""
        run_id = run.origin.run_id
        if (sequence := await self.deliver_here(run_id, result, token)) is not None:
            return sequence
        result = self._clean(result)
        if not await self._is_by(token, run_id):
            raise Refusal(403, "Forbidden", f"Only the client that brought its tools to {run_id} delivers results.")
        made = self._drafts.make(result)
        sequence = None
        while sequence is None:
            events: Sequence[Event] = [] if run.outcome is not None else await self._read_step(run)
            if not any(asked.call_id == result.call_id for asked in _find_open(events)):
                return await self._find_same(run_id, result)
            key = make_result_key(result.call_id)
            with suppress(Fenced):  # something happened since: the call may have expired
                sequence = await self._journal.deliver(run_id, made, key, events[-1].sequence)
                if sequence is None:
                    raise _closed(run_id, result.call_id)
        [stored] = await self._journal.read(run_id, sequence - 1, 1)
        if stored.event_id != made.event_id and stored.data != result:
            raise _other_result(run_id, result.call_id)
        return sequence

    async def _is_by(self, token: TokenId | None, run_id: RunId) -> bool:
        """Return whether a client may deliver results to a run. To one without tools, anyone may try."""
        if (known := self._tokens.get(run_id)) is None:
            queued = await read_queued(run_id, self._journal)
            known = self._tokens[run_id] = queued.token, bool(queued.client_tools)
            if len(self._tokens) > REMEMBERED_RUNS:
                del self._tokens[next(iter(self._tokens))]
        return known[0] == token or not known[1]

    async def _read_step(self, run: RunRecord) -> Sequence[Event]:
        """Return the events of the latest step, and perhaps some before."""
        run_id, sequence = run.origin.run_id, run.sequence
        events = await self._journal.read(run_id, max(0, sequence - RECENT_EVENTS))
        if any(isinstance(event.data, StepStart) for event in events):
            return events
        return await read_latest_step(self._journal, run_id, sequence)

    async def _find_same(self, run_id: RunId, result: ClientResult) -> int:
        """Return the sequence of the same result, which was delivered before."""
        was_asked = False
        async for event in read_stored_events(self._journal, run_id):
            match event.data:
                case ClientCallRequested(call_id) if call_id == result.call_id:
                    was_asked = True
                case ClientResult(call_id) as stored if call_id == result.call_id:
                    if stored == result:
                        return event.sequence
                    raise _other_result(run_id, result.call_id)
                case _:
                    pass
        if was_asked:
            raise _closed(run_id, result.call_id)
        raise UnknownCall(
            f"{run_id} has asked no client to run a call {result.call_id}. `GET /v1/runs/{run_id}/calls` lists the "
            "calls that wait."
        )

    def _clean(self, result: ClientResult) -> ClientResult:
        if len(result.content) > MAX_RESULT_CHARACTERS or len(result.images) > MAX_RESULT_IMAGES:
            raise SizeLimitExceeded(
                f"The result has {len(result.content)} characters and {len(result.images)} images; at most "
                f"{MAX_RESULT_CHARACTERS} and {MAX_RESULT_IMAGES} are accepted. Shorten it."
            )
        content = make_sendable(self._vault.redactor.redact(result.content).text)
        return msgspec.structs.replace(result, content=content)


def _find_open(events: Sequence[Event]) -> tuple[ClientCallRequested, ...]:
    """Return the requests among the events of a step that have neither a result nor an end."""
    found: dict[str, ClientCallRequested] = {}
    for event in events:
        match event.data:
            case ClientCallRequested(call_id) as asked:
                found[call_id] = asked
            case ClientResult(call_id) | ToolCallEnd(call_id) | ToolCallError(call_id):
                found.pop(call_id, None)
            case _:
                pass
    return tuple(found.values())


def _closed(run_id: RunId, call_id: str) -> InvalidState:
    return InvalidState(
        f"{run_id} no longer waits for the result of {call_id}: it has ended, another message came first, or the "
        "time is over. Send its session a message to continue."
    )


def _other_result(run_id: RunId, call_id: str) -> InvalidState:
    return InvalidState(f"The call {call_id} of {run_id} has another result already. It is final.")
