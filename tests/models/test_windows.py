"""The context window of a model on the user's own server is requested, not assumed."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.engine.running import journal
from tests.fake_endpoint import Answer, Behaviour, FakeEndpoint, Request, Silence, says
from treadle.api.engine import create_engine
from treadle.config.home import Home
from treadle.domain.events import ModelResolved
from treadle.domain.models import UNKNOWN_WINDOW
from treadle.domain.providers import ProviderConfig
from treadle.models import windows
from treadle.models.windows import Window, can_report_window, fetch_window

PROPS: dict[str, Any] = {
    "default_generation_settings": {"n_ctx": 8192, "params": {}},
    "total_slots": 1,
    "model_path": "m.gguf",
}
LOADED: dict[str, Any] = {"models": [{"name": "qwen3:8b", "model": "qwen3:8b", "size": 1, "context_length": 4096}]}
SHOWN: dict[str, Any] = {
    "parameters": 'stop    "<|im_end|>"\nnum_ctx                        16384\ntemperature 0.6',
    "model_info": {"general.architecture": "qwen3", "qwen3.context_length": 40960},
}
TRAINED: dict[str, Any] = {"model_info": {"general.architecture": "qwen3", "qwen3.context_length": 40960}}


class Server:
    """Answers by path; what it does not know is not found."""

    def __init__(
        self, answers: Mapping[str, Any], headers: Mapping[str, str] | None = None, is_ollama: bool = False
    ) -> None:
        self._answers = answers
        self._is_ollama = is_ollama
        self._headers = headers or {}
        self.paths: list[str] = []

    def __call__(self, request: Request) -> Behaviour:
        path = request.path.partition("?")[0]
        self.paths.append(path)
        if path == "/v1/chat/completions":
            answer = says("fine")
            if self._is_ollama:
                printed = b'{"system_fingerprint": "fp_ollama", "id"'
                answer = answer._replace(pieces=[re.sub(rb'\{"id"', printed, piece) for piece in answer.pieces])
            return answer._replace(headers={**answer.headers, **self._headers})
        found = self._answers.get(path)
        if isinstance(found, Silence):
            return found
        body = json.dumps(found or {"error": "not found"}).encode()
        return Answer([body], 200 if found else 404, {"Content-Type": "application/json"}, framing="length")


STATED: list[tuple[dict[str, Any], Window | None]] = [
    ({"/props": PROPS}, Window(8192, in_force=True)),
    ({"/api/ps": LOADED, "/api/show": TRAINED}, Window(4096, in_force=True)),
    ({"/api/ps": {"models": []}, "/api/show": SHOWN}, Window(16384, in_force=True)),
    ({"/api/ps": {"models": []}, "/api/show": TRAINED}, Window(40960, in_force=False)),
    ({"/api/ps": {"models": []}}, None),
    ({"/props": {"default_generation_settings": {"n_ctx": -1}}}, None),
    ({"/props": ["odd"]}, None),
    ({}, None),
]


@pytest.mark.parametrize(("answers", "window"), STATED)
async def test_the_window_is_read_from_each_server(answers: dict[str, Any], window: Window | None) -> None:
    server = Server(answers)

    async def run() -> Window | None:
        async with FakeEndpoint(policy=server) as endpoint:
            return await fetch_window(endpoint.url, "qwen3:8b", {})

    assert await run() == window
    if "/api/ps" not in answers:
        assert "/api/show" not in server.paths, "only Ollama is sent a body"


async def test_a_server_that_does_not_answer_has_no_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "REQUEST_TIMEOUT_SECONDS", 0.05)

    async def run() -> Window | None:
        async with FakeEndpoint(policy=Server({"/props": Silence(), "/api/ps": Silence()})) as endpoint:
            return await fetch_window(endpoint.url, "m", {})

    assert await run() is None
    assert await fetch_window("http://127.0.0.1:9/v1", "m", {}) is None


@pytest.mark.parametrize(
    ("config", "server", "tells"),
    [
        (ProviderConfig("http://127.0.0.1:11434/v1"), "", True),
        (ProviderConfig("http://192.168.1.5:11434/v1"), "", True),
        (ProviderConfig("http://localhost:8080/v1"), "", True),
        (ProviderConfig("http://ollama:11434/v1"), "", True),
        (ProviderConfig("http://my-pc:11434/v1"), "", True),
        (ProviderConfig("http://nas.home.arpa:11434/v1"), "", True),
        (ProviderConfig("http://100.64.0.3:11434/v1"), "", True),
        (ProviderConfig("http://foo.localhost:11434/v1"), "", True),
        (ProviderConfig("http://llama:8000/v1"), "", True),
        (ProviderConfig("http://ollama.lan/v1"), "", True),
        (ProviderConfig("http://127.0.0.1:12434/v1"), "ollama", True),
        (ProviderConfig("http://127.0.0.1:12434/v1"), "uvicorn", False),
        (ProviderConfig("https://ollama.com/v1"), "ollama", False),
        (ProviderConfig("http://10.0.0.2:9000/v1", local=True), "", True),
        (ProviderConfig("http://10.0.0.2:9000/v1"), "llama.cpp", True),
        (ProviderConfig("http://10.0.0.2:9000/v1"), "", False),
        (ProviderConfig("https://api.example.com:8080/v1"), "", False),
        (ProviderConfig("https://openrouter.ai/api/v1"), "cloudflare", False),
    ],
)
def test_only_local_servers_are_asked_for_their_window(config: ProviderConfig, server: str, tells: bool) -> None:
    assert can_report_window(config, server) is tells


async def run_and_list_windows(server: Server, tmp_path: Path, runs: int, **config: Any) -> list[list[int]]:
    """The context windows on record of each of several runs."""

    found: list[list[int]] = []
    async with FakeEndpoint(policy=server) as endpoint:
        engine = create_engine("sqlite:///:memory:", home=Home(tmp_path / "home"))
        engine.add_provider("own", base_url=endpoint.url, **config)
        async with engine:
            for _ in range(runs):
                result = await engine.run(treadle.Agent(name="hero", model="own/qwen3:8b"), "hello")
                assert result.outcome == "completed"
                events = await journal(engine, result.run_id)
                found.append([e.data.context_window for e in events if isinstance(e.data, ModelResolved)])
    return found


async def test_a_run_uses_the_window_that_the_server_states(tmp_path: Path) -> None:
    server = Server({"/props": PROPS})
    assert await run_and_list_windows(server, tmp_path, 2, local=True) == [[8192], [8192]]
    assert server.paths.count("/props") == 1, "it is asked once"


async def test_the_window_of_an_unloaded_model_is_requested_again(tmp_path: Path) -> None:
    answers: dict[str, Any] = {"/api/ps": {"models": []}, "/api/show": TRAINED}
    server = Server(answers)
    assert await run_and_list_windows(server, tmp_path, 2, local=True) == [[40960], [40960]]
    answers["/api/ps"] = LOADED
    assert await run_and_list_windows(server, tmp_path, 1, local=True) == [[4096]]


async def test_a_llama_cpp_server_is_asked_for_its_window_after_its_first_response(tmp_path: Path) -> None:
    server = Server({"/props": PROPS}, {"Server": "llama.cpp"})
    assert await run_and_list_windows(server, tmp_path, 2) == [[UNKNOWN_WINDOW], [8192]]


async def test_an_ollama_server_on_another_port_is_asked_for_its_window_after_its_first_response(
    tmp_path: Path,
) -> None:
    server = Server({"/api/ps": LOADED, "/api/show": TRAINED}, is_ollama=True)
    assert await run_and_list_windows(server, tmp_path, 2) == [[UNKNOWN_WINDOW], [4096]]


async def test_an_unknown_server_is_sent_nothing_but_model_calls(tmp_path: Path) -> None:
    server = Server({"/props": PROPS})
    assert await run_and_list_windows(server, tmp_path, 2) == [[UNKNOWN_WINDOW], [UNKNOWN_WINDOW]]
    assert set(server.paths) == {"/v1/chat/completions"}
