"""`treadle models`: the list, known facts, probes, and one-line errors for invalid settings."""

import socket
from pathlib import Path
from typing import Any

import pytest

from tests.fake_endpoint import Answer, FakeEndpoint, Raw, refuses, says
from tests.surfaces.shell import Shell
from tests.surfaces.test_cli import against
from treadle.domain.providers import ProviderConfig
from treadle.home.model_list import list_providers
from treadle.models.registry import ModelRegistry


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "home")


def test_list_shows_providers_keys_and_aliases(shell: Shell) -> None:
    @against(shell, refuses(200, {"data": [{"id": "m"}]}), refuses(200, {"data": [{"id": "m"}]}))
    async def _(server: FakeEndpoint) -> None:
        shell.environment["OPENROUTER_API_KEY"] = "sk-or-1234"
        shell.environment["OLLAMA_HOST"] = "http://127.0.0.1:9"
        done = await shell("models", "list", "--timeout", "30")
        assert done.code == 0
        rows = {line.split()[0]: line for line in done.out.splitlines() if line}
        assert "set ANTHROPIC_API_KEY" in rows["anthropic"]
        assert rows["openrouter"].endswith("setting  key set, not tried")
        assert rows["ollama"].endswith("probed   could not be reached: the connection failed (Connection refused)")
        assert rows["fake"].endswith("probed   answers with 1 model")
        assert "ready" not in done.out
        assert rows["fake"].split()[1:3] == ["chat_completions", server.url]
        assert rows["sonnet"].split()[-1].startswith("openrouter/")
        assert "sk-or" not in done.out + done.err
        assert "treadle models pull smollm2" in rows["smollm2"]
        listed = (await shell("models", "list", "--json", "--timeout", "30")).json
        assert {row["provider"]: (row["ready"], row["basis"]) for row in listed if "provider" in row} == {
            "anthropic": (False, "setting"),
            "fake": (True, "probed"),
            "ollama": (False, "probed"),
            "openai": (False, "setting"),
            "openrouter": (None, "setting"),
        }
        assert [(request.method, request.path) for request in server.requests] == [("GET", "/v1/models")] * 2
        assert {"provider": "openai", "api_mode": "responses", "ready": False}.items() <= next(
            row for row in listed if row.get("provider") == "openai"
        ).items()


def test_show_prints_the_known_facts_of_a_model(shell: Shell) -> None:
    @against(shell)
    async def _(server: FakeEndpoint) -> None:
        shell.environment["ANTHROPIC_API_KEY"] = "sk-ant-1234"
        done = await shell("models", "show", "sonnet")
        assert done.code == 0
        assert "anthropic/claude-sonnet" in done.out
        assert "per million tokens" in done.out
        assert (await shell("models", "show", "sonnet", "--json")).json[0]["api_mode"] == "anthropic_messages"
        assert "from the built-in catalog" in done.out
        unknown = await shell("models", "show", "fake/m")
        assert "unknown; set it under models in config.yaml" in unknown.out
        assert "200,000 tokens (assumed, because nothing is known about this model)" in unknown.out
        [facts] = (await shell("models", "show", "fake/m", "--json")).json
        assert facts["context_window_source"] == "assumed"


async def test_hosted_providers_are_probed_only_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key goes to the address that it is configured for, and to no other."""

    async with FakeEndpoint(policy=lambda _: refuses(200, {"data": [{"id": "m"}]})) as server:
        port = int(server.url.split(":")[-1].removesuffix("/v1"))
        looked_up: list[str] = []

        def look_up(host: str, *_: object, **__: object) -> Any:
            looked_up.append(host)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        models = ModelRegistry({"OLLAMA_HOST": "http://127.0.0.1:9"})
        hosted = ProviderConfig("http://models.example.com/v1", api_key="sk-canary")
        models.add("hosted", hosted)
        for probe_hosted, expected in (
            (False, (None, "setting", "key set, not tried")),
            (True, (True, "probed")),
        ):
            rows = await list_providers(models, probe_hosted=probe_hosted, timeout_seconds=30)
            [row] = [row for row in rows if row.provider == "hosted"]
            assert (row.ready, row.basis, row.found)[: len(expected)] == expected
            assert bool(server.requests) == probe_hosted
        assert set(looked_up) == {"models.example.com"}
        sent = [request.headers.get("authorization") for request in server.requests]
        assert sorted(map(str, sent)) == ["Bearer sk-canary", "None"]


def test_test_sends_one_request_and_reports_the_answer(shell: Shell) -> None:
    @against(shell, says("ready"), says("ready"))
    async def _(server: FakeEndpoint) -> None:
        done = await shell("models", "test", "fake/m")
        assert (done.code, done.out) == (0, "ready\n")
        assert "fake/m answers: " in done.err
        [result] = (await shell("models", "test", "fake/m", "--json")).json
        assert (result["ok"], result["model"], result["cost"]) == (True, "fake/m", None)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            refuses(401, {"error": {"message": "Incorrect API key"}}),
            "No key was sent: set api_key of provider",
        ),
        (refuses(404, {"error": {"message": "no such model"}}), "Check the model id `m` and the base_url"),
        (Answer([b"<html><title>Welcome</title></html>"], 200, {"Content-Type": "text/html"}), "check base_url"),
        (Answer([b"<html><title>Bad gateway</title></html>"], 502, {}), "an HTML page titled `Bad gateway`"),
        (Raw(b"SSH-2.0\r\n\r\n"), "does not speak HTTP"),
    ],
    ids=["key", "model", "html", "gateway", "not http"],
)
def test_an_error_is_one_line_that_names_the_provider_and_the_next_step(
    shell: Shell, answer: Answer | Raw, words: str
) -> None:
    @against(shell, answer)
    async def _(server: FakeEndpoint) -> None:
        done = await shell("models", "test", "fake/m")
        assert (done.code, done.out) == (1, "")
        line = done.err.splitlines()[-1]
        assert line.startswith("treadle: fake ")
        assert words in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("show", "nowhere/m"), "no provider is called `nowhere`"),
        (("test", "sonnet"), "set the variable ANTHROPIC_API_KEY"),
        (("test", "local/smollm2"), "treadle models pull smollm2"),
        (("pull", "huge"), "No weights are called `huge`"),
        (("test", "m", "--base-url", "nonsense"), "base_url must be an http or https URL"),
    ],
)
def test_errors_that_the_user_can_fix_say_how(shell: Shell, arguments: tuple[str, ...], words: str) -> None:
    @against(shell)
    async def _(server: FakeEndpoint) -> None:
        done = await shell("models", *arguments)
        assert done.code in (1, 2)
        assert done.out == ""
        assert words in done.err
        assert len(done.err.splitlines()) == 1
