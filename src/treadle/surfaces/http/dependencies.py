"""What the routes are given: the service, and who is asking."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from litestar import Request
from litestar.datastructures import State

from treadle.config.agent_registry import HomeAgents
from treadle.config.home import Home
from treadle.domain.access import Principal
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import UnknownAgent, UnknownRun, UnknownSession
from treadle.domain.ids import Instant, RunId, SessionId
from treadle.operations import LocalService
from treadle.operations.automation import Automation
from treadle.operations.memories import MemoryService
from treadle.operations.retention import Housekeeping
from treadle.operations.tokens import Access
from treadle.ports.access import Requests
from treadle.ports.journal import RunRecord
from treadle.surfaces.http.auth import principal_of

Asked = Request[Any, Any, State]


class Watched(Protocol):
    """Who counts what is open, and tells the numbers."""

    def stream_opened(self) -> None: ...

    def stream_closed(self) -> None: ...

    def render(self, agents: Sequence[str] | None = None) -> bytes:
        """Return the numbers as Prometheus reads them: all, or those of some agents."""
        ...


class Unwatched:
    """Where nobody counts."""

    def stream_opened(self) -> None:
        """Nobody need know."""

    def stream_closed(self) -> None:
        """Nobody need know."""

    def render(self, agents: Sequence[str] | None = None) -> bytes:
        return b""


@dataclass(frozen=True, slots=True)
class Served:
    service: LocalService
    memory: MemoryService
    access: Access
    requests: Requests
    home: Home
    agents: HomeAgents
    now: Callable[[], Instant]
    house: Housekeeping
    watched: Watched
    automation: Automation
    hand_over: Callable[[], None]
    """Give the home up to the process that asks for it. Raises InvalidState where this one keeps it."""


def served_of(request: Asked) -> Served:
    return request.app.state.served


async def seen_run(run_id: str, request: Asked) -> RunRecord:
    """A run, if it exists for whoever asks. Whoever may not see all runs is told the same of a run that they may
    not see, of one that was deleted and of one that never was."""
    principal = principal_of(request)
    try:
        record = await served_of(request).service.run(RunId(run_id))
    except UnknownRun:
        if principal.sees_all:
            raise
        raise unknown_run(run_id) from None
    if not (principal.sees(record.agent) and principal.sees_owner(record.owner)):
        raise unknown_run(run_id)
    return record


def unknown_run(run_id: str) -> UnknownRun:
    return UnknownRun(f"There is no run {run_id} in this database. `treadle runs list` shows those there are.")


def unknown_session(session_id: str) -> UnknownSession:
    return UnknownSession(f"There is no session {session_id}. `treadle sessions list` shows those there are.")


async def readable_run(run_id: str, request: Asked) -> RunRecord:
    """A run whose content may be shown: to a token with the scope read, or to one of the run's own user. For others
    it does not exist."""
    record, principal = await seen_run(run_id, request), principal_of(request)
    if not principal.may("read") and record.owner != principal.user:
        raise unknown_run(run_id)
    return record


def seen_agent(name: str, request: Asked) -> AgentSpec:
    """An agent, if it exists for whoever asks. The others are not named to whoever does not know one."""
    try:
        if principal_of(request).sees(name):
            return served_of(request).agents.find(name)
    except UnknownAgent:
        pass
    raise UnknownAgent(f"No agent is called `{name}`.")


async def with_runs(name: str, request: Asked) -> str:
    """The name of an agent that is there, or has been, if it exists for whoever asks."""
    served = served_of(request)
    known = principal_of(request).sees(name) and (
        name in served.home.agents() or name in await served.memory.agents()
    )
    if not known:
        raise UnknownAgent(f"No agent is called `{name}`.")
    return name


async def open_session(session_id: str, request: Asked) -> SessionId:
    """Return a session to continue, or to begin. One in which an agent has spoken that the caller may not see does
    not exist for the caller.

    A token that is limited to its own user, or that may not read, continues sessions of that user alone. One that
    is limited to its own user cannot name a new session: it would learn which ids are taken."""
    principal, service, wanted = principal_of(request), served_of(request).service, SessionId(session_id)
    if principal.only_owner is not None or not principal.may("read"):
        owner = await service.owner_of(wanted)
        is_free = owner is None and principal.only_owner is None
        if owner != principal.user and not is_free:
            raise unknown_session(session_id)
    if principal.agents is not None:
        runs = await service.runs_of(wanted)
        if not all(principal.sees(run.agent) for run in runs):
            raise unknown_session(session_id)
    return wanted


def said_by(name: str, principal: Principal) -> str:
    """Who is put on record as having decided: whoever holds a token is, whatever name they say."""
    if principal.token_id is None or not name:
        return name or principal.name
    return f"{name} (token {principal.name})"


def agents_of(principal: Principal, wanted: str | None) -> tuple[str, ...] | None:
    """The agents whose runs are to be shown; None: all."""
    if wanted is None:
        return principal.agents
    return (wanted,) if principal.sees(wanted) else ()
