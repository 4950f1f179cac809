"""The ids of calls on the wire. Each names the run that waits for its result, so that the next request finds it."""

import re
from typing import NamedTuple

from treadle.domain.ids import RunId

_CALL_ID = re.compile(r"call_([0-9A-Za-z-]{1,40})_([1-9]\d{0,9})")
_RUN_PREFIX = "run_"


class CallPlace(NamedTuple):
    """Where the journal has the request to run a call."""

    run_id: RunId
    sequence: int


def make_call_id(place: CallPlace) -> str:
    return f"call_{place.run_id.removeprefix(_RUN_PREFIX)}_{place.sequence}"


def parse_call_id(text: str) -> CallPlace | None:
    """Return the place that an id names, or None for an id of another service."""
    found = _CALL_ID.fullmatch(text)
    return None if found is None else CallPlace(RunId(f"{_RUN_PREFIX}{found[1]}"), int(found[2]))
