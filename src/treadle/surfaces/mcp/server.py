"""The MCP server: its tools, resources and prompts. Each request is answered for the caller that made it.

This module imports the SDK. Import it only where it serves."""

import json
import math
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import anyio
import mcp_types as types
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from treadle.domain.errors import TreadleError, UnknownRun, UnknownSession
from treadle.domain.ids import RunId
from treadle.domain.runs import OutcomeKind
from treadle.operations.refusal import Refusal
from treadle.operations.runs import RunDetail
from treadle.operations.transcripts import RunTranscript
from treadle.surfaces.mcp.backend import PARKED, McpBackend, NotPermitted, list_progress
from treadle.surfaces.mcp.tasks import ANSWER_SECONDS, RunTasks, is_supported, make_task

Request = ServerRequestContext[Any, Any]
RUNS, SESSIONS = "treadle://runs/", "treadle://sessions/"
START, STATUS, CANCEL = "start_run", "get_run", "cancel_run"
INSTRUCTIONS = f"Each agent is a tool. A call runs it until it answers. For long work use {START}, then {STATUS}."
LONGEST_WAIT = 300.0
CANCEL_SECONDS = 10.0
"""How long a client waits for the end of a run that it cancels. A tool may take longer to stop."""
CLEANUP_SECONDS = 5.0
MESSAGE = {"type": "string", "description": "The message to the agent."}
SESSION = {"type": "string", "description": "The session to continue. Leave it out to begin a new one."}
RUN_ID = {"type": "string", "description": "The id of the run, run_…"}
RESULT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "run_id": {"type": "string"},
        "session_id": {"type": "string"},
        "status": {"type": "string"},
        "outcome": {"type": ["string", "null"]},
        "waiting_for": {"type": ["string", "null"]},
        "text": {"type": "string"},
    },
    "required": ["run_id", "session_id", "status", "text"],
}


class AgentServer:
    """The handlers of the server. `find_backend` returns the backend of the caller of a request."""

    def __init__(self, find_backend: Callable[[Request], McpBackend], version: str) -> None:
        self._find_backend = find_backend
        self.server: Server[Any] = Server(
            "treadle",
            version=version,
            title="Treadle",
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
        )
        RunTasks(self.server, find_backend, _make_result)

    # ── Tools ──

    async def _list_tools(self, request: Request, _: Any) -> types.ListToolsResult:
        agents = self._find_backend(request).agents
        tools = [_make_agent_tool(agent) for agent in agents if agent not in (START, STATUS, CANCEL)]
        if agents:
            tools += [_make_start_tool(list(agents)), _make_status_tool(), _make_cancel_tool()]
        return types.ListToolsResult(tools=tools)

    async def _call_tool(self, request: Request, params: types.CallToolRequestParams) -> Any:
        backend, arguments = self._find_backend(request), params.arguments or {}
        agents = backend.agents
        if not agents or params.name not in (*agents, START, STATUS, CANCEL):
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name[:100]}")
        try:
            if params.name == STATUS:
                wait = min(float(arguments.get("wait") or 0), LONGEST_WAIT)
                return _make_result(
                    await backend.show(_text(arguments, "run_id"), wait or None), accepted="cancelled"
                )
            if params.name == CANCEL:
                run_id = _text(arguments, "run_id")
                await backend.cancel(run_id, "asked for by an MCP client")
                return _make_result(await backend.show(run_id, CANCEL_SECONDS), accepted="cancelled")
            agent = _text(arguments, "agent") if params.name == START else params.name
            if agent not in agents:
                return _make_error(f"There is no agent `{agent[:100]}`.")
            message, session = _text(arguments, "message"), arguments.get("session_id")
            run_id = await backend.start(agent, message, None if session is None else str(session))
            if params.name == START:
                return _make_result(await backend.show(run_id))
            has_tasks = is_supported(request)
            run = await _follow(request, backend, run_id, ANSWER_SECONDS if has_tasks else math.inf)
            return make_task(run) if has_tasks and run.outcome is None else _make_result(run)
        except NotPermitted:
            return _make_error("There is no such run.")
        except (TreadleError, Refusal, ValueError) as error:
            return _make_error(str(error))

    # ── Resources ──

    async def _list_resources(self, request: Request, _: Any) -> types.ListResourcesResult:
        backend = self._find_backend(request)
        runs = [
            types.Resource(
                uri=f"{RUNS}{run.run_id}",
                name=str(run.run_id),
                title=f"Run of {run.agent} ({run.outcome or run.status})",
                mime_type="application/json",
            )
            for run in await backend.list_runs()
        ]
        sessions = [
            types.Resource(
                uri=f"{SESSIONS}{session.session_id}",
                name=str(session.session_id),
                title=session.title or f"Session with {session.agent}",
                mime_type="application/json",
            )
            for session in await backend.list_sessions()
        ]
        return types.ListResourcesResult(resources=[*sessions, *runs])

    async def _list_templates(self, request: Request, _: Any) -> types.ListResourceTemplatesResult:
        templates = [
            types.ResourceTemplate(uri_template=f"{prefix}{{id}}", name=name, mime_type="application/json")
            for prefix, name in ((RUNS, "run"), (SESSIONS, "session"))
        ]
        return types.ListResourceTemplatesResult(resource_templates=templates)

    async def _read_resource(
        self, request: Request, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        backend, uri = self._find_backend(request), str(params.uri)
        try:
            if uri.startswith(RUNS):
                content: Any = msgspec.to_builtins(await backend.show(uri.removeprefix(RUNS)))
            elif uri.startswith(SESSIONS):
                content = await backend.read_session(uri.removeprefix(SESSIONS))
            else:
                raise NotPermitted
        except (NotPermitted, UnknownRun, UnknownSession):
            raise _make_not_found(request, uri) from None
        except (TreadleError, Refusal) as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None
        text = json.dumps(content, ensure_ascii=False)
        contents = types.TextResourceContents(uri=uri, mime_type="application/json", text=text)
        return types.ReadResourceResult(contents=[contents])

    # ── Prompts ──

    async def _list_prompts(self, request: Request, _: Any) -> types.ListPromptsResult:
        skills = self._find_backend(request).skills
        prompts = [types.Prompt(name=skill.name, description=skill.description) for skill in skills]
        return types.ListPromptsResult(prompts=prompts)

    async def _get_prompt(self, request: Request, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        found = next((each for each in self._find_backend(request).skills if each.name == params.name), None)
        if found is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {params.name[:100]}")
        message = types.PromptMessage(role="user", content=types.TextContent(text=found.read()))
        return types.GetPromptResult(description=found.description, messages=[message])


async def _follow(request: Request, backend: McpBackend, run_id: RunId, seconds: float) -> RunDetail:
    """Report the progress of a run until it ends, waits for a person, or the time is over, and return it. If the
    client cancels, cancel the run."""
    count, transcript = 0, RunTranscript(run_id)
    try:
        with anyio.move_on_after(seconds):
            async with aclosing(backend.follow(run_id)) as events:
                async for event in events:
                    steps = transcript.totals.steps
                    changes = transcript.apply(event)
                    if transcript.totals.outcome is not None or transcript.totals.waiting_for in PARKED:
                        break
                    for text in list_progress(changes, steps):
                        count += 1
                        await request.session.report_progress(count, message=text)
        return await backend.show(run_id)
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True), anyio.move_on_after(CLEANUP_SECONDS):
            await backend.cancel_quietly(run_id, "the MCP client cancelled the call")
        raise


def _make_result(run: RunDetail, accepted: OutcomeKind = "completed") -> types.CallToolResult:
    """Return a run as the result of a call: its answer, or what it waits for. An outcome that is not accepted is an
    error."""
    result = run.result
    text = "" if result is None else result.text
    if result is not None and run.outcome != "completed":
        text = " ".join(
            part for part in (f"The run ended: {run.outcome}.", result.reason, result.next, text) if part
        )
    elif result is None:
        state = f"waits ({run.waiting_for})" if run.waiting_for else f"is {run.status}"
        text = f"The run {run.run_id} {state}. Ask for it again with {STATUS}."
    structured = {
        "run_id": run.run_id,
        "session_id": run.session_id,
        "status": run.status,
        "outcome": run.outcome,
        "waiting_for": run.waiting_for,
        "text": text,
    }
    is_error = result is not None and run.outcome not in ("completed", accepted)
    return types.CallToolResult(
        content=[types.TextContent(text=text)], structured_content=structured, is_error=is_error
    )


def _make_error(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)


def _make_not_found(request: Request, uri: str) -> MCPError:
    """Return the error for a resource that does not exist or that the caller may not see."""
    is_modern = request.protocol_version >= "2026"
    code = types.INVALID_PARAMS if is_modern else -32002
    return MCPError(code, "Resource not found", {"uri": uri[:500]})


def _text(arguments: dict[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"`{name}` is missing: it must be text.")
    return value


def _make_agent_tool(agent: str) -> types.Tool:
    return types.Tool(
        name=agent,
        description=f"Send a message to the agent `{agent}` and wait for its answer.",
        input_schema={
            "type": "object",
            "properties": {"message": MESSAGE, "session_id": SESSION},
            "required": ["message"],
        },
        output_schema=RESULT_SCHEMA,
    )


def _make_start_tool(agents: list[str]) -> types.Tool:
    return types.Tool(
        name=START,
        description=f"Start a run of an agent and return its id at once. Follow it with {STATUS}.",
        input_schema={
            "type": "object",
            "properties": {"agent": {"type": "string", "enum": agents}, "message": MESSAGE, "session_id": SESSION},
            "required": ["agent", "message"],
        },
        output_schema=RESULT_SCHEMA,
    )


def _make_status_tool() -> types.Tool:
    wait = {"type": "number", "description": f"Seconds to wait for its end, at most {LONGEST_WAIT:g}."}
    return types.Tool(
        name=STATUS,
        description="Return the state of a run, and its answer if it has ended.",
        input_schema={"type": "object", "properties": {"run_id": RUN_ID, "wait": wait}, "required": ["run_id"]},
        output_schema=RESULT_SCHEMA,
        annotations=types.ToolAnnotations(read_only_hint=True),
    )


def _make_cancel_tool() -> types.Tool:
    return types.Tool(
        name=CANCEL,
        description="Cancel a run.",
        input_schema={"type": "object", "properties": {"run_id": RUN_ID}, "required": ["run_id"]},
        output_schema=RESULT_SCHEMA,
    )
