"""Calls of evaluated runs that get a recorded result instead of running: nothing outside of the run changes."""

from typing import Any

import msgspec

from treadle.core.tools.ledger import Call
from treadle.domain.events import CancelRequested, ToolCallError
from treadle.domain.tools import StandIn, StandIns, ToolSpec
from treadle.engine.call_failures import CallRefused
from treadle.engine.owned_run import OwnedRun
from treadle.ports.tool import Observation, Subjects, Tool, ToolContext

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class StandInTool:
    """Implements `ports.tool.Tool` with one recorded result."""

    def __init__(self, spec: ToolSpec, result: StandIn) -> None:
        self.spec = msgspec.structs.replace(
            spec, delegates=None, asks_a_person=False, client=None, forwards=False, needs=()
        )
        self._result = result

    def parse(self, arguments: str) -> str:
        return arguments

    def subjects(self, arguments: Any) -> Subjects:
        del arguments
        return Subjects(())

    async def run(self, arguments: Any, context: ToolContext) -> Observation:
        del arguments, context
        return Observation(self._result.content, is_error=self._result.is_error)


def find_stand_in(call: Call, tool: Tool, run: OwnedRun) -> StandInTool | None:
    """Return what stands in for the tool in this call; None if the tool runs itself. Raise CallRefused for a call
    without a recorded result that must not run."""
    queued = run.state.tree.queued
    stand_ins = None if queued is None else queued.stand_ins
    if stand_ins is None:
        return None
    text = call.use.arguments if call.arguments is None else call.arguments
    found = find_result(stand_ins, tool.spec.name, text, _count_earlier(call, tool, run))
    if found is not None:
        return StandInTool(tool.spec, found)
    if stand_ins.otherwise == "execute" or not _acts(tool.spec):
        return None
    raise _refuse(call, stand_ins)


def _acts(spec: ToolSpec) -> bool:
    """Return whether a tool looks at or changes anything outside of the run."""
    return spec.effect != "none" or spec.asks_a_person or spec.delegates is not None or spec.client is not None


def _count_earlier(call: Call, tool: Tool, run: OwnedRun) -> int:
    """Return how often the same call was made before in this run."""
    names, wanted, count = tool.spec.names, normalize_arguments(call.use.arguments), 0
    for message in run.state.own_messages:
        for use in message.calls:
            if use.call_id == call.call_id:
                return count
            count += use.name in names and normalize_arguments(use.arguments) == wanted
    return count


def _refuse(call: Call, stand_ins: StandIns) -> CallRefused:
    error = ToolCallError(call.call_id, call.name, "failed", stand_ins.stub, cause="not_recorded")
    if stand_ins.otherwise == "stub":
        return CallRefused(error)
    reason = f"The call of `{call.name}` has no recorded result, and the policy for such calls is `stop`."
    return CallRefused(error, CancelRequested(reason))


def find_result(stand_ins: StandIns, tool: str, arguments: str, earlier: int) -> StandIn | None:
    """Return the result of a call that was made `earlier` times before; None if none is recorded."""
    wanted = normalize_arguments(arguments)
    found = [
        each for each in stand_ins.results if each.tool == tool and normalize_arguments(each.arguments) == wanted
    ]
    return found[min(earlier, len(found) - 1)] if found else None


def normalize_arguments(text: str) -> str:
    """Return arguments in one form, whatever the order of their keys. Text that is not a JSON object stays."""
    try:
        return msgspec.json.encode(_decode(text or "{}"), order="sorted").decode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text.strip()
