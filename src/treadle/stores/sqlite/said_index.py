"""The index of searches on SQLite, an FTS5 table: filling it, removing from it, and what finds texts in it."""

from collections.abc import Sequence

from treadle.domain.ids import SessionId
from treadle.ports.overview import INDEXED_TEXTS
from treadle.stores.search_parts import fold_said, mark_owner
from treadle.stores.sqlite.connection import SQL, SqliteDatabase
from treadle.stores.sqlite.transaction import Transaction


def match_parts(parts: Sequence[str]) -> str:
    """Return the expression of FTS5 for texts that have all parts."""
    quoted = (part.replace('"', '""') for part in parts)
    return " AND ".join(f'"{part}"' for part in quoted)


def index_texts(transaction: Transaction) -> bool:
    """Add the oldest texts that are not in the index. Return whether there may be more."""
    db = transaction.db
    texts = db.execute(SQL["said_after_index"], (INDEXED_TEXTS,)).fetchall()
    for position, type_, version, raw, owner in texts:
        db.execute(SQL["index_text"], (position, mark_owner(owner) + fold_said(type_, version, raw)))
    if texts:
        db.execute(SQL["move_index"], (texts[-1][0],))
    return len(texts) == INDEXED_TEXTS


def remove_from_index(db: SqliteDatabase, session_id: SessionId) -> None:
    """Remove what was said in a session from the index."""
    for position, type_, version, raw, owner in db.execute(SQL["said_in_session"], (session_id,)).fetchall():
        db.execute(SQL["unindex_text"], (position, mark_owner(owner) + fold_said(type_, version, raw)))
