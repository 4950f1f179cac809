"""What to write instead of a name that Treadle does not have: its counterpart to that of another library, or its
nearest name. It is imported when a name is missing."""

from collections.abc import Iterable
from typing import NoReturn

from treadle.domain.suggestions import find_closest

_RUN = "Call `await engine.run(agent, message)`, or agent.run_sync(message)"
_STREAM = "Call engine.stream_text(agent, message), or engine.stream(agent, message) for all events"
_AGENT = 'Write treadle.Agent(NAME, model="provider/model-id", tools=[…])'
_MCP = "Write Agent(mcp_servers={NAME: treadle.McpServer(command=…, args=[…], approve=True)})"
_SESSION = "Write session=… for a run: a session keeps its messages"
_INSTRUCTIONS = "Write Agent(instructions=…): text, or a function of a treadle.RunContext"
_SCRIPTED = "Write engine.add_model(NAME, treadle.testing.ScriptedModel(…))"
_TOOL = "Decorate the function with @treadle.tool, and write Agent(tools=[function])"
_OUTPUT = "Write result.output: the value of the `output` of the agent, or else the text"
_MESSAGES = "Write `await engine.messages(result.session_id)`, or engine.transcript(result.run_id)"
_APPROVE = 'Call `await engine.decide(approval_id, "approve")`, or "deny"'
_SHARED = {
    "ainvoke": _RUN,
    "arun": _RUN,
    "invoke": _RUN,
    "astream": _STREAM,
    "iter": _STREAM,
    "run_stream": _STREAM,
    "run_streamed": _STREAM,
}
HINTS: dict[str, dict[str, str]] = {
    "treadle": {
        "Runner": "Open a treadle.Engine: `await engine.run(agent, message)`",
        "StateGraph": _AGENT,
        "create_agent": _AGENT,
        "create_react_agent": _AGENT,
        "function_tool": "Write @treadle.tool",
        "Tool": "Write @treadle.tool",
        "ModelRetry": "Raise treadle.ToolError: the model sees its text",
        "RunContextWrapper": "Write treadle.ToolContext for tools, and treadle.RunContext for instructions",
        "MCPServerStdio": _MCP,
        "MCPServerStreamableHTTP": _MCP,
        "SQLiteSession": _SESSION,
        "Session": _SESSION,
        "TestModel": _SCRIPTED,
        "FunctionModel": "It is treadle.testing.models.FunctionModel",
        "UsageLimits": "Write limits={…} for an agent or a run, or cost=… for a run",
        "interrupt": 'Write @treadle.tool(needs_approval=True), or tools=["clarify"] for questions',
    },
    "Agent": {
        **_SHARED,
        "run": _RUN,
        "stream": _STREAM,
        "stream_text": _STREAM,
        "as_tool": "Write tools=[agent]: an agent delegates to the agents among its tools",
        "tool": _TOOL,
        "tool_plain": _TOOL,
        "system_prompt": _INSTRUCTIONS,
        "instructions": _INSTRUCTIONS,
        "output_validator": "Validate in the type of `output`: the model is told what its validator raises",
        "override": _SCRIPTED,
    },
    "Engine": {
        **_SHARED,
        "approve": _APPROVE,
        "deny": _APPROVE,
        "approvals": "Call `await engine.list_approvals()`",
        "runs": "Call `await engine.list_runs()`",
        "sessions": "Call `await engine.list_sessions()`",
        "history": "Call `await engine.messages(session_id)`",
        "get_state": "Call `await engine.show(run_id)`",
        "aclose": "Use `async with treadle.Engine(…) as engine:`",
    },
    "Result": {
        "data": _OUTPUT,
        "final_output": _OUTPUT,
        "content": _OUTPUT,
        "response": _OUTPUT,
        "answer": _OUTPUT,
        "all_messages": _MESSAGES,
        "new_messages": _MESSAGES,
        "messages": _MESSAGES,
        "to_input_list": _SESSION,
        "error": "Write result.reason, or result.raise_for_status()",
        "cost": "Write result.metrics.cost",
        "interruptions": "Write result.approvals and result.questions",
    },
    "RunStream": {
        "stream_text": "The stream itself yields the pieces: `async for piece in stream`",
        "stream_events": "The stream itself yields the pieces: `async for piece in stream`",
        "text_stream": "The stream itself yields the pieces: `async for piece in stream`",
        "output": "Write stream.result.output, after the last piece",
        "final_output": "Write stream.result.output, after the last piece",
        "get_output": "Write stream.result.output, after the last piece",
        "usage": "Write stream.result.usage, after the last piece",
    },
}
"""What to write instead of the names of other libraries, by the class that lacks them."""


def explain_missing_name(owner: str, name: str, known: Iterable[str], more: str = "") -> str:
    """Return the message of an AttributeError. `more` is what to do if nothing is known about the name."""
    hint = HINTS[owner].get(name) or more
    if not hint and (near := find_closest(name, [each for each in known if not each.startswith("_")])):
        hint = f"Did you mean `{near}`?"
    what = f"module `{owner}` has no attribute `{name}`" if owner == "treadle" else f"{owner} has no `{name}`"
    return what if not hint else f"{what}. {hint.rstrip('.?')}{'?' if hint.endswith('?') else '.'}"


def refuse_name(owner: object, name: str, more: str = "") -> NoReturn:
    """Raise AttributeError for an attribute that an object lacks."""
    kind = type(owner)
    if name.startswith("_"):  # of Python and of notebooks, which look for methods that may be there
        raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}")
    base = next(each.__name__ for each in kind.__mro__ if each.__name__ in HINTS)
    raise AttributeError(explain_missing_name(base, name, dir(kind), more))
