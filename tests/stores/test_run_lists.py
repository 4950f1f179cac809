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
from treadle.stores.search_parts import hash_part, list_parts, mark_owner
from treadle.stores.sqlite.connection import open_database
from treadle.stores.sqlite.run_lists import find_runs
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
    "tag, and words of the message": RunFilter(labels=Labels(("mine",)), text="zanz"),
    "words of the message": RunFilter(text="ZANZ"),
    "words of the message of a user": RunFilter(text="zanzibar", owners=("alice",)),
    "cost": RunFilter(min_cost=9.0),
    "words and cost": RunFilter(min_cost=9.0, text="zanzibar"),
    "agent": RunFilter(agents=("rare",)),
    "outcome": RunFilter(outcome="stuck"),
    "status": RunFilter(status="failed"),
    "status and outcome": RunFilter(status="failed", outcome="stuck"),
    "time": RunFilter(since=1e6 + 0.5, until=1e6 + 3.5),
    "unfinished": RunFilter(unfinished=True),
    "status of unfinished runs": RunFilter(status="waiting"),
}
UNFINISHED = ("unfinished", "status of unfinished runs")
RUNS = """
INSERT INTO runs (id, run_id, session_id, agent_id, created_at, status, outcome, epoch, owner)
WITH RECURSIVE n (i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {last})
SELECT i, 'run_' || i, 'ses', '{agent}', i + 1000000 - {middle}, '{status}', {outcome}, 0, '{owner}' FROM n;
INSERT INTO run_summaries (run, message, cost)
SELECT id, '{text}', {cost} FROM runs WHERE id BETWEEN {first} AND {last};
INSERT INTO events (position, run, sequence, event_id, timestamp, type, version, data)
OVERRIDING SYSTEM VALUE
SELECT id, id, 1, 'evt_' || id, 1, 'user_message', 1, {data} FROM runs WHERE id BETWEEN {first} AND {last};
INSERT INTO said_parts ({columns}) SELECT id, '{said}'{cast} FROM runs WHERE id BETWEEN {first} AND {last};
"""
LABEL = """
INSERT INTO run_labels (key, value, run, owner)
SELECT '{key}', '{value}', id, owner FROM runs WHERE id BETWEEN {first} AND {last};
"""


class Filling:
    """Statements that add runs of others with a common tag, and among them three that a filter looks for."""

    def __init__(self, others: int, has_ended: bool) -> None:
        self.middle, self.others = others // 2, others
        mine = ("failed", "'stuck'") if has_ended else ("waiting", "NULL")
        self._mine = {"owner": "alice", "agent": "agt_rare", "text": "zanzibar", "cost": 9.5}
        self._mine |= {"status": mine[0], "outcome": mine[1]}
        self._of_others = {"owner": "bob", "agent": "agt_common", "text": "hello", "cost": 0.1}
        self._of_others |= {"status": "completed", "outcome": "'completed'"}

    def write(self, *, is_postgres: bool) -> str:
        middle = self.middle
        statements = (
            "INSERT INTO agents (agent_id, name) VALUES ('agt_rare', 'rare'), ('agt_common', 'common');",
            self._add(1, middle, self._of_others, is_postgres),
            self._add(middle + 1, middle + 3, self._mine, is_postgres),
            self._add(middle + 4, self.others, self._of_others, is_postgres),
            "UPDATE said_index SET position = (SELECT max(position) FROM events);",
            LABEL.format(key="", value="common", first=1, last=self.others),
            LABEL.format(key="", value="mine", first=middle + 1, last=middle + 3),
            LABEL.format(key="ticket", value="42", first=middle + 1, last=middle + 3),
        )
        return "".join(statements)

    def _add(self, first: int, last: int, facts: dict[str, Any], is_postgres: bool) -> str:
        said = mark_owner(facts["owner"]) + facts["text"]
        index = {"columns": "rowid, text", "said": said, "cast": "", "data": "x'7B7D'"}
        if is_postgres:
            parts = ",".join(str(hash_part(part)) for part in list_parts(said))
            index = {"columns": "position, parts", "said": f"{{{parts}}}", "cast": "::INTEGER[]"}
            index |= {"data": "'{}'"}
        written = RUNS.format(first=first, last=last, middle=self.middle, **facts, **index)
        if is_postgres:
            return written.replace("WITH RECURSIVE", "OVERRIDING SYSTEM VALUE WITH RECURSIVE")
        return written.replace("OVERRIDING SYSTEM VALUE\n", "")

    @property
    def expected(self) -> list[str]:
        return [f"run_{self.middle + number}" for number in (3, 2, 1)]


def list_names(has_ended: bool) -> list[str]:
    return [name for name in FILTERS if (name in UNFINISHED) != has_ended]


def count_steps(others: int, has_ended: bool) -> dict[str, int]:
    """Return how many steps SQLite takes for each filter."""
    filling, found = Filling(others, has_ended), dict[str, int]()
    with closing(open_database(":memory:")) as database:
        database.execute("PRAGMA foreign_keys = OFF")
        database.execute(filling.write(is_postgres=False))
        steps = 0

        def count() -> bool:
            nonlocal steps
            steps += 1
            return False

        cast(apsw.Connection, database).set_progress_handler(count, 10)
        for name in list_names(has_ended):
            steps = 0
            rows = find_runs(database, FILTERS[name], 50)
            assert [row[0] for row in rows] == filling.expected, name
            found[name] = steps
    return found


@pytest.mark.parametrize("has_ended", [True, False], ids=["ended", "unfinished"])
def test_sqlite_reads_only_runs_that_match(has_ended: bool) -> None:
    few, many = count_steps(40, has_ended), count_steps(OTHERS, has_ended)
    assert {name: (steps, many[name]) for name, steps in few.items() if not 5 < many[name] <= steps + 5} == {}


@pytest.mark.parametrize("has_ended", [True, False], ids=["ended", "unfinished"])
async def test_postgres_reads_only_runs_that_match(has_ended: bool, url: str) -> None:
    filling, read = Filling(OTHERS, has_ended), dict[str, float]()
    async with opened(url, Recorder(), FakeClock()) as (journal, database, _):
        connection = await database.connect()
        try:
            await connection.execute(filling.write(is_postgres=True))
            await connection.execute("ANALYZE")
            for name in list_names(has_ended):
                wanted = FILTERS[name]
                few, agents = await journal.find_few(wanted), await journal.find_agents(wanted)
                statement, values = choose_find_statement(wanted, 50, agents, few)
                explain = f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {SQL[statement]}"
                [[plan]] = await connection.fetch(explain, *values)
                read[name] = count_rows(msgspec.json.decode(plan)[0]["Plan"])
                found = await journal.find(wanted)
                assert [record.origin.run_id for record in found] == filling.expected, name
        finally:
            await connection.close()
    assert {name: rows for name, rows in read.items() if rows >= 60} == {}


def count_rows(node: dict[str, Any]) -> float:
    """Return how many rows a plan read, with those that it dropped."""
    own = node["Actual Rows"] + sum(count for key, count in node.items() if key.startswith("Rows Removed"))
    return own * node["Actual Loops"] + sum(map(count_rows, node.get("Plans", ())))
