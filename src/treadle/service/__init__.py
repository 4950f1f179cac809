"""The one entry for every surface: see `Service`."""

from treadle.engine.hub import End
from treadle.replay.replay import Replayed
from treadle.service.forking import Fork
from treadle.service.interface import Service
from treadle.service.people import Answer
from treadle.service.prompting import Seen
from treadle.service.service import LocalService
from treadle.service.submissions import MESSAGE_LIMIT, Submission, Ticket

__all__ = [
    "MESSAGE_LIMIT",
    "Answer",
    "End",
    "Fork",
    "LocalService",
    "Replayed",
    "Seen",
    "Service",
    "Submission",
    "Ticket",
]
