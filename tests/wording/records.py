"""Records of runs as files, one line each, with the bytes of their events as they were stored."""

import gzip
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from treadle.domain.envelope import Event, from_json, to_json
from treadle.domain.events import RunEnd
from treadle.domain.ids import RunId
from treadle.domain.messages import Message
from treadle.ports.approvals import Grant
from treadle.ports.sessions import SegmentRecord
from treadle.replay.recording import PastRun, Recorded


class _Past(Struct):
    history: tuple[Message, ...]
    events: list[Raw]


class _Line(Struct):
    story: str
    events: list[Raw]
    history: tuple[Message, ...]
    segments: tuple[SegmentRecord, ...]
    ends: tuple[RunEnd, ...]
    earlier: list[_Past]
    others: dict[str, _Past]
    grants: tuple[Grant, ...]


def save(path: Path, records: Sequence[tuple[str, Recorded]]) -> None:
    """Write records with the names of their stories."""
    lines = [msgspec.json.encode(_make_line(story, record)) for story, record in records]
    path.write_bytes(gzip.compress(b"\n".join(lines), mtime=0))


def load(path: Path) -> list[tuple[str, Recorded]]:
    lines = gzip.decompress(path.read_bytes()).split(b"\n")
    return [_read_line(msgspec.json.decode(line, type=_Line)) for line in lines]


def _make_line(story: str, record: Recorded) -> _Line:
    earlier = [_make_past(each) for each in record.earlier]
    others = {str(run_id): _make_past(each) for run_id, each in record.others.items()}
    return _Line(
        story,
        _make_events(record.events),
        record.history,
        record.segments,
        record.ends,
        earlier,
        others,
        record.grants,
    )


def _read_line(line: _Line) -> tuple[str, Recorded]:
    events = _read_events(line.events)
    earlier = tuple([_read_past(each) for each in line.earlier])
    others = {RunId(run_id): _read_past(each) for run_id, each in line.others.items()}
    found = (events[0].origin, events, line.history, line.segments, line.ends, earlier, others, line.grants)
    return line.story, Recorded(*found)


def _make_past(past: PastRun) -> _Past:
    return _Past(past.history, _make_events(past.events))


def _read_past(past: _Past) -> PastRun:
    return PastRun(past.history, _read_events(past.events))


def _make_events(events: Sequence[Event]) -> list[Raw]:
    return [Raw(to_json(event)) for event in events]


def _read_events(events: Sequence[Raw]) -> tuple[Event, ...]:
    return tuple([from_json(bytes(each)) for each in events])
