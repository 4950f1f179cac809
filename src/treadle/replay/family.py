"""Runs under a run, as they were on record: whom it began, and why it could not begin another."""

from treadle.domain import events as e
from treadle.domain.agents import AgentSpec
from treadle.domain.identity import AgentId
from treadle.engine.delegating import NOTHING_BEGUN, TURN_SECONDS
from treadle.ports.accounts import Reserve, Short
from treadle.replay.recorded import Recorded
from treadle.replay.script import Script

_TREE, _STEPS = "The tree of runs that this one belongs to may have ", " steps together, and all are used."


class RecordedAgents:
    """Implements `ports.agents.Agents`: there is whoever is asked for."""

    async def named(self, name: str, asked_by: AgentSpec) -> AgentSpec:
        return AgentSpec(name, asked_by.model, asked_by.provider)

    async def identity(self, name: str) -> AgentId:
        return AgentId("agt_replayed")


def refused_by_the_tree(script: Script, reserve: Reserve) -> Short | None:
    """The account of a tree that had no room, where the script has it that one was in the way."""
    names = [each.account for each in reserve.accounts]
    if reserve.runs:
        told = [data.content for data in script.clearing() if isinstance(data, e.ToolCallError)]
        refused = [each for each in told if _TREE in each]
        if refused:
            ceiling = int(refused[0].partition(_TREE)[2].partition(" ")[0])
            left = reserve.runs - len(refused)
            return Short(names[-1], "runs", ceiling, ceiling - left, 0.0, reserve.runs)
    end = next(script.upcoming(), None)
    if reserve.steps and isinstance(end, e.RunEnd) and _STEPS in end.reason:
        bounded = next(each for each in reserve.accounts if each.steps is not None)
        return Short(bounded.account, "steps", bounded.steps or 0, bounded.steps or 0, 0.0, 1)
    return None


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
