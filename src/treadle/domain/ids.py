"""The names of things: a prefix that says what it is and a UUIDv7 that says which one."""

from typing import Literal, NewType

AgentId = NewType("AgentId", str)
SessionId = NewType("SessionId", str)
RunId = NewType("RunId", str)
ApprovalId = NewType("ApprovalId", str)
TokenId = NewType("TokenId", str)
"""Of an access token; the token itself is kept nowhere."""
SegmentId = NewType("SegmentId", str)
"""A session's conversation between two changes of what the model sees of it."""
EventId = str


def first_segment_id(session_id: SessionId) -> SegmentId:
    """Of what a session begins with."""
    return SegmentId(f"seg_{session_id.removeprefix('ses_')}")


Prefix = Literal["agt", "ses", "run", "stp", "evt", "apr", "tok", "seg", "mem", "sch", "hok", "whk"]

Instant = float
"""Seconds since 1970 in UTC: a moment on the wall clock."""
