"""Deleted sessions: no data is left in the files, and requests for them are refused with the reason."""

from collections.abc import Callable, Coroutine
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.engine.running import agent, opened, until
from treadle.bootstrap.callers import open_owning_caller
from treadle.config.home import Home
from treadle.domain.errors import InvalidState, RunDeleted, SessionDeleted, StoreLocked, UnknownSession
from treadle.domain.ids import RunId, SessionId
from treadle.operations import retention
from treadle.operations.retention import RetentionService
from treadle.stores.sqlite.connection import open_database, open_reader
from treadle.stores.sqlite.deletion import SqliteDeletions
from treadle.stores.sqlite.writer import ThreadWriter
from treadle.system.clock import SystemClock
from treadle.testing.models import ScriptedModel, ScriptStep, Silence, ask, call, say
from treadle.testing.time import FakeClock

CANARY = "zanzibarquokka"
BY = "a test"
KEPT = {"deleted_sessions", "deleted_runs", "agents"}
"""The tables that say that a session was there, and whose it was."""


@treadle.tool(effect="read", repeatable=True)
def look(at: str) -> str:
    return f"{at} " * 12_000


def a_run(about: str) -> list[ScriptStep]:
    """Return the script of a run that answers, calls a tool and saves a memory."""
    return [
        ask(call("look", at=about), text=f"I look for {about}."),
        ask(call("memory_save", text=f"The {about} is blue.")),
        ask(call("journal_write", text=f"Spoke of {about} today.")),
        say(f"That is all there is to know of the {about}."),
    ]


async def talk(folder: Path, *told: tuple[str, str]) -> list[str]:
    """Run agents in these sessions, each about a word. Return the IDs of the runs."""
    hero = agent(
        tools=[look, "memory_save", "journal_write"],
        approvals={"rules": [{"tool": "look", "do": "ask"}]},
        memory={"embedder": "none", "recall": 0},
    )
    callbacks = treadle.Callbacks(on_approval=lambda event: "approve")
    script = [step for _, about in told for step in a_run(about)]
    async with opened(folder, ScriptedModel(*script)) as engine:
        run_ids: list[str] = [
            (await engine.run(hero, f"Tell me of the {about}.", callbacks, session=session, user="ada")).run_id
            for session, about in told
        ]
        while await engine.context.overview.index_texts():
            pass
        return run_ids


def home_of(folder: Path) -> Home:
    return Home(folder / "home", f"sqlite:///{folder}/t.db")


def in_the_files(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.glob("t.db*")))


def rows(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(open_reader(f"{folder}/t.db")) as db:
        return db.execute(sql).fetchall()


async def delete(folder: Path, session: str) -> retention.Deleted:
    async with open_owning_caller(home_of(folder), "Nothing was deleted.") as caller:
        house = caller.context.retention
        return await house.delete_session(SessionId(session), BY)


def count_said(folder: Path, part: str) -> int:
    """Return how many texts in the index of searches have a part."""
    [(count,)] = rows(folder, f"SELECT count(*) FROM said_parts WHERE said_parts MATCH '\"{part}\"'")  # noqa: S608 -- ours
    return count


def of_session(folder: Path, session: str) -> dict[str, int]:
    """Return how many rows of each table name a session or one of its runs in any column."""
    found: dict[str, int] = {}
    with closing(open_reader(f"{folder}/t.db")) as db:
        runs = [row[0] for row in db.execute("SELECT run_id FROM runs WHERE session_id = ?", (session,))]
        tables = (
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'said_parts'"  # it cannot be listed
        )
        for (table,) in db.execute(tables).fetchall():
            for row in db.execute(f'SELECT * FROM "{table}"'):  # noqa: S608 -- the names are our own
                if any(name in str(cell) for cell in row for name in (session, *runs)):
                    found[table] = found.get(table, 0) + 1
    return found


async def test_nothing_of_a_deleted_session_is_left_in_the_files(tmp_path: Path) -> None:
    run_id, other = await talk(tmp_path, ("ses_gone", CANARY), ("ses_kept", "walrus"))
    with closing(open_database(f"{tmp_path}/t.db")) as db:
        body = f'{{"run_id": "{run_id}", "text": "{CANARY}"}}'.encode()
        db.execute("INSERT INTO requests VALUES ('', 'POST /v1/x', 'key', x'00', 5e9, 202, ?)", (body,))
        db.execute("INSERT INTO requests VALUES ('', 'POST /v1/x', 'other', x'00', 5e9, 202, x'7b7d')")
        db.execute("INSERT INTO memory_spaces SELECT 1, agent_id, 'ada', 'any', 2, 9 FROM agents")
        db.execute("INSERT INTO memory_codes SELECT 1, id, x'01' FROM memories")
        db.execute("INSERT INTO memory_vectors SELECT 1, id, x'0102' FROM memories")
    before = in_the_files(tmp_path)
    assert before.count(CANARY.encode()) > 100, "the whole text of the result is there too"
    assert {"events", "runs", "said", "results", "memories"} <= set(of_session(tmp_path, "ses_gone"))
    assert rows(tmp_path, "SELECT count(*) FROM approvals") == [(2,)]
    assert (count_said(tmp_path, "quo"), count_said(tmp_path, "wal")) == (2, 2)
    done = await delete(tmp_path, "ses_gone")
    after = in_the_files(tmp_path)
    assert CANARY.encode() not in after
    assert b"walrus" in after
    assert (count_said(tmp_path, "quo"), count_said(tmp_path, "wal")) == (0, 2)
    assert set(of_session(tmp_path, "ses_gone")) <= KEPT
    assert rows(tmp_path, "SELECT count(*) FROM approvals") == [(1,)]
    assert rows(tmp_path, "SELECT key FROM requests") == [("other",)]
    numbers = rows(tmp_path, "SELECT id FROM memories ORDER BY id")
    assert len(numbers) == 3
    assert rows(tmp_path, "SELECT memory FROM memory_codes ORDER BY memory") == numbers
    assert rows(tmp_path, "SELECT memory FROM memory_vectors ORDER BY memory") == numbers
    [tombstone] = done.tombstones
    assert (tombstone.session_id, tombstone.runs, tombstone.memories) == ("ses_gone", 1, 3)
    assert (tombstone.agent, tombstone.deleted_by) == ("hero", BY)
    assert tombstone.events > 10
    async with opened(tmp_path, ScriptedModel()) as engine:
        with pytest.raises(RunDeleted, match=r"was deleted with its session ses_gone on .* by a test"):
            await engine.service.run(RunId(run_id))
        with pytest.raises(RunDeleted):
            async with aclosing(engine.events(run_id)) as events:
                await anext(events)
        with pytest.raises(SessionDeleted):
            await engine.service.session(SessionId("ses_gone"))
        with pytest.raises(SessionDeleted, match="Start another session"):
            await engine.submit(agent(), "Are you there?", session="ses_gone")
        assert (await engine.wait(other)).text.endswith("walrus.")


async def test_nothing_of_a_deleted_session_is_left_on_shared_pages(tmp_path: Path) -> None:
    """Rows of many sessions, large and small, stand on the same pages, which were split and moved meanwhile."""

    told = [(f"ses_{number % 7}", f"{CANARY if number % 7 == 3 else 'pangolin'}{number}") for number in range(28)]
    await talk(tmp_path, *told)
    await delete(tmp_path, "ses_3")
    assert CANARY.encode() not in in_the_files(tmp_path)
    assert rows(tmp_path, "PRAGMA integrity_check") == [("ok",)]
    assert rows(tmp_path, "PRAGMA foreign_key_check") == []
    with closing(open_database(f"{tmp_path}/t.db")) as db:
        db.execute("INSERT INTO memory_words (memory_words) VALUES ('integrity-check')")
    assert (count_said(tmp_path, "quo"), count_said(tmp_path, "pan")) == (0, 48)


async def test_deleting_a_session_with_a_run_in_progress_is_refused_with_advice(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(Silence("so far"))) as engine:
        run_id = await engine.submit(agent(), "go", session="ses_1")
        await until(engine, run_id, "token")
        await engine.interrupt(run_id)
        await until(engine, run_id, "run_waiting")
    before = of_session(tmp_path, "ses_1")
    with pytest.raises(InvalidState, match=f"treadle runs cancel {run_id}"):
        await delete(tmp_path, "ses_1")
    assert of_session(tmp_path, "ses_1") == before
    with pytest.raises(UnknownSession, match="sessions list"):
        await delete(tmp_path, "ses_9")


async def test_a_second_deletion_says_that_the_session_is_deleted(tmp_path: Path) -> None:
    await talk(tmp_path, ("ses_1", "walrus"))
    await delete(tmp_path, "ses_1")
    with pytest.raises(SessionDeleted, match="by a test"):
        await delete(tmp_path, "ses_1")


async def test_sessions_that_recalled_its_memories_are_named(tmp_path: Path) -> None:
    hero = agent(memory={"embedder": "none"})
    async with opened(tmp_path, ScriptedModel(say("Ada likes green tea."), say("Green tea."))) as engine:
        await engine.run(hero, "What does Ada like to drink?", session="ses_1", user="ada")
        await engine.run(hero, "What was it that Ada likes to drink?", session="ses_2", user="ada")
    assert (await delete(tmp_path, "ses_1")).recalled_in == ("ses_2",)


async def test_a_reader_at_the_end_misses_no_event_after_a_deletion(tmp_path: Path) -> None:
    await talk(tmp_path, ("ses_1", "walrus"), ("ses_2", "heron"))
    [(last,)] = rows(tmp_path, "SELECT max(position) FROM events")
    await delete(tmp_path, "ses_2")
    await talk(tmp_path, ("ses_3", "stork"))
    stork = "SELECT min(position) FROM events JOIN runs ON runs.id = run WHERE session_id = 'ses_3'"
    assert rows(tmp_path, stork) == [(last + 1,)]
    [(last,)] = rows(tmp_path, "SELECT max(position) FROM events")
    await delete(tmp_path, "ses_1")
    await delete(tmp_path, "ses_3")
    await talk(tmp_path, ("ses_4", "crane"))
    assert rows(tmp_path, "SELECT min(position) FROM events") == [(last + 1,)], "though none was left"


async def test_child_sessions_are_deleted_and_shared_ones_are_kept(tmp_path: Path) -> None:
    parent, *_ = await talk(tmp_path, *((f"ses_{name}", "walrus") for name in ("top", "child", "shared", "alone")))
    with closing(open_database(f"{tmp_path}/t.db")) as db:
        for session in ("ses_child", "ses_shared"):
            db.execute("UPDATE runs SET parent_run_id = ? WHERE session_id = ?", (parent, session))
    await talk(tmp_path, ("ses_shared", "heron"))
    done = await delete(tmp_path, "ses_top")
    assert [tombstone.session_id for tombstone in done.tombstones] == ["ses_top", "ses_child"]
    assert rows(tmp_path, "SELECT DISTINCT session_id FROM runs ORDER BY id") == [
        ("ses_shared",),
        ("ses_alone",),
    ]


# ── In the process that owns the database ──


async def with_a_writer(folder: Path, work: Callable[[SqliteDeletions], Coroutine[Any, Any, None]]) -> None:
    path = f"{folder}/t.db"
    writer = ThreadWriter(open_database(path), open_reader(path), path, lambda lost: None)
    try:
        await work(SqliteDeletions(writer, path, SystemClock()))
    finally:
        await writer.close()


async def test_the_write_ahead_log_is_truncated_while_the_owner_works(tmp_path: Path) -> None:
    await talk(tmp_path, ("ses_1", CANARY), ("ses_2", "walrus"))

    async def work(deletions: SqliteDeletions) -> None:
        await RetentionService(deletions, SystemClock()).delete_session(SessionId("ses_1"), BY)
        assert (tmp_path / "t.db-wal").stat().st_size == 0
        assert CANARY.encode() not in in_the_files(tmp_path)

    await with_a_writer(tmp_path, work)


async def test_a_reader_that_keeps_old_pages_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.stores.sqlite.deletion.BUSY_TIMEOUT_MS", 50)

    await talk(tmp_path, ("ses_1", CANARY), ("ses_2", "walrus"))

    async def work(deletions: SqliteDeletions) -> None:
        house = RetentionService(deletions, SystemClock())
        with closing(open_reader(f"{tmp_path}/t.db")) as reader:
            reader.execute("BEGIN; SELECT count(*) FROM runs")
            with pytest.raises(StoreLocked, match=r"The session is deleted, but copies .* reading it"):
                await house.delete_session(SessionId("ses_1"), BY)
        await house.prune(36500 * 86400.0, None, BY)
        assert CANARY.encode() not in in_the_files(tmp_path)

    await with_a_writer(tmp_path, work)


# ── Pruning ──


async def test_only_old_and_ended_sessions_are_pruned_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "SESSIONS_AT_ONCE", 2)
    day = 86_400.0

    for days_ago in (100, 50, 0):
        clock = FakeClock(SystemClock().now() - days_ago * day)
        script = [say("Yes.") for _ in range(5)]
        async with opened(tmp_path, ScriptedModel(*script), clock=clock) as engine:
            for number in range(5):
                name = "other" if number == 4 else "hero"
                await engine.run(agent(name=name), f"{CANARY}{days_ago}", session=f"ses_{days_ago}_{number}")
    async with opened(tmp_path, ScriptedModel(say("Again.")), clock=FakeClock(SystemClock().now())) as engine:
        await engine.run(agent(), "Are you there still?", session="ses_100_0")
    with closing(open_database(f"{tmp_path}/t.db")) as db:
        db.execute("INSERT INTO requests VALUES ('', 'POST /v1/x', 'old', x'00', 5.0, 200, x'7b7d')")
    told: list[tuple[int, int]] = []
    async with open_owning_caller(home_of(tmp_path)) as caller:
        house = caller.context.retention
        assert [idle.session_id for idle in await house.idle(90 * day, "other")] == ["ses_100_4"]
        assert len(await house.idle(90 * day)) == 4
        assert len(await house.idle(40 * day)) == 9
        done = await house.prune(90 * day, "hero", BY, lambda so_far, of: told.append((so_far, of)))
        assert (done.sessions, done.runs, done.requests) == (3, 3, 1)
        assert told == [(0, 3), (2, 3)]
        assert (await house.prune(90 * day, None, BY)).sessions == 1
        assert (await house.prune(90 * day, None, BY)) == retention.Pruned()
    left = [session for (session,) in rows(tmp_path, "SELECT DISTINCT session_id FROM runs")]
    assert len(left) == 11
    assert "ses_100_0" in left, "it was used today"


async def test_a_session_that_was_used_meanwhile_is_kept(tmp_path: Path) -> None:
    await talk(tmp_path, ("ses_1", "walrus"), ("ses_2", "heron"))
    [(at,)] = rows(
        tmp_path, "SELECT max(timestamp) FROM events JOIN runs ON runs.id = run WHERE session_id = 'ses_1'"
    )

    async def work(deletions: SqliteDeletions) -> None:
        both = [SessionId("ses_1"), SessionId("ses_2"), SessionId("ses_none")]
        assert [buried.session_id for buried in await deletions.prune(both, at + 0.0001, BY)] == ["ses_1"]

    await with_a_writer(tmp_path, work)


async def test_an_open_engine_deletes_while_other_runs_continue(tmp_path: Path) -> None:
    model = ScriptedModel(say(f"The {CANARY} is blue."), Silence("so far"), say("Go on."))
    async with opened(tmp_path, model) as engine:
        await engine.run(agent(), f"What of the {CANARY}?", session="ses_1")
        run_id = await engine.submit(agent(), "go", session="ses_2")
        await until(engine, run_id, "token")
        await engine.context.retention.delete_session(SessionId("ses_1"), BY)
        assert CANARY.encode() not in in_the_files(tmp_path)
        await engine.steer(run_id, "Never mind.", "interrupt")
        result = await engine.wait(run_id)
        assert result.text.endswith("Go on.")
        async with aclosing(engine.events(run_id)) as events:
            sequences = [event.sequence async for event in events if event.durable]
        assert sequences == list(range(1, len(sequences) + 1))
