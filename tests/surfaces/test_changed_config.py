"""A running owner sees a changed config.yaml, and keeps its settings when the file is invalid."""

import asyncio
import os
import time
from pathlib import Path

import treadle
from tests.fake_endpoint import PAUSE, Answer, FakeEndpoint, says
from tests.surfaces.http.process import Serving
from tests.surfaces.http.served_home import serve_home, write_home
from tests.surfaces.shell import Shell
from tests.surfaces.terminal import CTRL_D, Terminal
from treadle.config.home import Home
from treadle.config.live_config import ConfigChange
from treadle.config.shared_settings import describe_settings


def write(file: Path, text: str) -> None:
    """Write a file as if it had been a while ago: one that has only just changed may be half written."""
    file.write_text(text)
    seconds = file.stat().st_mtime - 10
    os.utime(file, (seconds, seconds))


async def test_a_server_reports_whether_a_changed_file_was_applied(tmp_path: Path) -> None:
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
        write(file, f"{valid}aliases: {{quick: [fake/q]}}\nserver: {{drain_seconds: 5}}\n")
        said = await asyncio.to_thread(serving.wait_for_note, "config.yaml has changed")
        assert said == "config.yaml has changed: aliases in use now; server at the next start.\n"
        assert (await serving.shell("run", "--agent", "one", "-m", "quick", "Hello.")).out == "Done.\n"
        assert endpoint.requests[-1].json["model"] == "q"
        serving.stop()


async def test_providers_are_added_changed_and_removed(tmp_path: Path) -> None:
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
    assert home.config().house_rules == "Be brief.", "an editor may be about to write it"
    home.live.monotonic = lambda: time.monotonic() + 1
    assert home.config().house_rules == ""


def test_a_file_that_is_empty_for_a_moment_is_not_applied(tmp_path: Path) -> None:
    write(tmp_path / "config.yaml", "house_rules: Be brief.")
    home = Home(tmp_path).with_live_config()
    assert home.live is not None
    write(home.config_file, "")
    assert home.config().house_rules == "Be brief."
    write(home.config_file, "house_rules: Be kind.")
    assert home.config().house_rules == "Be kind."
    write(home.config_file, "")
    assert home.config().house_rules == "Be kind."
    home.live.monotonic = lambda: time.monotonic() + 1
    assert home.config().house_rules == ""


# ── Commands while the file is invalid ──

INVALID = "providers: {fake: {base_uri: x}}"
ATTACHING = (
    "run --json Hello.",
    "run -a two Hello.",
    "run -a one -m quick --session keep Hello.",
    "run -c Hello.",
    "runs fork last --json",
    "agents list",
    "agents show two --json",
    "agents create three --model fake/m",
    "memory add fact",
    "memory list",
    "memory search fact",
    "schedules list",
    "webhooks list",
    "open --print",
    "mcp serve",
)
"""Commands that read config.yaml and attach to the owner."""
NOT_READING = (
    "runs list",
    "runs show last",
    "sessions list",
    "sessions rename keep Title",
    "schedules add 1h Hello. -a one",
    "webhooks add http://127.0.0.1:9/ --event run_end",
    "usage",
    "approvals list",
)
"""Commands that do not need config.yaml."""


async def test_commands_attached_to_an_owner_continue_while_the_file_is_invalid(tmp_path: Path) -> None:
    async with FakeEndpoint(policy=lambda _: says("Done.")) as endpoint:
        shell = Shell(tmp_path / "home")
        write_home(shell.home, endpoint.url)
        shell.write("agents/two/config.yaml", "name: two\n")
        file, serving = shell.home / "config.yaml", Serving(shell)
        provider = f"{{base_url: '{endpoint.url}', api_key: x}}"
        settings = "aliases: {quick: [fake/q]}, webhooks: {allow_local: true}"
        write(file, f"{{providers: {{fake: {provider}}}, defaults: {{model: fake/m}}, {settings}}}")
        await asyncio.to_thread(serving.start)
        write(file, INVALID)
        for words in (*ATTACHING, *NOT_READING):
            done = await shell(*words.split())
            assert done.code == 0, (words, done)
            warnings = [line for line in done.err.splitlines() if "is invalid" in line]
            assert len(warnings) == (words in ATTACHING), (words, done)
            for line in warnings:
                start = "config.yaml is invalid; the running owner still uses the previous settings: "
                assert line.startswith(f"{start}{file}: providers.fake.base_uri is not a known key"), line
        models = [request.json["model"] for request in endpoint.requests]
        assert models == ["m", "m", "q", "m", "m"]
        refused = await shell("serve")
        assert "base_uri" in refused.complaint
        serving.stop()
        for words in ATTACHING:
            if not words.startswith(("memory", "agents", "schedules", "webhooks", "open")):
                refused = await shell(*words.split())
                assert refused.complaint.startswith(f"{file}: providers.fake.base_uri"), (words, refused)


async def test_a_command_that_owns_the_home_is_an_owner_too(tmp_path: Path) -> None:
    slow = Answer([PAUSE, *says("First.").pieces])
    async with FakeEndpoint(slow, says("Second.")) as endpoint:
        shell = Shell(tmp_path / "home", endpoint.url).configure()
        owner = shell.start("run", "Hello.")
        await endpoint.asked.wait()
        write(shell.home / "config.yaml", INVALID)
        second = await shell("run", "Hello.")
        assert (second.code, second.out) == (0, "Second.\n"), second
        assert "the running owner still uses the previous settings" in second.err
        endpoint.go_on.set()
        out, _ = await asyncio.to_thread(owner.communicate)
        assert out == b"First.\n"
        assert "base_uri" in (await shell("run", "Hello.")).complaint


async def test_a_conversation_attached_to_an_owner_continues_while_the_file_is_invalid(tmp_path: Path) -> None:
    async with FakeEndpoint(policy=lambda _: says("All is well.")) as endpoint:
        shell = Shell(tmp_path / "home", endpoint.url).configure()
        serving = Serving(shell)
        await asyncio.to_thread(serving.start)
        write(shell.home / "config.yaml", INVALID)
        async with Terminal(shell, "chat", "--inline", folder=tmp_path) as terminal:
            await terminal.shows("the running owner still uses the previous")
            await terminal.shows("> ")
            terminal.types("Hello.\n")
            await terminal.shows("All is well.")
            terminal.types(CTRL_D)
            assert await terminal.ends() == 0
        serving.stop()


def test_the_settings_of_the_owner_have_no_secrets(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.config_file.write_text(
        """
providers:
  fake: {base_url: 'https://me:hidden@host/v1?key=hidden', api_key: hidden, api_keys: [hidden],
         headers: {x: hidden}, api_key_env: FAKE_KEY, needs_key: true}
mcp_servers: {files: {command: serve, args: [hidden], env: {KEY: hidden}}}
channels: {telegram: {settings: {token: hidden}}}
defaults: {model: fake/m}
"""
    )
    settings = describe_settings(home.config())
    assert "hidden" not in repr(settings)
    assert settings["providers"] == {"fake": {"base_url": "https://host/v1"}}
    assert settings["defaults"]["model"] == "fake/m"
