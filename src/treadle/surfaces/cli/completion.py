"""What a shell offers when the tab key is pressed: names and ids of what is there. What cannot be looked at is not
offered, and nothing is said about it: somebody is in the middle of a line."""

import os
from collections.abc import Coroutine, Sequence
from typing import Any

Offers = list[tuple[str, str]]
"""What can be typed, each with a word about it."""
MOST = 50


def agent_names(incomplete: str) -> Offers:
    from treadle.config.home import DEFAULT_AGENT, Home
    from treadle.domain.errors import TreadleError

    try:
        names = {*Home.from_environment(os.environ).agents(), DEFAULT_AGENT}
    except TreadleError:
        return []
    return [(name, "") for name in sorted(names) if name.startswith(incomplete)]


def run_ids(incomplete: str) -> Offers:
    return _beginning(incomplete, _looked(_runs()))


def session_ids(incomplete: str) -> Offers:
    return _beginning(incomplete, _looked(_sessions()))


async def _runs() -> Offers:
    from treadle.bootstrap.callers import open_readonly_caller
    from treadle.operations.runs import LIST, ListRuns

    async with open_readonly_caller() as caller:
        found = await caller.call(LIST, ListRuns(limit=MOST))
        return [(run.run_id, run.outcome or run.waiting_for or run.status) for run in found.items]


async def _sessions() -> Offers:
    from treadle.bootstrap.callers import open_readonly_caller
    from treadle.operations.sessions import LIST, ListSessions

    async with open_readonly_caller() as caller:
        found = await caller.call(LIST, ListSessions(limit=MOST))
        return [(session.session_id, session.title or session.agent) for session in found.items]


def _looked(looking: Coroutine[Any, Any, Offers]) -> Offers:
    import asyncio  # which costs more than all that help needs

    from treadle.domain.errors import TreadleError

    try:
        return asyncio.run(looking)
    except TreadleError:
        return []


def _beginning(incomplete: str, offers: Sequence[tuple[str, str]]) -> Offers:
    return [(value, about) for value, about in offers if value.startswith(incomplete)]
