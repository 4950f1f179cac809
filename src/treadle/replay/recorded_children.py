"""Replays child runs: which ones the run began, and why it could not begin another."""

from collections.abc import Sequence

from msgspec import Struct

from treadle.domain import events as e
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import UsageError
from treadle.domain.ids import AgentId
from treadle.domain.quotas import Shortage
from treadle.domain.runs import Outcome
from treadle.ports.accounts import Ceilings, Reserve
from treadle.replay.recording import Recorded
from treadle.replay.script import Script

DEFAULT_CHILD_SECONDS = 600.0


class RecordedAgents:
    """Implements `ports.agents.Agents`. Every agent exists, unless the journal says that it did not."""

    def __init__(self, script: Script) -> None:
        self._script = script

    async def get_agent(self, name: str, requested_by: AgentSpec) -> AgentSpec:
        if (reason := self._script.explain_not_started(name)) is not None:
            raise UsageError(reason)
        return AgentSpec(name, requested_by.model, requested_by.provider)

    async def version(self, name: str) -> int | None:
        return None

    async def identity(self, name: str) -> AgentId:
        return AgentId("agt_replayed")


def find_tree_shortage(script: Script, reserve: Reserve) -> Shortage | None:
    """Return the account of a tree of runs that refused this reservation, or None."""
    if reserve.runs and (turn := _read_turn(script)).limit is not None and reserve.runs > turn.begun:
        used = turn.limit - turn.begun - turn.failed
        return Shortage(
            account=reserve.accounts[-1].account,
            kind="runs",
            ceiling=turn.limit,
            used=used,
            reserved=0.0,
            wanted=reserve.runs,
        )
    if reserve.steps and (end := _find_end(script)) is not None:
        bounded = [each for each in reserve.accounts if each.steps is not None]
        return _make_step_shortage(end.shortage, bounded) if bounded else None
    return None


def _make_step_shortage(short: Shortage | None, accounts: Sequence[Ceilings]) -> Shortage:
    """Return the account without steps left. The end does not name it if the run ended with an earlier answer."""
    if short is not None and short.kind == "steps":
        named = [each for each in accounts if each.account == short.account]
        accounts = named or [each for each in accounts if each.steps == short.ceiling] or accounts
    steps = accounts[0].steps or 0
    return Shortage(account=accounts[0].account, kind="steps", ceiling=steps, used=steps, reserved=0.0, wanted=1)


class _Turn(Struct, frozen=True):
    """What the journal records next about the calls that start child runs."""

    limit: float | None
    """The number of runs that the tree may have, if a call was refused for it."""
    begun: int
    failed: int
    """Calls for which the tree had room, and which started no run."""


def _read_turn(script: Script) -> _Turn:
    limit, begun, failed = None, 0, 0
    for data in script.list_uncommitted():
        match data:
            case e.ToolCallError(cause="tree_full", limit=found):
                limit = found
            case e.ToolCallError(cause="not_started"):
                failed += 1
            case e.AgentSpawn(end=None):
                begun += 1
            case e.ToolCallError() | e.ToolCallBlocked() | e.HookBlocked() | e.ToolCallStart():
                pass
            case _:
                break
    return _Turn(limit, begun, failed)


def _find_end(script: Script) -> e.RunEnd | Outcome | None:
    """Return how the run ends, or is about to end before its evaluation, if it calls no model before that."""
    for data in script.list_uncommitted():
        match data:
            case e.RunEnd() | e.AgentSpawn(end=Outcome()):
                return data.end if isinstance(data, e.AgentSpawn) else data
            case e.StepStart() | e.BudgetReserved() | e.LlmRequest() | e.BudgetExhausted() | e.QuotaExceeded():
                return None
            case e.RunWaiting(reason=reason) if reason != "child":
                return None
            case _:
                pass
    return None


def child_timeout_seconds(recorded: Recorded) -> float:
    """Return the time limit of child runs; 0 for none. A limit begins at most when its event is written."""
    found: list[float] = []
    for event in recorded.events:
        match event.data:
            case e.AgentSpawn(role="spawn" | "send" | "invoke", expires_at=None):
                return 0.0
            case e.AgentSpawn(role="spawn" | "send" | "invoke", expires_at=float() as expires_at):
                found.append(expires_at - event.timestamp)
            case _:
                pass
    return max(found, default=DEFAULT_CHILD_SECONDS)


def explain_doubt(data: e.EventData) -> str:
    """Return why a replay cannot tell whether a child run would start today, or ""."""
    if isinstance(data, e.ToolCallError) and data.cause == "not_started":
        return f"the journal does not record which agents and models there were when {data.call_id} failed."
    if isinstance(data, e.QualityScored | e.ErrorAnalyzed) and data.run_id is None:
        return "the evaluator could not be started, and the journal does not record which agents there were."
    return ""
