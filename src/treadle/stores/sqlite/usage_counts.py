"""Usage that one transaction adds, on SQLite."""

from functools import cache

from treadle.stores.sqlite.connection import SQL, SqliteDatabase, Value
from treadle.stores.usage_counts import Rows


class UsageSums:
    """The usage that one transaction adds."""

    def __init__(self) -> None:
        self._rows: Rows = {}

    def add(self, rows: Rows) -> None:
        for key, row in rows.items():
            known = self._rows.get(key)
            self._rows[key] = row if known is None else [one + other for one, other in zip(known, row, strict=True)]

    def write(self, database: SqliteDatabase) -> None:
        """Write all sums with one statement."""
        if self._rows:
            values: list[Value] = []
            for key, row in self._rows.items():
                values += (*key, *row)
            database.execute(_upsert_statement(len(self._rows)), values)
            self._rows = {}


@cache
def _upsert_statement(rows: int) -> str:
    marks = f"({', '.join('?' * 16)})"
    return f"{SQL['count_usage']} {', '.join([marks] * rows)} {SQL['add_usage']}"
