"""How many runs of an agent are worked on at a time: a run that is owned has one of its agent's places."""

from collections.abc import Sequence

from treadle.domain.envelope import Draft
from treadle.domain.events import RunQueued
from treadle.domain.ids import RunId


def read_concurrency_limit(opening: Sequence[Draft]) -> int | None:
    """How many places there are, for a run that begins with these events; None: any number."""
    for draft in opening:
        if isinstance(draft.data, RunQueued):
            return draft.data.agent.concurrency
    return None


def describe_full_agent(run_id: RunId, taken: int) -> str:
    return (
        f"{run_id} waits for others of its agent: {taken} of them are being worked on, and that is as many as its "
        "`concurrency` allows."
    )
