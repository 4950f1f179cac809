"""Tools that a program brings to a run and runs itself."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from treadle.api.agent import BroughtTool, collect_tools
from treadle.domain.errors import UsageError
from treadle.domain.ids import RunId, SessionId
from treadle.domain.tools import ClientTool
from treadle.operations.attachments import Attachment
from treadle.operations.client_calls import DeliverResult
from treadle.operations.runs import OpenCall
from treadle.ports.tool import InvalidArguments, Observation, Tool, ToolContext
from treadle.tools.foreign import ForeignTool


class ClientTools:
    """The tools that a program brings to one run, with the code of those that run by themselves."""

    def __init__(self, tools: Sequence[BroughtTool]) -> None:
        declared = [tool for tool in tools if isinstance(tool, ClientTool)]
        self._code = {tool.spec.name: tool for tool in collect_tools(_leave_out_declared(tools))}
        specs = [tool.spec for tool in self._code.values()]
        self.declared = (*declared, *(ClientTool(spec.name, spec.description, spec.schema) for spec in specs))
        self._results: dict[str, DeliverResult] = {}

    def select(self, calls: Iterable[OpenCall]) -> list[OpenCall]:
        """Return the calls that run by themselves."""
        return [call for call in calls if call.name in self._code]

    async def run(self, run_id: RunId, calls: Sequence[OpenCall]) -> Sequence[DeliverResult]:
        """Run calls concurrently and return their results. A call that has run before does not run again."""
        return await asyncio.gather(*(self._run(run_id, call) for call in calls))

    async def _run(self, run_id: RunId, call: OpenCall) -> DeliverResult:
        if call.call_id not in self._results:
            self._results[call.call_id] = await self._run_anew(run_id, call)
        return self._results[call.call_id]

    async def _run_anew(self, run_id: RunId, call: OpenCall) -> DeliverResult:
        tool = self._code[call.name]
        context = ToolContext[Any](
            run_id=run_id,
            session_id=SessionId(""),
            call_id=call.call_id,
            idempotency_key=f"{run_id}/{call.call_id}",
            progress=lambda text: None,
            workspace=Path.cwd(),
        )
        try:
            found = await tool.run(tool.parse(call.arguments), context)
        except InvalidArguments as error:
            return DeliverResult(run_id, call.call_id, f"`{call.name}` was not run: {error}", is_error=True)
        except Exception as error:  # the model is told, like of any tool
            text = f"`{call.name}` failed: {type(error).__name__}: {error}."
            return DeliverResult(run_id, call.call_id, text, is_error=True)
        result = Observation(found) if isinstance(found, str) else found
        images = tuple(Attachment(image.media_type, image.data) for image in result.images)
        return DeliverResult(run_id, call.call_id, result.content, result.is_error, images)


def _leave_out_declared(tools: Sequence[BroughtTool]) -> list[Tool | ForeignTool | Callable[..., Any]]:
    """Return the tools with code. Raise UsageError for what is neither."""
    found: list[Tool | ForeignTool | Callable[..., Any]] = []
    for tool in tools:
        if isinstance(tool, str):
            raise UsageError(
                f"client_tools: `{tool}` is a text. Pass functions, or treadle.ClientTool(…) and deliver the "
                "results yourself."
            )
        if not isinstance(tool, ClientTool):
            found.append(tool)
    return found
