"""Public test doubles, conformance checks for the ports, and a deterministic simulation."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from treadle.testing.models import FunctionModel, ScriptedModel, ScriptStep, ask, call, say
    from treadle.testing.recordings import load_script, save_script
    from treadle.testing.time import FakeClock

_MODULES = {"FakeClock": "time", "load_script": "recordings", "save_script": "recordings"}
__all__ = [
    "FakeClock",
    "FunctionModel",
    "ScriptStep",
    "ScriptedModel",
    "ask",
    "call",
    "load_script",
    "save_script",
    "say",
]


def __getattr__(name: str) -> Any:
    """Import a test double on first use."""
    if name in __all__:
        return getattr(import_module(f"treadle.testing.{_MODULES.get(name, 'models')}"), name)
    raise AttributeError(f"module `treadle.testing` has no attribute `{name}`")
