"""A running owner sees a changed config.yaml, and keeps its settings when the file is invalid."""

import asyncio
import os
from pathlib import Path

import treadle
from tests.fake_endpoint import FakeEndpoint, says
from tests.surfaces.http.process import Serving
from tests.surfaces.http.served_home import serve_home, write_home
from tests.surfaces.shell import Shell
from treadle.config.home import Home
from treadle.config.live_config import ConfigChange


def write(file: Path, text: str) -> None:
    """Write a file as if it had been a while ago: one that has only just changed may be half written."""
    file.write_text(text)
    seconds = file.stat().st_mtime - 10
    os.utime(file, (seconds, seconds))


def test_a_server_reports_whether_a_changed_file_was_applied(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeEndpoint(policy=lambda _: says("Done.")) as endpoint:
            write_home(tmp_path / "home", endpoint.url)
            file, serving = tmp_path / "home" / "config.yaml", Serving(Shell(tmp_path / "home"))
            await asyncio.to_thread(serving.start)
            valid = file.read_text()
            write(file, "providers: {fake: {base_uri: x}}")
            said = await asyncio.to_thread(serving.wait_for_note, "config.yaml has changed")
            assert "is not used" in said
            assert "base_uri" in said
            assert "The settings from before stay in use." in said
            async with treadle.AsyncClient(serving.url, token=serving.token) as client:
                assert (await client.run("one", "Hello.")).text == "Done."
            write(file, f"{valid[:-1]}, aliases: {{quick: [fake/q]}}, server: {{drain_seconds: 5}}}}")
            said = await asyncio.to_thread(serving.wait_for_note, "config.yaml has changed")
            assert said == "config.yaml has changed: aliases in use now; server at the next start.\n"
            assert (await serving.shell("run", "--agent", "one", "-m", "quick", "Hello.")).out == "Done.\n"
            assert endpoint.requests[-1].json["model"] == "q"
            serving.stop()

    asyncio.run(scenario())


def test_providers_are_added_changed_and_removed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serve_home(tmp_path) as web, FakeEndpoint(policy=lambda _: says("Other.")) as other:
            file = web.home.config_file
            before = file.read_text()
            changed = f"{{providers: {{fake: {{base_url: '{other.url}', api_key: x}}}}, house_rules: Be brief.}}"
            write(file, changed)
            await web.until(await web.begin(), "completed")
            [request] = other.requests
            assert "Be brief." in request.json["messages"][0]["content"]
            write(file, "{}")
            refused = await web.ask("POST", "/v1/agents/one/runs", {"message": "Go."})
            assert refused.status >= 400, refused
            write(file, before)
            await web.until(await web.begin(), "completed")
            assert len(other.requests) == 1

    asyncio.run(scenario())


def test_a_file_that_is_written_again_without_a_change_is_not_reported(tmp_path: Path) -> None:
    home = Home(tmp_path).with_live_config()
    seen: list[ConfigChange] = []
    assert home.live is not None
    home.live.listeners.append(seen.append)
    write(home.config_file, "{house_rules: Be brief.}")
    assert home.config().house_rules == "Be brief."
    write(home.config_file, "house_rules:   Be brief.")
    home.config()
    assert [change.sections for change in seen] == [("house_rules",)]
    home.config_file.unlink()
    assert home.config().house_rules == ""
