"""What the doctor says about channels: as the owner has them now, and as the last one recorded it."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.channels.fake_telegram import TOKEN, FakeTelegram, serve_fake_telegram
from tests.channels.home import telegram_settings, write_home
from tests.channels.test_telegram import echo
from tests.engine.running import opened
from tests.patience import HANG_SECONDS
from treadle.bootstrap.databases import open_stores_exclusively
from treadle.config.home import Home
from treadle.doctor.channels import describe_channels
from treadle.ports.channel_store import ChannelState


async def test_the_state_is_recorded_and_shown_after_the_server_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.channels.runner.FIRST_BACKOFF_SECONDS", 0.01)

    fake = FakeTelegram()
    async with asyncio.timeout(HANG_SECONDS), serve_fake_telegram(fake):
        write_home(tmp_path, {"telegram": telegram_settings(fake)}, {"TELEGRAM_TOKEN": "wrong-token-1"})
        async with opened(tmp_path, echo()) as engine:
            manager = engine.context.channels()
            async with manager.run_in_background():
                while (await manager.list())[0].status != "failed":  # noqa: ASYNC110 -- a state of the process
                    await asyncio.sleep(0.01)
                [view] = await manager.list()
                assert (view.recorded, view.since is None) == (None, False), "this process holds it"
            store = engine.context.channels()
            [view] = await store.list()
            assert view.recorded is not None
            assert view.recorded.status == "stopped"


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("connected", "connected as @bot since 1970-01-01 00:01 UTC"),
        ("failed", "not connected since 1970-01-01 00:01 UTC, reconnecting: no network"),
    ],
)
async def test_the_record_of_a_killed_server_is_kept(tmp_path: Path, status: str, said: str) -> None:
    channel = {"agent": "hero", "settings": {"token": "{{vault:T}}"}}
    home = Home(write_home(tmp_path, {"telegram": channel}, {"T": TOKEN}))
    [finding] = await describe_channels(home)
    assert (finding.state, finding.basis) == ("set", "setting"), "nothing was recorded yet"
    async with open_stores_exclusively(home, "") as stores:
        state = ChannelState(
            channel="telegram",
            status="connected",
            account="@bot",
            reason="no network",
            since=60.0,
            retry_at=None,
            recorded_at=70.0,
        )
        await stores.channels.save_state(replace(state, status=status))
    [finding] = await describe_channels(home)
    assert (finding.state, finding.basis) == ("note", "recorded")
    assert finding.found == f"no server holds the connection (probed); the last one recorded: {said}"
