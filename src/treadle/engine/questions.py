"""Questions that a tool asks the user while its call is in progress."""

import asyncio
from contextlib import suppress

from treadle.core.state import RunState
from treadle.core.tools.ledger import Call
from treadle.core.tools.permissions import has_reviewer
from treadle.domain.events import ClarifyRequested
from treadle.domain.messages import make_sendable
from treadle.engine.owned_run import OwnedRun


async def ask_during_call(
    run: OwnedRun, call: Call, number: int, question: str, options: tuple[str, ...]
) -> str | None:
    """Record the question and wait for its answer. Return None if there is no one to ask, if the time is up, or if
    the user sends another message instead."""
    if not has_reviewer(run.state):
        return None
    question_id, lifetime = f"{call.call_id}.{number}", run.state.agent.approvals.expires_seconds
    expires_at = None if lifetime is None else run.worker.clock.now() + lifetime
    choices = tuple([make_sendable(option) for option in options])
    run.record(ClarifyRequested(question_id, make_sendable(question), choices, expires_at, call.call_id))
    await run.flush()

    def is_settled(state: RunState) -> bool:
        return question_id in state.review.answers or state.steer_mode is not None

    with suppress(TimeoutError):
        async with asyncio.timeout(lifetime):
            await run.wait_until(is_settled)
    answer = run.state.review.answers.get(question_id)
    return None if answer is None else answer.text
