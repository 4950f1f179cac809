"""What an administrator sees of tokens, schedules, secrets, quotas, workers and backups."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.fake_endpoint import Answer, says
from tests.patience import HANG_SECONDS
from tests.surfaces.http.served_home import serve_home
from treadle.backup.home_backup import restore
from treadle.config.home import Home
from treadle.domain.quotas import Quotas
from treadle.operations import token_service


async def until(check: Callable[[], Awaitable[object]]) -> None:
    """Ask until the answer is true."""
    async with asyncio.timeout(HANG_SECONDS):
        while not await check():
            pass


BROKEN = Answer([b"{}"], 400, {"Content-Type": "application/json"}, framing="length")


async def test_the_last_use_of_a_token_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve_home(tmp_path) as server:

        async def read_use() -> str | None:
            [found] = [
                each for each in (await server.ask("GET", "/v1/tokens")).json["items"] if each["name"] == "someone"
            ]
            return found["last_used_at"]

        token = await server.mint("read")
        assert await read_use() is None
        assert (await server.ask("GET", "/v1/runs", token=token)).status == 200
        await until(read_use)
        first = await read_use()
        await server.ask("GET", "/v1/runs", token=token)
        assert await read_use() == first  # at most once per minute
        monkeypatch.setattr(token_service, "USE_SECONDS", 0.0)
        await server.ask("GET", "/v1/runs", token=token)

        async def is_later() -> bool:
            return await read_use() != first

        await until(is_later)


async def test_a_schedule_shows_its_next_ticks_and_its_runs(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        made = {"agent": "one", "message": "Go.", "every": "0 9 * * 1-5", "zone": "Europe/Berlin"}
        daily = (await server.ask("POST", "/v1/schedules", made)).json
        upcoming = [datetime.fromisoformat(each) for each in daily["upcoming"]]
        assert daily["upcoming"][0] == daily["next_at"]
        assert len(upcoming) == 5
        assert upcoming == sorted(upcoming)
        assert {each.minute for each in upcoming} == {0}
        paused = (await server.ask("POST", f"/v1/schedules/{daily['schedule_id']}/pause")).json
        assert (paused["next_at"], paused["upcoming"]) == (None, [])
        often = (await server.ask("POST", "/v1/schedules", {"agent": "one", "message": "Go.", "every": 1})).json
        path = f"/v1/runs?metadata=schedule={often['schedule_id']}"
        async with server.engine.context.automation().run_in_background():

            async def find_runs() -> list[object]:
                return (await server.ask("GET", path)).json["items"]

            await until(find_runs)
            await server.ask("POST", f"/v1/schedules/{often['schedule_id']}/pause")
        other = f"/v1/runs?metadata=schedule={daily['schedule_id']}"
        assert (await server.ask("GET", other)).json["items"] == []


async def test_secrets_of_webhooks_are_marked(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        await server.ask("PUT", "/v1/vault/HOOK_OF_MINE", {"value": "a long secret"})
        await server.ask("POST", "/v1/hooks", {"name": "x", "agent": "one", "message": "Go."})
        await server.ask("POST", "/v1/webhooks", {"url": "https://example.org/x"})
        found = (await server.ask("GET", "/v1/vault")).json["items"]
        assert sorted(each["is_of_webhook"] for each in found) == [False, True, True]
        assert [each["name"] for each in found if not each["is_of_webhook"]] == ["HOOK_OF_MINE"]


async def test_quotas_show_what_remains(tmp_path: Path) -> None:
    prices = "models: {fake/m: {prices: {input: 1, output: 1}}}\n"
    async with serve_home(tmp_path, more=prices) as server:
        agent = server.home.path / "agents" / "one" / "config.yaml"
        agent.write_text(f"{agent.read_text()}quotas: {{max_llm_tokens_per_hour: 10000, credits: 5}}\n")
        limited = await server.mint("read", "run", quotas=Quotas(credits=2.0))
        run_id = await server.begin()
        await server.until(run_id, "completed")
        found = (await server.ask("GET", "/v1/usage/quotas")).json["items"]
        assert [(each["of"], each["kind"], each["ceiling"]) for each in found] == [
            ("agent", "tokens", 10000),
            ("agent", "credits", 5),
            ("token", "credits", 2),
        ]
        tokens = found[0]
        assert 0 < tokens["used"] == 10000 - tokens["remaining"]
        seen = (await server.ask("GET", "/v1/usage/quotas", token=limited)).json["items"]
        assert [each["of"] for each in seen] == ["agent", "agent", "token"]
        alone = await server.mint("read", visibility="own", quotas=Quotas(credits=1.0))
        [own] = (await server.ask("GET", "/v1/usage/quotas", token=alone)).json["items"]
        assert (own["of"], own["ceiling"]) == ("token", 1.0)
        other = await server.mint("read", agents=("two",))
        assert (await server.ask("GET", "/v1/usage/quotas", token=other)).json["items"] == []


async def test_speed_counts_ended_runs_by_agent_and_model(tmp_path: Path) -> None:
    async with serve_home(tmp_path, says("Done."), BROKEN) as server:
        await server.until(await server.begin(tags=["a"]), "completed")
        await server.until(await server.begin(), "failed")
        today = datetime.now(UTC).date()
        [agent] = (await server.ask("GET", f"/v1/usage/speed?since={today}&until={today}")).json["items"]
        assert (agent["key"], agent["runs"], agent["failed"]) == ("one", 2, 1)
        assert agent["duration_ms"]["p50"] <= agent["duration_ms"]["p95"]
        [model] = (await server.ask("GET", "/v1/usage/speed?by=model&tag=a")).json["items"]
        assert (model["runs"], model["failed"]) == (1, 0)
        later = today + timedelta(days=2)
        assert (await server.ask("GET", f"/v1/usage/speed?since={later}")).json["items"] == []
        stranger = await server.mint("read", visibility="own")
        assert (await server.ask("GET", "/v1/usage/speed", token=stranger)).json["items"] == []


async def test_the_owner_of_the_home_is_its_worker(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        [worker] = (await server.ask("GET", "/v1/system/workers")).json["items"]
        assert worker["worker"].split(":")[1] == str(os.getpid())
        assert (worker["runs"], worker["lease_until"]) == (0, None)
        assert worker["version"]
        assert worker["connected_at"]


async def test_a_backup_is_made_listed_restored_and_removed(tmp_path: Path) -> None:
    async with serve_home(tmp_path, says("Done.")) as server:
        run_id = await server.begin()
        await server.until(run_id, "completed")
        assert (await server.ask("GET", "/v1/backups")).json["items"] == []
        made = await asyncio.gather(*[server.ask("POST", "/v1/backups") for _ in range(2)])
        assert [each.status for each in made] == [201, 201]
        listed = (await server.ask("GET", "/v1/backups")).json["items"]
        assert sorted(each["name"] for each in listed) == sorted(each.json["name"] for each in made)
        file = Path(listed[0]["path"])
        assert listed[0]["bytes"] == file.stat().st_size
        assert (file.stat().st_mode & 0o077, file.parent.stat().st_mode & 0o077) == (0, 0)
        assert (await server.ask("DELETE", f"/v1/backups/{listed[1]['name']}")).status == 204
        for name in (listed[1]["name"], "..%2Ftreadle.db", "treadle.db"):
            assert (await server.ask("DELETE", f"/v1/backups/{name}")).status == 404
        assert (await server.ask("POST", "/v1/backups", token=await server.mint("read", "run"))).status == 403
        restored = restore(Home(tmp_path / "restored"), file, replace=False)
        assert restored.manifest.database is not None
        assert restored.manifest.database.runs == 1
