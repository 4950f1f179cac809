"""The one entry for every surface: see `Service`."""

from treadle.engine.event_hub import EndedRun
from treadle.operations.approvals import Answer
from treadle.operations.forks import Fork
from treadle.operations.interface import Service
from treadle.operations.prompts import Seen
from treadle.operations.service import LocalService
from treadle.operations.submissions import MESSAGE_LIMIT, Submission, Ticket
from treadle.replay.replay import Replayed

__all__ = [
    "MESSAGE_LIMIT",
    "Answer",
    "EndedRun",
    "Fork",
    "LocalService",
    "Replayed",
    "Seen",
    "Service",
    "Submission",
    "Ticket",
]
