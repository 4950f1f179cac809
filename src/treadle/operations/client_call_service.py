"""Calls of tools that the sender of a message runs itself: which are open, and the delivery of their results."""

import msgspec

from treadle.domain.errors import InvalidState, SizeLimitExceeded, UnknownCall
from treadle.domain.events import ClientCallRequested, ClientResult, RunEnd, ToolCallEnd, ToolCallError
from treadle.domain.ids import RunId, TokenId
from treadle.domain.limits import MAX_RESULT_CHARACTERS, MAX_RESULT_IMAGES
from treadle.domain.messages import make_sendable
from treadle.operations.event_factory import DraftFactory
from treadle.operations.journal_pages import read_latest_step, read_queued, read_stored_events
from treadle.operations.refusal import Refusal
from treadle.ports.journal import Journal, Runs
from treadle.ports.vault import Vault


class ClientCallService:
    def __init__(self, journal: Journal, runs: Runs, vault: Vault, drafts: DraftFactory) -> None:
        self._journal = journal
        self._runs = runs
        self._vault = vault
        self._drafts = drafts

    async def list_open(self, run_id: RunId) -> tuple[ClientCallRequested, ...]:
        """Return the calls for which no result was delivered. They belong to the latest step of the run."""
        record = await self._runs.record(run_id)
        if record.outcome is not None:
            return ()
        open_: dict[str, ClientCallRequested] = {}
        for event in await read_latest_step(self._journal, run_id, record.sequence):
            match event.data:
                case ClientCallRequested(call_id) as asked:
                    open_[call_id] = asked
                case ClientResult(call_id) | ToolCallEnd(call_id) | ToolCallError(call_id):
                    open_.pop(call_id, None)
                case RunEnd():
                    open_.clear()
                case _:
                    pass
        return tuple(open_.values())

    async def deliver(self, run_id: RunId, result: ClientResult, token: TokenId | None) -> int:
        """Deliver the result of a call and return the sequence of the event. The same result again is accepted.

        Raise UnknownCall if the client was not asked to run it, a refusal if another client was, and InvalidState
        if the run has another result or no longer waits for one."""
        result = self._clean(result)
        queued = await read_queued(run_id, self._journal)
        if queued.client_tools and queued.token != token:
            raise Refusal(403, "Forbidden", f"Only the client that brought its tools to {run_id} delivers results.")
        if not any(asked.call_id == result.call_id for asked in await self.list_open(run_id)):
            return await self._find_same(run_id, result)
        made = self._drafts.make(result)
        sequence = await self._journal.deliver(run_id, made, f"result/{result.call_id}")
        if sequence is None:
            raise _closed(run_id, result.call_id)
        [stored] = await self._journal.read(run_id, sequence - 1, 1)
        if stored.event_id != made.event_id and stored.data != result:
            raise _other_result(run_id, result.call_id)
        return sequence

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


def _closed(run_id: RunId, call_id: str) -> InvalidState:
    return InvalidState(
        f"{run_id} no longer waits for the result of {call_id}: it has ended, another message came first, or the "
        "time is over. Send its session a message to continue."
    )


def _other_result(run_id: RunId, call_id: str) -> InvalidState:
    return InvalidState(f"The call {call_id} of {run_id} has another result already. It is final.")
