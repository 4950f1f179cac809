"""The index of searches: every three characters in a row of what was said, in lower case. A text that contains
another one has all of its parts."""

from zlib import crc32

from treadle.domain.envelope import decode_data
from treadle.domain.graphemes import make_printable_line
from treadle.domain.said import read_said
from treadle.domain.users import UserId

PART_CHARACTERS = 3
MAX_QUERY_PARTS = 40
"""More parts of a query would exclude hardly any more texts."""
FEW_RUNS = 1000
"""Fewer runs that have a text or a cost are read and sorted. Of more, the newest that match are soon found in the
order of the runs."""
MARK_START, MARKS = 0xE000, 6400
"""The characters of the private use area, of which marks of owners are made. No folded text has them."""


def fold_said(type_: str, version: int, raw: bytes) -> str:
    """Return what was said in an event as it is indexed and compared."""
    said = read_said(decode_data(type_, raw, version))
    return "" if said is None else fold(said[1])


def fold(text: str) -> str:
    """Return a text as one line in lower case."""
    return make_printable_line(text).lower().encode(errors="replace").decode()


def mark_owner(owner: UserId) -> str:
    """Return the part that all texts of an owner have, so that a search for one user skips those of others."""
    number = crc32(owner.encode())
    return chr(MARK_START) + chr(MARK_START + number % MARKS) + chr(MARK_START + number // MARKS % MARKS)


def list_parts(text: str) -> list[str]:
    """Return the different parts of a folded text, in their order."""
    ends = range(PART_CHARACTERS, len(text) + 1)
    return list(dict.fromkeys(text[end - PART_CHARACTERS : end] for end in ends))


def list_query_parts(text: str, owner: UserId | None) -> list[str]:
    """Return the parts that every match has. It is empty for a text that is too short for the index."""
    parts = list_parts(fold(text))
    if not parts:
        return []
    step = -(-len(parts) // MAX_QUERY_PARTS)
    return parts[::step] + ([] if owner is None else [mark_owner(owner)])


def hash_part(part: str) -> int:
    """Return a part as a 32-bit integer, for an index of numbers."""
    return crc32(part.encode()) - 2**31
