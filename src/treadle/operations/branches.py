"""Branches of conversations: a message that follows an earlier part of a session starts a session of its own, which
begins with the conversation up to the end of that part."""

from msgspec import structs

from treadle.core.fold import fold_all
from treadle.core.state import join_messages
from treadle.domain.events import ClientResult, LlmRequest, MessageSteered, RunWaiting
from treadle.domain.runs import RunPart
from treadle.engine.run_history import load_run_history
from treadle.operations.journal_pages import read_stored_events
from treadle.operations.submissions import Submission
from treadle.ports.journal import Journal


async def branch_session(submission: Submission, part: RunPart, journal: Journal) -> Submission:
    """Return the submission for a new session that begins with the conversation up to the end of a part of a
    run."""
    state, events = await load_run_history(part.run_id, journal)
    end = await find_part_end(part, journal)
    fold_all(state, events if end is None else events[:end])
    if state.turn.inbox:
        state.transcript.add(join_messages(state.turn.inbox))
    state.transcript.close()
    return structs.replace(submission, session_id=None, before=tuple(state.transcript.messages))


async def find_part_end(part: RunPart, journal: Journal) -> int | None:
    """Return the sequence of the last event of a part of a run, or None if it is the last part.

    A part ends before the message that the run receives after it has called the model and waited."""
    has_called = has_waited = False
    async for event in read_stored_events(journal, part.run_id, part.after):
        match event.data:
            case LlmRequest():
                has_called = True
            case RunWaiting():
                has_waited = has_called
            case MessageSteered() | ClientResult() if has_waited:
                return event.sequence - 1
            case _:
                pass
    return None
