"""Opening a database on a server: it is migrated once, or the error says why not."""

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from tests.stores.postgres.servers import of_database, of_user, tell
from treadle.bootstrap.databases import read_server_facts
from treadle.domain.errors import StoreAway, StoreError, StoreNewer, StoreOutdated, UsageError
from treadle.stores.baseline import LAST_COMMIT_BEFORE_BASELINE
from treadle.stores.postgres import connection as connecting
from treadle.stores.postgres.connection import escape_nul, escape_nul_json, explain, redact_url, unescape_nul
from treadle.stores.postgres.database import open_database
from treadle.stores.postgres.driver import open_connection
from treadle.stores.postgres.schema import (
    BASELINE_VERSION,
    current_version,
    load_functions,
    load_migrations,
    migrate,
)


async def ask(url: str, statement: str) -> Any:
    connection = await open_connection(url, 10, {"search_path": "treadle"})
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def opened(url: str) -> None:
    await (await open_database(url)).close()


async def test_an_empty_database_is_initialised(bare: str) -> None:
    await opened(bare)
    assert await ask(bare, "SELECT max(version) FROM schema_versions") == current_version()
    assert await ask(bare, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0


async def test_concurrent_migrations_run_once(bare: str) -> None:
    await asyncio.gather(*(migrate(bare) for _ in range(5)))
    assert await ask(bare, "SELECT count(*) FROM schema_versions") == 1


async def test_a_failed_migration_leaves_no_schema(bare: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = [*load_migrations(), "CREATE TABLE more (x INTEGER); SELECT 1 / 0"]
    monkeypatch.setattr("treadle.stores.postgres.schema.load_migrations", lambda: broken)
    with pytest.raises(StoreError, match="division by zero"):
        await migrate(bare)
    assert await ask(bare, "SELECT count(*) FROM pg_namespace WHERE nspname = 'treadle'") == 0


MADE = """
SELECT string_agg(what, E'\\n' ORDER BY what) FROM (
    SELECT format('%s.%s %s %s %s', table_name, column_name, data_type, is_nullable, column_default)
    FROM information_schema.columns WHERE table_schema = 'treadle'
    UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'treadle'
    UNION ALL SELECT oid::REGPROCEDURE::TEXT FROM pg_proc WHERE pronamespace = 'treadle'::REGNAMESPACE
) AS all_of_it (what)
"""
LATER = "ALTER TABLE runs ADD COLUMN colour TEXT NOT NULL DEFAULT 'blue'"


async def test_a_later_migration_changes_a_database_of_the_baseline_and_keeps_its_rows(
    bare: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To what a new database has, and nothing else."""
    await tell(url, "INSERT INTO treadle.agents VALUES ('agt_1', 'ada')")
    known, version = load_migrations(), current_version() + 1
    monkeypatch.setattr("treadle.stores.postgres.schema.load_migrations", lambda: [*known, LATER])
    await opened(bare)
    wanted = await ask(bare, MADE)
    assert "runs.colour text NO 'blue'::text" in wanted
    assert await ask(url, MADE) != wanted
    await opened(url)
    assert await ask(url, "SELECT max(version) FROM schema_versions") == version
    assert await ask(url, MADE) == wanted
    assert await ask(url, "SELECT name FROM agents") == "ada"
    monkeypatch.setattr("treadle.stores.postgres.schema.load_migrations", lambda: known)
    with pytest.raises(StoreNewer, match=f"schema version {version}; this one supports"):
        await opened(url)


async def read_all(url: str) -> dict[str, str]:
    """Return all rows of the database, by table."""
    tables = "SELECT array_agg(tablename ORDER BY tablename) FROM pg_tables WHERE schemaname = 'treadle'"
    row = "SELECT string_agg(one::TEXT, E'\\n' ORDER BY one::TEXT) FROM treadle.{} AS one"
    return {table: await ask(url, row.format(table)) for table in await ask(url, tables)}


@pytest.mark.parametrize("version", [1, BASELINE_VERSION - 1])
async def test_a_database_from_before_the_baseline_is_refused_and_left_alone(url: str, version: int) -> None:
    await tell(
        url,
        "INSERT INTO treadle.agents VALUES ('agt_1', 'ada')",
        f"UPDATE treadle.schema_versions SET version = {version:d}, functions = 'other'",  # noqa: S608 -- a number
    )
    before = await ask(url, MADE), await read_all(url)
    assert before[1]["agents"] == "(agt_1,ada,running)"
    for scenario in (opened(url), migrate(url), read_server_facts(url, 1)):
        with pytest.raises(StoreOutdated) as refused:
            await scenario
        assert f"{redact_url(url)} is from before the first release (schema version {version})" in str(
            refused.value
        )
        assert f"Check out commit {LAST_COMMIT_BEFORE_BASELINE} " in str(refused.value)
    assert (await ask(url, MADE), await read_all(url)) == before


async def test_a_later_version_is_refused(url: str) -> None:
    await tell(url, "INSERT INTO treadle.schema_versions VALUES (99, '')")
    with pytest.raises(StoreNewer, match="schema version 99"):
        await opened(url)


async def test_changed_functions_are_replaced(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    more = load_functions() + "\nCREATE FUNCTION greet() RETURNS TEXT LANGUAGE sql AS $$ SELECT 'hello' $$;"
    monkeypatch.setattr("treadle.stores.postgres.schema.load_functions", lambda: more)
    await opened(url)
    assert await ask(url, "SELECT greet()") == "hello"


async def test_an_unreachable_server_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StoreAway, match=r"ada@127\.0\.0\.1:1/x cannot be reached.*TREADLE_DATABASE_URL"):
        await opened("postgresql://ada:secret@127.0.0.1:1/x")
    with pytest.raises(StoreAway, match="cannot be reached"):
        await opened(f"postgresql://ada@/x?host={tmp_path}")


async def test_a_missing_database_is_reported(url: str) -> None:
    with pytest.raises(StoreError, match="createdb nowhere"):
        await opened(of_database(url, "nowhere"))


async def test_the_default_database_name_is_the_user_and_the_password_is_not_shown(bare: str) -> None:
    await tell(bare, "DROP ROLE IF EXISTS treadle_lost", "CREATE ROLE treadle_lost LOGIN PASSWORD 'canary'")
    lost = of_user(urlsplit(bare)._replace(path="").geturl(), "treadle_lost", "canary")
    try:
        with pytest.raises(StoreError, match="createdb treadle_lost") as refused:
            await opened(lost)
        assert "canary" not in str(refused.value)
    finally:
        await tell(bare, "DROP ROLE treadle_lost")


async def test_a_rejected_login_is_reported(url: str) -> None:
    nobody = of_user(url, "nobody", "secret")
    with pytest.raises(StoreError, match="rejected the connection") as refused:
        await opened(nobody)
    assert "secret" not in str(refused.value)


async def test_missing_rights_of_the_user_are_named(bare: str) -> None:
    await tell(bare, "DROP ROLE IF EXISTS treadle_guest", "CREATE ROLE treadle_guest LOGIN PASSWORD 'x'")
    guest = of_user(bare, "treadle_guest", "x")
    try:
        for scenario in (opened(guest), read_server_facts(guest, 1)):
            with pytest.raises(
                StoreError, match=r"Make the user the owner of the database, or of its schema treadle"
            ):
                await scenario
        await tell(bare, "CREATE SCHEMA treadle AUTHORIZATION treadle_guest")
        assert (await read_server_facts(guest, 1))[0] is None
        await opened(guest)
        facts, *_ = await read_server_facts(guest, 1)
        assert facts is not None
    finally:
        await tell(bare, "DROP OWNED BY treadle_guest", "DROP ROLE treadle_guest")


async def test_an_old_server_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "MIN_SERVER_VERSION", 99)
    with pytest.raises(StoreError, match="needs 99 or newer"):
        await opened(url)


@pytest.mark.parametrize(
    "url", ["postgresql://host:port/x", "postgresql://127.0.0.1:99999/x", "postgresql://[::1/x"]
)
async def test_an_invalid_url_is_reported(url: str) -> None:
    with pytest.raises(UsageError, match="accepted: postgresql://"):
        await opened(url)


@pytest.mark.parametrize("sign", ["/", "?", "#", "@"])
async def test_a_password_with_a_reserved_character_is_not_shown(sign: str) -> None:
    url = f"postgresql://ada:canary{sign}canary@host/x"
    for scenario in (opened(url), read_server_facts(url, 1)):
        with pytest.raises(UsageError, match=r"`postgresql://ada@host/x` is not a database URL.* %2F") as told:
            await scenario
        assert "canary" not in str(told.value)


async def test_commits_are_synchronous_whatever_the_server_settings(url: str) -> None:
    name = urlsplit(url).path.lstrip("/")
    await tell(url, f"ALTER DATABASE {name} SET synchronous_commit = off")

    async def setting() -> Any:
        connection = await connecting.connect(url)
        try:
            return await connection.fetchval("SHOW synchronous_commit")
        finally:
            await connection.close()

    assert await setting() == "on"


def test_a_password_is_never_shown() -> None:
    assert (
        redact_url("postgresql://ada:p%40ss@host:5432/x?sslmode=require")
        == "postgresql://ada@host:5432/x?sslmode=require"
    )
    assert redact_url("postgresql:///x?host=/tmp") == "postgresql:///x?host=/tmp"
    assert redact_url("postgresql://host/x?password=p%40ss&a=b") == "postgresql://host/x?password=***&a=b"
    assert redact_url("postgresql://host/x?sslpassword=p%40ss") == "postgresql://host/x?sslpassword=***"
    assert "p%40ss" not in str(explain(OSError("no route"), "postgresql://ada:p%40ss@host/x"))


@pytest.mark.parametrize("text", ["", "a\x00b", "\x1a", "\x1a0", "\x1a\x1a0\x00", "\\u0000", "\\\x00", "é"])
def test_any_text_can_be_stored(text: str) -> None:
    assert "\x00" not in escape_nul(text)
    assert unescape_nul(escape_nul(text)) == text
    assert msgspec.json.decode(escape_nul_json(msgspec.json.encode([text]))) == [escape_nul(text)]
