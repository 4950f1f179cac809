"""Counts in memory that the processes behind one port share: the open streams of each token, and changes of access.

Each process has a region of its own, which it alone writes, so no lock is needed. A reader adds up all regions. The
region of a process that has ended is cleared by the process that started it."""

import mmap
import os
import struct
import tempfile
from collections.abc import Iterator
from hashlib import blake2b

from treadle.domain.ids import TokenId

TOKENS = 1024
"""Tokens with open streams that a process counts. The streams of further tokens count for no limit."""
_CHANGES = struct.Struct("<Q")
_ENTRY = struct.Struct("<16sI")
_COUNT = struct.Struct("<I")
_KEY_BYTES = 16
_NO_KEY = bytes(_KEY_BYTES)
_REGION_BYTES = _CHANGES.size + TOKENS * _ENTRY.size


class SharedBoard:
    """The memory of all processes, for one of them. Implements `AccessChanges` and `StreamCounts`."""

    def __init__(self, memory: mmap.mmap, own: int) -> None:
        """`own`: the number of the region of this process."""
        self._memory = memory
        self._own = own
        self._regions = len(memory) // _REGION_BYTES
        self.access_changes = _AccessChanges(self)
        self.stream_counts = _StreamCounts(self)

    def count_changes(self) -> int:
        starts = range(0, self._regions * _REGION_BYTES, _REGION_BYTES)
        return sum(_CHANGES.unpack_from(self._memory, start)[0] for start in starts)

    def add_change(self) -> None:
        start = self._own * _REGION_BYTES
        _CHANGES.pack_into(self._memory, start, _CHANGES.unpack_from(self._memory, start)[0] + 1)

    def count_streams(self, token: TokenId) -> int:
        key = _make_key(token)
        return sum(self._read(region, key) for region in range(self._regions))

    def add_streams(self, token: TokenId, number: int) -> None:
        key = _make_key(token)
        at = self._find(self._own, key)
        if at is None and number > 0:
            at = self._take_entry(key)
        if at is not None:
            count = _COUNT.unpack_from(self._memory, at + _KEY_BYTES)[0]
            _COUNT.pack_into(self._memory, at + _KEY_BYTES, max(0, count + number))

    def clear(self, region: int) -> None:
        """Forget the streams of a process that has ended. Its changes of access stay counted."""
        start, end = region * _REGION_BYTES + _CHANGES.size, (region + 1) * _REGION_BYTES
        self._memory[start:end] = bytes(end - start)

    def _read(self, region: int, key: bytes) -> int:
        at = self._find(region, key)
        return 0 if at is None else _COUNT.unpack_from(self._memory, at + _KEY_BYTES)[0]

    def _find(self, region: int, key: bytes) -> int | None:
        """Return the position of the entry of a token in a region."""
        for at in _list_positions(region, key):
            found = self._memory[at : at + _KEY_BYTES]
            if found == key:
                return at
            if found == _NO_KEY:
                return None
        return None

    def _take_entry(self, key: bytes) -> int | None:
        """Give the token a free entry in the own region, and return its position; None if there is none. An entry
        whose token has no open stream is free."""
        for at in _list_positions(self._own, key):
            if not _COUNT.unpack_from(self._memory, at + _KEY_BYTES)[0]:
                self._memory[at : at + _KEY_BYTES] = key
                return at
        return None


class _AccessChanges:
    def __init__(self, board: SharedBoard) -> None:
        self.count = board.count_changes
        self.add = board.add_change


class _StreamCounts:
    def __init__(self, board: SharedBoard) -> None:
        self.count = board.count_streams
        self.add = board.add_streams


def create_board_file(regions: int) -> int:
    """Return the descriptor of an empty file in memory or without a name, with room for this many processes."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("treadle-board")
    else:
        descriptor, path = tempfile.mkstemp(prefix="treadle-board")
        os.unlink(path)
    os.ftruncate(descriptor, regions * _REGION_BYTES)
    return descriptor


def open_board(descriptor: int, own: int) -> SharedBoard:
    return SharedBoard(mmap.mmap(descriptor, 0), own)


def _make_key(token: TokenId) -> bytes:
    return blake2b(token.encode(), digest_size=_KEY_BYTES).digest()


def _list_positions(region: int, key: bytes) -> Iterator[int]:
    """Yield where the entry of a token may be, in the order in which it is looked for."""
    start, first = region * _REGION_BYTES + _CHANGES.size, int.from_bytes(key[:4], "little")
    for step in range(TOKENS):
        yield start + (first + step) % TOKENS * _ENTRY.size
