"""Treadle: a self-hosted agent execution engine. See `Engine`, `Agent` and `tool`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from treadle.api.agent import Agent, Callbacks, Result
    from treadle.api.engine import Engine
    from treadle.domain.envelope import Event
    from treadle.domain.errors import TreadleError
    from treadle.domain.messages import Image
    from treadle.ports.hooks import Hook
    from treadle.ports.tool import Observation, ToolContext, ToolError
    from treadle.tools.function import tool
    from treadle.tools.toolset import Toolset

__version__ = "0.1.0"

_PUBLIC = {
    "Agent": "treadle.api.agent",
    "Callbacks": "treadle.api.agent",
    "Engine": "treadle.api.engine",
    "Event": "treadle.domain.envelope",
    "Hook": "treadle.ports.hooks",
    "Image": "treadle.domain.messages",
    "Result": "treadle.api.agent",
    "Observation": "treadle.ports.tool",
    "ToolContext": "treadle.ports.tool",
    "ToolError": "treadle.ports.tool",
    "Toolset": "treadle.tools.toolset",
    "TreadleError": "treadle.domain.errors",
    "tool": "treadle.tools.function",
}

__all__ = [
    "Agent",
    "Callbacks",
    "Engine",
    "Event",
    "Hook",
    "Image",
    "Observation",
    "Result",
    "ToolContext",
    "ToolError",
    "Toolset",
    "TreadleError",
    "tool",
]


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: the command line must start at once."""
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module `treadle` has no attribute `{name}`")
