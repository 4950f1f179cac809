"""Lists of runs: what a filter by label costs does not depend on the runs that do not match."""

from contextlib import closing
from typing import Any, cast

import apsw
import msgspec
import pytest

from tests.stores.postgres.harness import opened
from treadle.domain.labels import Labels
from treadle.ports.journal import RunFilter
from treadle.stores.postgres.database import SQL
from treadle.stores.postgres.runs import choose_find_statement
from treadle.stores.sqlite.connection import open_database
from treadle.stores.sqlite.run_lists import make_find_statement
from treadle.testing.conformance.store import Recorder
from treadle.testing.time import FakeClock

OTHERS = 4000
FILTERS = {
    "tag": RunFilter(labels=Labels(("mine",))),
    "metadata": RunFilter(labels=Labels((), {"ticket": "42"})),
    "tag and metadata": RunFilter(labels=Labels(("common",), {"ticket": "42"})),
    "tag of a user": RunFilter(labels=Labels(("common",)), owners=("alice",)),
    "user": RunFilter(owners=("alice",)),
    "users": RunFilter(owners=("alice", "tok/alice")),
    "tag, and words of the message": RunFilter(labels=Labels(("mine",)), text="hello"),
}
RUNS = """
INSERT INTO runs (id, run_id, session_id, agent_id, created_at, status, epoch, owner)
WITH RECURSIVE n (i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {last})
SELECT i, 'run_' || i, 'ses', 'agt', i, 'completed', 0, '{owner}' FROM n;
INSERT INTO run_summaries (run, message) SELECT id, 'hello' FROM runs WHERE id BETWEEN {first} AND {last};
"""
LABEL = """
INSERT INTO run_labels (key, value, run, owner)
SELECT '{key}', '{value}', id, owner FROM runs WHERE id BETWEEN {first} AND {last};
"""


def fill(others: int) -> str:
    """Return statements that add runs of others with a common tag, and among them three that a filter looks for."""
    mine = others // 2
    return "".join(
        (
            RUNS.format(first=1, last=mine, owner="bob"),
            RUNS.format(first=mine + 1, last=mine + 3, owner="alice"),
            RUNS.format(first=mine + 4, last=others, owner="bob"),
            LABEL.format(key="", value="common", first=1, last=others),
            LABEL.format(key="", value="mine", first=mine + 1, last=mine + 3),
            LABEL.format(key="ticket", value="42", first=mine + 1, last=mine + 3),
        )
    )


@pytest.mark.parametrize("name", FILTERS)
def test_sqlite_reads_only_runs_that_match(name: str) -> None:
    def count_steps(others: int) -> int:
        with closing(open_database(":memory:")) as database:
            database.execute("PRAGMA foreign_keys = OFF")
            database.execute(fill(others))
            steps = 0

            def count() -> bool:
                nonlocal steps
                steps += 1
                return False

            cast("apsw.Connection", database).set_progress_handler(count, 10)
            statement, values = make_find_statement(FILTERS[name], 50)
            found = database.execute(statement, values).fetchall()
            assert [row[0] for row in found] == [f"run_{others // 2 + number}" for number in (3, 2, 1)]
            return steps

    few, many = count_steps(40), count_steps(OTHERS)
    assert few > 5
    assert many <= few + 5


@pytest.mark.parametrize("name", FILTERS)
async def test_postgres_reads_only_runs_that_match(name: str, url: str) -> None:
    async with opened(url, Recorder(), FakeClock()) as (journal, database, _):
        connection = await database.connect()
        try:
            forced = "OVERRIDING SYSTEM VALUE WITH RECURSIVE"
            await connection.execute(fill(OTHERS).replace("WITH RECURSIVE", forced))
            await connection.execute("ANALYZE")
            statement, values = choose_find_statement(FILTERS[name], 50)
            explain = f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {SQL[statement]}"
            [[plan]] = await connection.fetch(explain, *values)
            found = await journal.find(FILTERS[name])
        finally:
            await connection.close()
    assert [record.origin.run_id for record in found] == [f"run_{OTHERS // 2 + number}" for number in (3, 2, 1)]
    assert count_rows(msgspec.json.decode(plan)[0]["Plan"]) < 60


def count_rows(node: dict[str, Any]) -> float:
    """Return how many rows a plan read, with those that it dropped."""
    own = node["Actual Rows"] + sum(count for key, count in node.items() if key.startswith("Rows Removed"))
    return own * node["Actual Loops"] + sum(map(count_rows, node.get("Plans", ())))
