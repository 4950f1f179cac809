"""IDs: a prefix that says what it is, and a UUIDv7 that says which one."""

from typing import Literal, NewType, TypeVar

AgentId = NewType("AgentId", str)
SessionId = NewType("SessionId", str)
RunId = NewType("RunId", str)
ApprovalId = NewType("ApprovalId", str)
TokenId = NewType("TokenId", str)
"""ID of an access token. The token itself is not stored."""
SegmentId = NewType("SegmentId", str)
"""A session's transcript between two changes of what the model sees."""
EventId = str


def first_segment_id(session_id: SessionId) -> SegmentId:
    """Return the ID of the segment that a session begins with."""
    return SegmentId(f"seg_{session_id.removeprefix('ses_')}")


Prefix = Literal["agt", "ses", "run", "stp", "evt", "apr", "tok", "seg", "mem", "sch", "hok", "whk", "sgn", "trl"]

Instant = float
"""A moment on the wall clock, in seconds since 1970 in UTC."""
Time = TypeVar("Time")
"""How a time is given: as an `Instant` in a record, as a date in a view."""
