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
    from treadle.api.engine import Engine
    from treadle.api.result import RefusedCall, Result
    from treadle.api.sync_client import Client
    from treadle.domain.envelope import Event
    from treadle.domain.errors import TreadleError
    from treadle.domain.messages import Image
    from treadle.ports.hooks import Block, Hook, HookedCall, Rewrite
    from treadle.ports.tool import Observation, ToolContext, ToolError
    from treadle.tools.function import tool
    from treadle.tools.toolset import Toolset

__version__ = VERSION

_PUBLIC = {
    "Agent": "treadle.api.agent",
    "AsyncClient": "treadle.api.client",
    "Block": "treadle.ports.hooks",
    "Callbacks": "treadle.api.agent",
    "Client": "treadle.api.sync_client",
    "Engine": "treadle.api.engine",
    "Event": "treadle.domain.envelope",
    "Hook": "treadle.ports.hooks",
    "HookedCall": "treadle.ports.hooks",
    "Image": "treadle.domain.messages",
    "RefusedCall": "treadle.api.result",
    "Result": "treadle.api.result",
    "Rewrite": "treadle.ports.hooks",
    "Observation": "treadle.ports.tool",
    "ToolContext": "treadle.ports.tool",
    "ToolError": "treadle.ports.tool",
    "Toolset": "treadle.tools.toolset",
    "TreadleError": "treadle.domain.errors",
    "tool": "treadle.tools.function",
}

__all__ = [
    "Agent",
    "AsyncClient",
    "Block",
    "Callbacks",
    "Client",
    "Engine",
    "Event",
    "Hook",
    "HookedCall",
    "Image",
    "Observation",
    "RefusedCall",
    "Result",
    "Rewrite",
    "ToolContext",
    "ToolError",
    "Toolset",
    "TreadleError",
    "tool",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that the command line starts quickly."""
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module `treadle` has no attribute `{name}`")


def __dir__() -> list[str]:
    return sorted((*__all__, "__version__"))
