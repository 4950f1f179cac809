"""What an open engine offers to those who ask from outside, beside its runs."""

from collections.abc import Callable
from dataclasses import dataclass

from treadle.operations.automation import Automation
from treadle.operations.memories import MemoryService
from treadle.operations.retention import Housekeeping
from treadle.operations.tokens import Access
from treadle.ports.access import Requests


@dataclass(frozen=True, slots=True)
class SurfaceServices:
    access: Access
    requests: Requests
    memory: MemoryService
    house: Housekeeping
    automation: Callable[[], Automation]
    """Made when it is first asked for."""
