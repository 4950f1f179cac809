"""Migration of a home from SQLite to PostgreSQL: complete, or nothing is visible, wherever it is interrupted."""

import asyncio
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from tests.patience import HANG_SECONDS
from tests.stores.postgres.harness import KeptOnServer
from tests.stores.postgres.servers import tell
from tests.surfaces.shell import Shell
from tests.testing.harnesses import KeptOnFile
from treadle.domain.agents import AgentSpec, Limits
from treadle.domain.envelope import Origin
from treadle.domain.errors import StoreDamaged, StoreError, StoreOwned, UsageError
from treadle.domain.events import ApprovalDecided, ApprovalRequested, LlmRequest, RunQueued, RunStart, SegmentOpened
from treadle.domain.ids import ApprovalId, RunId, SegmentId, SessionId, TokenId
from treadle.ports.access import IdempotentRequest, SignIn, StoredResponse, TokenRecord
from treadle.ports.accounts import Ceilings, Reserve
from treadle.stores.migrate import migration as moving
from treadle.stores.migrate.migration import LOCK_ID, Progress, migrate_database
from treadle.stores.migrate.tables import NOT_MIGRATED, TABLES
from treadle.stores.postgres.driver import open_connection
from treadle.stores.sqlite.connection import open_database, open_reader
from treadle.stores.sqlite.lock import DatabaseLock
from treadle.surfaces.cli.commands.migrate import migrate
from treadle.testing.conformance.automation import DAILY, HOOK, LETTER, NOON, WEBHOOK
from treadle.testing.conformance.memories import MemoryStoreUnderTest, make_memory, make_unit_vector
from treadle.testing.conformance.store_harness import AGENT, OWN, FullStoreProcess, open_full_store

MADE_ANEW = {"memories": ["words"], "deleted_sessions": ["position"]}
"""Columns of SQLite that PostgreSQL makes itself, or keeps elsewhere."""
MINE = SessionId("ses_own")
BESIDE = """
INSERT INTO agent_versions VALUES ('ada', 1, 'name: ada' || char(0), 1.5, 'anna', 'restore', 1);
INSERT INTO agent_labels VALUES ('ada', 'production', 1, 2.5, 'anna');
INSERT INTO shared_skills VALUES ('tidy', 'ab', x'00ff', 3.5, 'anna');
INSERT INTO evaluations VALUES ('eva_1', 'main', 1.5, '{}', x'7b7d');
INSERT INTO feedback VALUES ('fbk_1', 1, 'anna', 0.5, 'n' || char(0), 2.5);
INSERT INTO session_notes VALUES ('ses_top', '/w', 'n' || char(0));
INSERT INTO results (session_id, run, call_id, content) SELECT session_id, id, 'c', 'long' || char(0) FROM runs;
INSERT INTO deaths VALUES ('worker-1', 2, 3.5, 1);
INSERT INTO warnings VALUES ('token/x', 'credits', 1.5, 2.5);
INSERT INTO accounts VALUES ('token/x', 0.1, 0.2);
INSERT INTO windows VALUES ('token/x', 'calls', 1800000000, 4);
INSERT INTO usage VALUES (20000, 'ada', '', 'p/m', 'alice', '["vip"]', 1, 2, 3, 4, 5, 6, 7, 0.125, 0.25, 0);
INSERT INTO channel_people VALUES ('telegram', '11', 'Anna', 'anna', '["direct"]', 1.5);
INSERT INTO channel_codes VALUES ('ABCDEFGH', 'telegram', '12', 'Ben', '12', 2.5, '', '[]');
INSERT INTO channel_conversations VALUES ('telegram', '11', 'ses_top', 'anna', 1);
INSERT INTO channel_cursors VALUES ('matrix', 's1_2');
INSERT INTO channel_inbox (channel, message_id, conversation, received_at, content, state)
VALUES ('telegram', '11/1', '11', 1.5, '{"message_id":"11/1","conversation":"11","sender":"11"}', 'new');
INSERT INTO channel_outbox (channel, key, conversation, state, created_at, content)
VALUES ('telegram', 'k', '11', 'ready', 1.5, '{"key":"k","conversation":"11","text":"hi"}');
"""


LABELLED = RunQueued(
    AgentSpec("bound", "p/m", limits=Limits(cost=100.0)), tags=("vip",), metadata={"ticket": "4=2 é"}
)


class MigrationStopped(Exception):
    """The move was broken off here."""


async def fill_store(desk: FullStoreProcess) -> None:
    """Write something to every table."""
    kept = desk.kept
    await desk.store.agent("ada", AGENT)
    await desk.end(await desk.claimed("ses_gone"), 2)
    await kept.deletions.delete(SessionId("ses_gone"), "a person")
    claim = await desk.claimed("ses_top")
    asked = ApprovalRequested(
        approval_id=ApprovalId("apr_1"),
        call_id="call",
        name="bash",
        arguments="{}",
        reason="why",
        pattern="ls *",
        expires_at=None,
    )
    opened = SegmentOpened(SegmentId("seg_2"), SegmentId("seg_1"), "compaction", 3)
    await desk.advance(claim, 2, [RunStart((), (), "notes", "/work"), opened], [asked])
    answer = desk.draft(ApprovalDecided(ApprovalId("apr_1"), "approve", remember="session"))
    await desk.store.deliver(claim.origin.run_id, answer, "k\x00")
    await desk.end(claim, 6, "what was s\x00id")
    run_id = await desk.store.submit(desk.origin(MINE), (desk.draft(LABELLED), *desk.opening()[1:]), "key")
    mine = await desk.claim(run_id)
    ceilings = (Ceilings("agent/bound", cost=100.0),)
    wants = Reserve(ceilings, 1, 1, tokens=5, cost=1.0)
    await desk.advance(mine, 2, [], [LlmRequest(1, 1, "p", "m", 1)], reserve=wants)
    await desk.submit("ses_waiting")
    await kept.memories.add([make_memory(n, f"fact {n} n\x00") for n in range(7)])
    shelf = MemoryStoreUnderTest(kept.memories)
    await shelf.embed(*(make_unit_vector(1, n, 0.5) for n in range(7)))
    await kept.memories.forget(["mem_6"])
    await kept.tokens.add(TokenRecord(TokenId("tok_1"), "one", ("read",), None, 1.0), b"digest")
    await kept.sign_ins.add(SignIn("sgn_1", TokenId("tok_1"), 1.0, 2.0), b"cookie")
    for key in ("a", "b"):
        await kept.requests.begin(IdempotentRequest(None, "POST", key), b"d", 5e9)
    await kept.requests.answer(IdempotentRequest(None, "POST", "b"), StoredResponse(b"d", 202, b"\x00\xff"))
    await kept.schedules.keep(DAILY)
    await kept.schedules.begin(DAILY, NOON, NOON + 60)
    await kept.hooks.add(HOOK)
    await kept.webhooks.add(WEBHOOK)
    await kept.webhooks.move(WEBHOOK, LETTER)


@pytest.fixture
def home(tmp_path: Path) -> str:
    async def make() -> None:
        async with open_full_store(KeptOnFile(tmp_path)) as desk:
            await fill_store(desk)

    asyncio.run(make())
    path = str(tmp_path / "conformance.db")
    with closing(open_database(path)) as db:
        db.execute(BESIDE)
    return path


def count_tables(path: str) -> dict[str, int]:
    with closing(open_reader(path)) as db:
        return {table.name: db.execute(table.select_count).fetchall()[0][0] for table in TABLES}


async def schemas(url: str) -> set[str]:
    connection = await open_connection(url, 10, {})
    try:
        found = await connection.fetch("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'treadle%'")
        return {row[0] for row in found}
    finally:
        await connection.close()


async def check_target(url: str, old: KeptOnFile) -> None:
    """Check that the target has the data of the source, and that runs continue."""
    async with open_full_store(old) as here, open_full_store(KeptOnServer(url)) as there:
        runs = await here.store.find()
        assert await there.store.find() == runs
        assert [placed.position for placed in await there.store.after(0)] == [
            placed.position for placed in await here.store.after(0)
        ]
        for record in runs:
            run_id = record.origin.run_id
            assert await there.gapless(run_id) == await here.gapless(run_id)
            assert await there.store.history(run_id) == await here.store.history(run_id)
        assert await there.memories.list() == await here.memories.list()
        one, other = MemoryStoreUnderTest(here.memories), MemoryStoreUnderTest(there.memories)
        assert await other.find_matching("fact", 9) == await one.find_matching("fact", 9)
        asked = (OWN, "test", make_unit_vector(1, 3, 0.4), 4)
        assert await other.near(*asked) == await one.near(*asked)
        assert not (await other.read_overview(OWN, "test")).is_behind
        assert await there.kept.tokens.list() == await here.kept.tokens.list()
        assert await there.kept.schedules.list() == await here.kept.schedules.list()
        assert await there.kept.hooks.list() == await here.kept.hooks.list()
        assert await there.kept.webhooks.list() == await here.kept.webhooks.list()
        assert await there.kept.webhooks.list_letters(WEBHOOK.webhook_id) == [LETTER]
        again = IdempotentRequest(None, "POST", "b")
        assert (await there.kept.requests.begin(again, b"x", 1.0)).body == b"\x00\xff"
        before = await here.store.position()
        new = Origin(RunId("run_new"), SessionId("ses_new"), AGENT)
        await there.store.submit(new, there.opening())
        assert [placed.position for placed in await there.store.after(before)] == [before + 1, before + 2]
        await there.memories.add([make_memory(50, "new")])
        [pending] = await other.list_unembedded(OWN, "test", 3, 5)
        assert pending.number == 8, "no number is given twice"


def test_every_table_is_migrated(home: str) -> None:
    with closing(open_reader(home)) as db:
        found = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        columns = {name: {row[1] for row in db.execute(f"PRAGMA table_info({name})")} for name in found}
    indexes = ("sqlite_", "memory_words", "said_parts")
    ours = {name for name in found if not name.startswith(indexes)}
    assert ours | NOT_MIGRATED == {table.name for table in TABLES} | NOT_MIGRATED
    for table in TABLES:
        moved = {*table.columns, *table.source.values(), *MADE_ANEW.get(table.name, ())}
        assert columns[table.name] <= moved, table.name
    assert [name for name, rows in count_tables(home).items() if rows == 0] == [], (
        "or these tests show nothing of it"
    )


async def test_a_home_is_migrated_with_its_whole_history(home: str, bare: str) -> None:
    told: list[tuple[str, int, int]] = []
    before = count_tables(home)
    moved = await migrate_database(home, bare, lambda table, done, total: told.append((table, done, total)))
    assert dict(moved.tables) == before == count_tables(home)
    assert moved.rows == sum(before.values())
    assert {table: done for table, done, total in told if done == total} == before
    assert await schemas(bare) == {"treadle"}
    await check_target(bare, KeptOnFile(Path(home).parent))


async def test_an_interrupted_migration_resumes_where_it_stopped(
    home: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target was opened once and is empty."""
    monkeypatch.setattr(moving, "MAX_BATCH_ROWS", 3)
    parts: list[tuple[str, int]] = []

    def one_more(known: int) -> Progress:
        """Stops after a few more parts than there were."""

        def told(table: str, done: int, _: int) -> None:
            if (table, done) not in parts:
                parts.append((table, done))
            if len(parts) > known + 4:
                raise MigrationStopped

        return told

    times = 0
    while True:
        try:
            moved = await migrate_database(home, url, one_more(len(parts)))
        except MigrationStopped:
            times += 1
            assert await schemas(url) == {"treadle", "treadle_moving"}
        else:
            break
    assert times > 5
    assert dict(moved.tables) == count_tables(home)
    assert await schemas(url) == {"treadle"}
    await check_target(url, KeptOnFile(Path(home).parent))


KILLED = """
import asyncio, os, signal, sys
from treadle.stores.migrate import migration as moving

def die(table, done, total):
    if table == "events" and done >= 6:
        os.kill(os.getpid(), signal.SIGKILL)

moving.MAX_BATCH_ROWS = 3
asyncio.run(moving.migrate_database(sys.argv[1], sys.argv[2], die))
"""


def migrate_until_killed(home: str, url: str) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, home, url], timeout=HANG_SECONDS, check=False)
    assert killed.returncode == -signal.SIGKILL


async def test_a_killed_migration_resumes_where_it_stopped(home: str, bare: str) -> None:
    migrate_until_killed(home, bare)
    told: dict[str, int] = {}

    def first_told(table: str, done: int, _: int) -> None:
        told.setdefault(table, done)

    moved = await migrate_database(home, bare, first_told)
    assert (told["runs"], told["events"], told["said"]) == (count_tables(home)["runs"], 6, 0), "from where it was"
    assert dict(moved.tables) == count_tables(home)


async def test_a_target_that_is_not_empty_is_left_alone(home: str, url: str) -> None:
    await tell(url, "INSERT INTO treadle.agents VALUES ('agt_1', 'ada')")
    with pytest.raises(UsageError, match=r"is not empty: treadle\.agents contains rows"):
        await migrate_database(home, url)
    assert await schemas(url) == {"treadle"}


async def test_a_target_that_is_used_during_the_migration_is_left_alone(home: str, bare: str) -> None:
    def use(table: str, done: int, total: int) -> None:
        if table == "dead_letters" and done == total:
            raise MigrationStopped

    with pytest.raises(MigrationStopped):
        await migrate_database(home, bare, use)
    async with open_full_store(KeptOnServer(bare)) as desk:
        await desk.submit()
    with pytest.raises(UsageError, match="is not empty"):
        await migrate_database(home, bare)


async def test_a_migration_of_another_or_changed_home_is_not_resumed(home: str, bare: str) -> None:
    def stop(table: str, done: int, _: int) -> None:
        if table == "events" and done:
            raise MigrationStopped

    with pytest.raises(MigrationStopped):
        await migrate_database(home, bare, stop)
    with closing(open_database(home)) as db:
        db.execute("DELETE FROM events WHERE position = (SELECT max(position) FROM events)")
    with pytest.raises(UsageError, match=r"has changed since.*DROP SCHEMA treadle_moving CASCADE"):
        await migrate_database(home, bare)
    await tell(bare, "DROP SCHEMA treadle_moving CASCADE")
    await migrate_database(home, bare)


async def test_a_copy_that_differs_is_not_published(home: str, bare: str) -> None:
    def stop(table: str, _: int, __: int) -> None:
        if table == "hooks":
            raise MigrationStopped

    with pytest.raises(MigrationStopped):
        await migrate_database(home, bare, stop)
    spoils = (
        "CREATE FUNCTION treadle_moving.spoils() RETURNS TRIGGER LANGUAGE plpgsql AS $$ "
        "BEGIN NEW.name := 'another'; RETURN NEW; END $$",
        "CREATE TRIGGER spoils BEFORE INSERT ON treadle_moving.hooks FOR EACH ROW "
        "EXECUTE FUNCTION treadle_moving.spoils()",
    )
    await tell(bare, *spoils)
    with pytest.raises(StoreDamaged, match="The copy of hooks differs from"):
        await migrate_database(home, bare)
    assert await schemas(bare) == {"treadle_moving"}


async def test_a_source_that_is_owned_or_missing_is_refused(home: str, bare: str) -> None:
    lock = DatabaseLock(home)
    with pytest.raises(StoreOwned, match="Nothing was migrated"):
        await migrate_database(home, bare)
    lock.release()
    with pytest.raises(UsageError, match="There is no database at"):
        await migrate_database(f"{home}x", bare)
    assert await schemas(bare) == set()


async def test_concurrent_migrations_to_one_target_are_refused(home: str, bare: str) -> None:
    other = await open_connection(bare, 10, {})
    await other.execute(f"SELECT pg_advisory_lock({LOCK_ID})")
    with pytest.raises(StoreError, match="Another migration"):
        await migrate_database(home, bare)
    await other.close()


# ── As a user meets it ─────────────────────────────────────────────────────────────────────────────


async def test_the_command_migrates_a_home_and_says_what_to_do_next(home: str, bare: str, tmp_path: Path) -> None:
    done = await Shell(tmp_path / "home")("migrate", f"sqlite:///{home}", bare)
    assert (done.code, done.out) == (0, ""), done
    assert "Copied and verified, row by row: 3 runs, " in done.err
    assert "set TREADLE_DATABASE_URL" in done.err


async def test_the_report_is_available_as_json(
    home: str, bare: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert await migrate(f"sqlite:///{home}", bare, json=True) == 0
    told = msgspec.json.decode(capsysbinary.readouterr().out)
    assert (told["tables"], told["rows"]) == (count_tables(home), sum(count_tables(home).values()))


async def test_only_migrations_from_sqlite_to_postgresql_are_accepted(home: str, bare: str) -> None:
    with pytest.raises(UsageError, match="cannot be migrated; accepted: sqlite:///PATH"):
        await migrate(bare, bare, json=False)
    with pytest.raises(UsageError, match=r"`postgresql://ada@host/x` cannot be migrated"):
        await migrate("postgresql://ada:p%40ss@host/x", bare, json=False)
    with pytest.raises(UsageError, match="accepted: postgresql://USER@HOST"):
        await migrate(f"sqlite:///{home}", f"sqlite:///{home}x", json=False)
