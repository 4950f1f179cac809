"""Values that shell completion offers: names of agents, ids of runs and sessions. Errors are not printed: the user
is in the middle of a line."""

import os
from collections.abc import Coroutine, Sequence
from typing import Any

Offers = list[tuple[str, str]]
"""Values, each with a short description."""
MAX_OFFERS = 50


def agent_names(incomplete: str) -> Offers:
    from treadle.config.home import DEFAULT_AGENT, Home
    from treadle.domain.errors import TreadleError

    try:
        names = {*Home.from_environment(os.environ).agents(), DEFAULT_AGENT}
    except TreadleError:
        return []
    return [(name, "") for name in sorted(names) if name.startswith(incomplete)]


def run_ids(incomplete: str) -> Offers:
    return _select_matching(incomplete, _query(_runs()))


def session_ids(incomplete: str) -> Offers:
    return _select_matching(incomplete, _query(_sessions()))


async def _runs() -> Offers:
    from treadle.bootstrap.callers import open_readonly_caller
    from treadle.operations.runs import LIST, ListRuns

    async with open_readonly_caller() as caller:
        found = await caller.call(LIST, ListRuns(limit=MAX_OFFERS))
        return [(run.run_id, run.outcome or run.waiting_for or run.status) for run in found.items]


async def _sessions() -> Offers:
    from treadle.bootstrap.callers import open_readonly_caller
    from treadle.operations.sessions import LIST, ListSessions

    async with open_readonly_caller() as caller:
        found = await caller.call(LIST, ListSessions(limit=MAX_OFFERS))
        return [(session.session_id, session.title or session.agent) for session in found.items]


def _query(query: Coroutine[Any, Any, Offers]) -> Offers:
    import asyncio  # costs more than all the rest of help

    from treadle.domain.errors import TreadleError

    try:
        return asyncio.run(query)
    except TreadleError:
        return []


def _select_matching(incomplete: str, offers: Sequence[tuple[str, str]]) -> Offers:
    return [(value, about) for value, about in offers if value.startswith(incomplete)]
