"""Treadle: a self-hosted agent execution engine.

`Agent` describes an agent, `tool` turns a function into a tool, and `Engine` runs agents:

    import treadle


    @treadle.tool
    def add(a: float, b: float) -> float:
        '''Add two numbers.'''
        return a + b


    agent = treadle.Agent(name="calculator", model="provider/model-id", tools=[add])
    print(treadle.Engine("sqlite:///calculator.db").run_sync(agent, "What is 2 + 3?").text)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from treadle.domain.version import VERSION

if TYPE_CHECKING:
    from treadle.api.agent import Agent, Callbacks
    from treadle.api.client import AsyncClient
    from treadle.api.engine import Engine, Recovered
    from treadle.api.evaluations import evaluate
    from treadle.api.mcp_servers import McpServer
    from treadle.api.result import ApprovalView, OpenQuestion, RefusedCall, Result
    from treadle.api.streams import RunStream
    from treadle.api.sync_client import Client
    from treadle.domain.envelope import Event
    from treadle.domain.errors import RunFailed, RunUnavailable, TreadleError
    from treadle.domain.evaluations import Evaluation
    from treadle.domain.events import (
        AgentEnd,
        AgentSpawn,
        ApprovalDecided,
        ApprovalRequested,
        ClarifyRequested,
        LlmResponse,
        RunEnd,
        RunStart,
        RunWaiting,
        StepEnd,
        ThinkingDelta,
        Token,
        ToolCallEnd,
        ToolCallError,
        ToolCallProgress,
        ToolCallStart,
        UserMessage,
    )
    from treadle.domain.messages import Image
    from treadle.domain.tools import ClientTool
    from treadle.domain.transcript import (
        AnswerItem,
        ApprovalItem,
        CallItem,
        ChildItem,
        EndItem,
        MessageItem,
        NoteItem,
        PlanItem,
        QuestionItem,
        ThinkingItem,
    )
    from treadle.ports.hooks import Block, Hook, HookedCall, Rewrite
    from treadle.ports.run_context import RunContext
    from treadle.ports.tool import Observation, ToolContext, ToolError
    from treadle.surfaces.http.mounted_app import asgi
    from treadle.tools.function import tool
    from treadle.tools.toolset import Toolset

__version__ = VERSION

_PUBLIC = {
    "Agent": "treadle.api.agent",
    "AgentEnd": "treadle.domain.events",
    "AgentSpawn": "treadle.domain.events",
    "AnswerItem": "treadle.domain.transcript",
    "ApprovalDecided": "treadle.domain.events",
    "ApprovalItem": "treadle.domain.transcript",
    "ApprovalRequested": "treadle.domain.events",
    "ApprovalView": "treadle.api.result",
    "AsyncClient": "treadle.api.client",
    "Block": "treadle.ports.hooks",
    "CallItem": "treadle.domain.transcript",
    "Callbacks": "treadle.api.agent",
    "ChildItem": "treadle.domain.transcript",
    "ClarifyRequested": "treadle.domain.events",
    "Client": "treadle.api.sync_client",
    "ClientTool": "treadle.domain.tools",
    "EndItem": "treadle.domain.transcript",
    "Engine": "treadle.api.engine",
    "Evaluation": "treadle.domain.evaluations",
    "Event": "treadle.domain.envelope",
    "Hook": "treadle.ports.hooks",
    "HookedCall": "treadle.ports.hooks",
    "Image": "treadle.domain.messages",
    "LlmResponse": "treadle.domain.events",
    "McpServer": "treadle.api.mcp_servers",
    "MessageItem": "treadle.domain.transcript",
    "NoteItem": "treadle.domain.transcript",
    "Observation": "treadle.ports.tool",
    "OpenQuestion": "treadle.api.result",
    "PlanItem": "treadle.domain.transcript",
    "QuestionItem": "treadle.domain.transcript",
    "Recovered": "treadle.api.engine",
    "RefusedCall": "treadle.api.result",
    "Result": "treadle.api.result",
    "Rewrite": "treadle.ports.hooks",
    "RunContext": "treadle.ports.run_context",
    "RunEnd": "treadle.domain.events",
    "RunFailed": "treadle.domain.errors",
    "RunStart": "treadle.domain.events",
    "RunStream": "treadle.api.streams",
    "RunUnavailable": "treadle.domain.errors",
    "RunWaiting": "treadle.domain.events",
    "StepEnd": "treadle.domain.events",
    "ThinkingDelta": "treadle.domain.events",
    "ThinkingItem": "treadle.domain.transcript",
    "Token": "treadle.domain.events",
    "ToolCallEnd": "treadle.domain.events",
    "ToolCallError": "treadle.domain.events",
    "ToolCallProgress": "treadle.domain.events",
    "ToolCallStart": "treadle.domain.events",
    "ToolContext": "treadle.ports.tool",
    "ToolError": "treadle.ports.tool",
    "Toolset": "treadle.tools.toolset",
    "TreadleError": "treadle.domain.errors",
    "UserMessage": "treadle.domain.events",
    "asgi": "treadle.surfaces.http.mounted_app",
    "evaluate": "treadle.api.evaluations",
    "tool": "treadle.tools.function",
}

__all__ = [
    "Agent",
    "AgentEnd",
    "AgentSpawn",
    "AnswerItem",
    "ApprovalDecided",
    "ApprovalItem",
    "ApprovalRequested",
    "ApprovalView",
    "AsyncClient",
    "Block",
    "CallItem",
    "Callbacks",
    "ChildItem",
    "ClarifyRequested",
    "Client",
    "ClientTool",
    "EndItem",
    "Engine",
    "Evaluation",
    "Event",
    "Hook",
    "HookedCall",
    "Image",
    "LlmResponse",
    "McpServer",
    "MessageItem",
    "NoteItem",
    "Observation",
    "OpenQuestion",
    "PlanItem",
    "QuestionItem",
    "Recovered",
    "RefusedCall",
    "Result",
    "Rewrite",
    "RunContext",
    "RunEnd",
    "RunFailed",
    "RunStart",
    "RunStream",
    "RunUnavailable",
    "RunWaiting",
    "StepEnd",
    "ThinkingDelta",
    "ThinkingItem",
    "Token",
    "ToolCallEnd",
    "ToolCallError",
    "ToolCallProgress",
    "ToolCallStart",
    "ToolContext",
    "ToolError",
    "Toolset",
    "TreadleError",
    "UserMessage",
    "asgi",
    "evaluate",
    "tool",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that the command line starts quickly."""
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(_explain_missing_name(name))


def _explain_missing_name(name: str) -> str:
    if name.startswith("_"):
        return f"module `treadle` has no attribute `{name}`"
    from treadle.api.attribute_hints import explain_missing_name

    return explain_missing_name("treadle", name, __all__)


def __dir__() -> list[str]:
    return sorted((*__all__, "__version__"))
