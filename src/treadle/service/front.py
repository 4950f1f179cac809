"""What an open engine offers to those who ask from outside, beside its runs."""

from collections.abc import Callable
from dataclasses import dataclass

from treadle.ports.access import Requests
from treadle.service.access import Access
from treadle.service.automating import Automation
from treadle.service.keeping import Housekeeping
from treadle.service.memory import MemoryService


@dataclass(frozen=True, slots=True)
class Front:
    access: Access
    requests: Requests
    memory: MemoryService
    house: Housekeeping
    automation: Callable[[], Automation]
    """Made when it is first asked for."""
