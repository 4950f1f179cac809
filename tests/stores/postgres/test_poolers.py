"""PostgreSQL behind pgbouncer, durable commits, servers that accept no writes, and certificates."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.stores.postgres.pgbouncer import pgbouncer
from tests.stores.postgres.servers import tell
from treadle.api.engine import create_engine
from treadle.bootstrap.databases import open_stores_readonly
from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import StoreAway, StoreError
from treadle.operations.readiness import Readiness
from treadle.stores.postgres.connection import connect
from treadle.stores.postgres.database import open_without_migrating
from treadle.system.clock import SystemClock
from treadle.testing.models import ScriptedModel, say


async def test_a_run_completes_behind_a_pooler_in_session_mode(url: str, tmp_path: Path) -> None:
    async def scenario(pooled: str) -> None:
        engine = create_engine(pooled, home=Home(tmp_path / "home"))
        engine.add_model("scripted", ScriptedModel(say("Done.")))
        async with engine:
            assert (await engine.run(AgentSpec("hero", "scripted/x"), "Go.")).text == "Done."
            assert await engine.context.readiness.find_fault() == ""

    with pgbouncer(url, "session") as pooled:
        await scenario(pooled)


@pytest.mark.parametrize("mode", ["transaction", "statement"])
async def test_a_pooler_that_shares_connections_is_refused_in_one_line(url: str, mode: str) -> None:
    async def scenario(pooled: str) -> None:
        with pytest.raises(StoreError) as refused:
            async with open_stores_readonly(pooled):
                pass
        assert "is a pooler in transaction or statement mode" in str(refused.value)
        assert "pool_mode = session" in str(refused.value)
        assert "\n" not in str(refused.value)

    with pgbouncer(url, mode) as pooled:
        await scenario(pooled)


async def test_commits_are_durable_on_every_connection_whatever_the_default(url: str) -> None:
    await tell(url, f"ALTER DATABASE {urlsplit(url).path.lstrip('/')} SET synchronous_commit = off")
    connection = await connect(url)
    assert await connection.fetchval("SHOW synchronous_commit") == "on"
    await connection.close()
    async with open_stores_readonly(url) as stores:
        await stores.verify_writable()
    database = await open_without_migrating(url)  # its pool writes too
    assert await database.run_on_connection(lambda each: each.fetchval("SHOW synchronous_commit")) == "on"
    await database.close()


async def test_a_database_that_accepts_no_writes_is_not_ready(url: str) -> None:
    async with open_stores_readonly(url) as stores:
        name = urlsplit(url).path.lstrip("/")
        assert await Readiness(stores.verify_writable, SystemClock()).find_fault() == ""
        await tell(url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        await tell(
            url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        assert await Readiness(stores.verify_writable, SystemClock()).find_fault() != ""
        with pytest.raises(StoreAway, match=r"accepts no writes.*default_transaction_read_only"):
            await stores.verify_writable()
