"""How the user has left the UI."""

from dataclasses import dataclass
from typing import Literal

from treadle.domain.ids import RunId, SessionId

LeavingKind = Literal["done", "waiting", "background", "parked", "cancelled", "abandoned"]


@dataclass(frozen=True, slots=True)
class Leaving:
    """How the user has left, and what the command prints about it."""

    kind: LeavingKind = "done"
    run_id: RunId | None = None
    session_id: SessionId | None = None
