"""Runs under a run, as they were on record: whom it began, and why it could not begin another."""

from treadle.domain import events as e
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import UsageError
from treadle.domain.identity import AgentId
from treadle.domain.runs import Outcome
from treadle.engine.delegating import NOTHING_BEGUN, TURN_SECONDS
from treadle.ports.accounts import Reserve, Short
from treadle.replay.recorded import Recorded
from treadle.replay.script import Script

_TREE, _STEPS = "The tree of runs that this one belongs to may have ", " steps together, and all are used."


class RecordedAgents:
    """Implements `ports.agents.Agents`: there is whoever is asked for, unless it was said that there is not."""

    def __init__(self, script: Script) -> None:
        self._script = script

    async def named(self, name: str, asked_by: AgentSpec) -> AgentSpec:
        if (why := self._script.why_nothing_was_begun(name)) is not None:
            raise UsageError(why)
        return AgentSpec(name, asked_by.model, asked_by.provider)

    async def identity(self, name: str) -> AgentId:
        return AgentId("agt_replayed")


def refused_by_the_tree(script: Script, reserve: Reserve) -> Short | None:
    """The account of a tree that had no room, where the script has it that one was in the way."""
    if reserve.runs and (told := _no_room(script)):
        ceiling = int(told[0].partition(_TREE)[2].partition(" ")[0])
        left = reserve.runs - len(told)
        return Short(reserve.accounts[-1].account, "runs", ceiling, ceiling - left, 0.0, reserve.runs)
    if reserve.steps and (why := _why_no_step(script)):
        most = int(why.partition(_STEPS)[0].rpartition(" ")[2])
        account = next((each.account for each in reserve.accounts if each.steps == most), "")
        return Short(account, "steps", most, most, 0.0, 1)
    return None


def _no_room(script: Script) -> list[str]:
    """What was told of the calls that were refused next, because the tree had no room for their runs."""
    told: list[str] = []
    for data in script.unwritten():
        if not isinstance(data, e.ToolCallError | e.ToolCallBlocked | e.HookBlocked):
            break
        if isinstance(data, e.ToolCallError) and _TREE in data.content:
            told.append(data.content)
    return told


def _why_no_step(script: Script) -> str:
    """Why the run comes to its end now, and not to another step, where the tree has no steps left."""
    for data in script.unwritten():
        match data:
            case e.RunEnd(reason=reason) | e.AgentSpawn(end=Outcome(reason=reason)) | e.AgentTold(reason=reason):
                return reason if _STEPS in reason else ""
            case e.RunWaiting("child") | e.ToolCallError():
                pass
            case _:
                break
    return ""


def seconds_for_children(recorded: Recorded) -> float:
    """The time that children were given; 0: as much as they wanted."""
    for event in recorded.events:
        match event.data:
            case e.AgentSpawn(role="spawn" | "send" | "invoke", expires_at=None):
                return 0.0
            case e.AgentSpawn(role="spawn" | "send" | "invoke", expires_at=float() as expires_at):
                return expires_at - event.timestamp - TURN_SECONDS
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
