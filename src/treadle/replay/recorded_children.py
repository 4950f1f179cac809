"""Runs under a run, as they were on record: whom it began, and why it could not begin another."""

from msgspec import Struct

from treadle.domain import events as e
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import UsageError
from treadle.domain.ids import AgentId
from treadle.domain.runs import Outcome
from treadle.engine.subagents import NOTHING_BEGUN
from treadle.ports.accounts import AccountShortage, Reserve
from treadle.replay.recording import Recorded
from treadle.replay.script import Script

_TREE, _STEPS = "The tree of runs that this one belongs to may have ", " steps together, and all are used."


class RecordedAgents:
    """Implements `ports.agents.Agents`: there is whoever is asked for, unless it was said that there is not."""

    def __init__(self, script: Script) -> None:
        self._script = script

    async def named(self, name: str, requested_by: AgentSpec) -> AgentSpec:
        if (why := self._script.why_nothing_was_begun(name)) is not None:
            raise UsageError(why)
        return AgentSpec(name, requested_by.model, requested_by.provider)

    async def identity(self, name: str) -> AgentId:
        return AgentId("agt_replayed")


def refused_by_the_tree(script: Script, reserve: Reserve) -> AccountShortage | None:
    """The account of a tree that had no room, where the script has it that one was in the way."""
    if reserve.runs and (turn := _turn(script)).told and reserve.runs > turn.begun:
        ceiling = int(turn.told.partition(_TREE)[2].partition(" ")[0])
        left = turn.begun + turn.failed
        return AccountShortage(reserve.accounts[-1].account, "runs", ceiling, ceiling - left, 0.0, reserve.runs)
    if reserve.steps and (end := _end_without_asking(script)) is not None:
        bounded = [each for each in reserve.accounts if each.steps is not None]
        told = [each for each in bounded if f" {each.steps}{_STEPS}" in _reason_of(end)]
        account = (told or bounded)[0]
        return AccountShortage(account.account, "steps", account.steps or 0, account.steps or 0, 0.0, 1)
    return None


class _Turn(Struct, frozen=True):
    """What becomes next of the calls that want runs."""

    told: str
    """What those were told that the tree had no room for; empty: there were none."""
    begun: int
    failed: int
    """Calls that the tree had room for, and that began nothing."""


def _turn(script: Script) -> _Turn:
    told, begun, failed = "", 0, 0
    for data in script.unwritten():
        match data:
            case e.ToolCallError(content=content) if _TREE in content:
                told = content
            case e.ToolCallError(content=content) if content.startswith(f"{NOTHING_BEGUN}: "):
                failed += 1
            case e.AgentSpawn(end=None):
                begun += 1
            case e.ToolCallError() | e.ToolCallBlocked() | e.HookBlocked() | e.ToolCallStart():
                pass
            case _:
                break
    return _Turn(told, begun, failed)


def _end_without_asking(script: Script) -> e.RunEnd | e.AgentSpawn | None:
    """How the run ends, or is about to be judged, where that comes before it asks a model again."""
    for data in script.unwritten():
        match data:
            case e.RunEnd() | e.AgentSpawn(end=Outcome()):
                return data
            case e.StepStart() | e.BudgetReserved() | e.LlmRequest() | e.BudgetExhausted() | e.QuotaExceeded():
                return None
            case e.RunWaiting(reason=reason) if reason != "child":
                return None
            case _:
                pass
    return None


def _reason_of(end: e.RunEnd | e.AgentSpawn) -> str:
    if isinstance(end, e.RunEnd):
        return end.reason
    return "" if end.end is None else end.end.reason


def seconds_for_children(recorded: Recorded) -> float:
    """The time that children were given; 0: as much as they wanted."""
    for event in recorded.events:
        match event.data:
            case e.AgentSpawn(role="spawn" | "send" | "invoke", expires_at=None):
                return 0.0
            case e.AgentSpawn(role="spawn" | "send" | "invoke", expires_at=float() as expires_at):
                return expires_at - event.timestamp
            case _:
                pass
    return 600.0


def why_unsure(data: e.EventData) -> str:
    """Why it cannot be told whether a run would be begun today, where none was; empty: it can."""
    if isinstance(data, e.ToolCallError) and data.content.startswith(f"{NOTHING_BEGUN}: "):
        return f"what stood in the way of {data.call_id} is not on record: which agents and models there were."
    if isinstance(data, e.QualityScored | e.ErrorAnalyzed) and data.run_id is None:
        return "who should have judged the run could not be asked then; which agents there were is not on record."
    return ""
