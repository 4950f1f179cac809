"""The tasks extension of MCP (revision 2026-07-28): a run that takes long is a task, and its questions are requests
for input. The journal is the store, so a task survives a lost connection and a restart.

This module imports the SDK."""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from pydantic import Field

from treadle.domain.errors import InvalidState, TreadleError
from treadle.domain.ids import RunId
from treadle.operations.refusal import Refusal
from treadle.operations.runs import Question, RunDetail
from treadle.surfaces.mcp.backend import McpBackend, NotPermitted

Request = ServerRequestContext[Any, Any]
EXTENSION = "io.modelcontextprotocol/tasks"
FIRST_REVISION = "2026-07-28"
ANSWER_SECONDS = 2.0
"""A run that ends sooner is answered at once."""
POLL_INTERVAL_MS = 1000
ANSWER_FIELD = "answer"
NO_ANSWER = "The person at the MCP client did not answer."


class TaskParams(types.RequestParams):
    """Names a task."""

    task_id: str = Field(max_length=200)


class UpdateParams(TaskParams):
    """Answers to requests for input, by the key of the request."""

    input_responses: dict[str, types.ElicitResult] = Field(max_length=100)


class RunTasks:
    """Serves the methods of the extension for the runs of a caller."""

    def __init__(
        self,
        server: Server[Any],
        find_backend: Callable[[Request], McpBackend],
        make_result: Callable[[RunDetail], types.CallToolResult],
    ) -> None:
        self._find_backend = find_backend
        self._make_result = make_result
        server.extensions[EXTENSION] = {}
        server.add_request_handler("tasks/get", TaskParams, self._get)
        server.add_request_handler("tasks/update", UpdateParams, self._update)
        server.add_request_handler("tasks/cancel", TaskParams, self._cancel)

    async def _get(self, request: Request, params: TaskParams) -> dict[str, Any]:
        backend, run = await self._find(request, params)
        task = _describe(run)
        if run.outcome is not None and run.outcome != "cancelled":
            result = self._make_result(run).model_dump(mode="json", by_alias=True, exclude_none=True)
            return {**task, "result": result}
        questions = await _find_questions(request, backend, run)
        if questions:
            asked = {key: _make_elicitation(question) for key, (_, question) in questions.items()}
            return {**task, "status": "input_required", "inputRequests": asked}
        return task

    async def _update(self, request: Request, params: UpdateParams) -> dict[str, Any]:
        backend, run = await self._find(request, params)
        questions = await _find_questions(request, backend, run)
        for key, response in params.input_responses.items():
            if key in questions:  # others were answered before, or never asked
                run_id, question = questions[key]
                with suppress(InvalidState):  # it was answered elsewhere
                    await backend.answer(run_id, question.call_id, _read_answer(response))
        return {}

    async def _cancel(self, request: Request, params: TaskParams) -> dict[str, Any]:
        backend, run = await self._find(request, params)
        with suppress(InvalidState):  # it has ended
            await backend.cancel(run.run_id, "the MCP client cancelled the task")
        return {}

    async def _find(self, request: Request, params: TaskParams) -> tuple[McpBackend, RunDetail]:
        """Return the run of a task. Raise MCPError if the caller may not see it, or does not know tasks."""
        if not is_supported(request):
            needed = types.ClientCapabilities(extensions={EXTENSION: {}})
            data = types.MissingRequiredClientCapabilityErrorData(required_capabilities=needed)
            raise MCPError(
                types.MISSING_REQUIRED_CLIENT_CAPABILITY,
                f"The client lacks the capability {EXTENSION}. Declare it with each request.",
                data.model_dump(mode="json", by_alias=True, exclude_none=True),
            )
        backend = self._find_backend(request)
        try:
            return backend, await backend.show(params.task_id)
        except (NotPermitted, TreadleError, Refusal):
            raise MCPError(types.INVALID_PARAMS, "Task not found") from None


def is_supported(request: Request) -> bool:
    """Return whether the client understands tasks."""
    wanted = types.ClientCapabilities(extensions={EXTENSION: {}})
    return request.protocol_version >= FIRST_REVISION and request.session.check_client_capability(wanted)


def make_task(run: RunDetail) -> dict[str, Any]:
    """Return the result of a call whose run is a task from now on."""
    return {"resultType": "task", **_describe(run)}


def _describe(run: RunDetail) -> dict[str, Any]:
    """Return a run as a task, without its result."""
    status = "working" if run.outcome is None else "cancelled" if run.outcome == "cancelled" else "completed"
    changed = datetime.now(UTC)
    if run.outcome is not None and run.duration_ms is not None:
        changed = run.created_at + timedelta(milliseconds=run.duration_ms)
    waits = f"The run waits ({run.waiting_for})." if run.waiting_for else ""
    return {
        "taskId": run.run_id,
        "status": status,
        **({"statusMessage": waits} if waits else {}),
        "createdAt": run.created_at.isoformat(),
        "lastUpdatedAt": changed.isoformat(),
        "ttlMs": None,
        "pollIntervalMs": POLL_INTERVAL_MS,
    }


async def _find_questions(
    request: Request, backend: McpBackend, run: RunDetail
) -> dict[str, tuple[RunId, Question]]:
    """Return the open questions of a run and its child runs that the caller may answer."""
    can_ask = request.session.check_client_capability(
        types.ClientCapabilities(elicitation=types.ElicitationCapability())
    )
    if run.outcome is not None or not can_ask:
        return {}
    return {
        _make_key(run_id, question): (run_id, question)
        for run_id, question in await backend.list_questions(run.run_id)
    }


def _make_key(run_id: RunId, question: Question) -> str:
    """Return the key of a question, which no other question of the task has: providers reuse the ids of calls."""
    digest = sha256(f"{run_id}\0{question.call_id}\0{question.question}".encode()).hexdigest()
    return f"question-{digest[:16]}"


def _make_elicitation(question: Question) -> dict[str, Any]:
    answer: dict[str, Any] = {"type": "string", "title": "Answer"}
    if question.options:
        answer["enum"] = list(question.options)
    return {
        "method": "elicitation/create",
        "params": {
            "mode": "form",
            "message": question.question,
            "requestedSchema": {"type": "object", "properties": {ANSWER_FIELD: answer}, "required": [ANSWER_FIELD]},
        },
    }


def _read_answer(response: types.ElicitResult) -> str:
    values = response.content or {}
    if response.action != "accept":
        return NO_ANSWER
    said = values.get(ANSWER_FIELD) or next((value for value in values.values() if value), None)
    return str(said) if said is not None else NO_ANSWER
