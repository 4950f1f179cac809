"""How a name resolves to a model."""

import msgspec
import pytest

from tests.fake_endpoint import FakeEndpoint, says
from tests.models.chat import HELLO
from treadle.domain.errors import MissingKey, UnknownModel, UsageError
from treadle.domain.providers import ProviderConfig, Timeouts, TimeoutSettings
from treadle.models.presets import build_presets
from treadle.models.registry import ModelRegistry
from treadle.ports.model import Completed, ModelRequest, Show

KEYS = {"OPENAI_API_KEY": "sk-openai", "OPENROUTER_API_KEY": "sk-or"}


class Echo:
    async def reply(self, request: ModelRequest, show: Show) -> Completed:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("model", "provider", "default", "expected"),
    [
        ("openai/gpt-x", None, None, ("openai", "gpt-x")),
        ("openrouter/meta/llama", None, None, ("openrouter", "meta/llama")),
        ("meta/llama", "openrouter", None, ("openrouter", "meta/llama")),
        ("openrouter/auto", "openrouter", None, ("openrouter", "openrouter/auto")),
        ("gpt-x", None, "openai", ("openai", "gpt-x")),
        ("meta/llama", None, "openrouter", ("openrouter", "meta/llama")),
        ("ollama/qwen3", None, "openai", ("ollama", "qwen3")),
    ],
)
def test_a_name_resolves_to_provider_and_model(
    model: str, provider: str | None, default: str | None, expected: tuple[str, str]
) -> None:
    resolved = ModelRegistry(KEYS, default).resolve(model, provider)
    assert (resolved.provider, resolved.model) == expected
    assert resolved.api_mode == ("responses" if resolved.provider == "openai" else "chat_completions")
    assert resolved.reason


@pytest.mark.parametrize(
    ("model", "provider", "words"),
    [
        (
            "opnai/gpt-x",
            None,
            "no provider is called `opnai`; did you mean `openai`? Known providers: anthropic,",
        ),
        ("gpt-x", "zzz", "no provider is called `zzz`. Known providers"),
        ("gpt-x", None, "write provider/gpt-x, or set provider; known providers: anthropic, local, ollama"),
        ("", None, "No model is set"),
        ("gpt-x", "olive", "no provider is called `olive`. Known providers"),
        ("openai/", None, "Write openai/ followed by the id of one of its models"),
    ],
)
def test_an_unknown_name_is_refused_with_a_suggestion(model: str, provider: str | None, words: str) -> None:
    with pytest.raises(UnknownModel) as raised:
        ModelRegistry(KEYS).resolve(model, provider)
    assert words in str(raised.value)


def test_an_unknown_default_provider_is_refused() -> None:
    with pytest.raises(UnknownModel, match="no provider is called `nope`"):
        ModelRegistry({}, "nope").resolve("m", None)


def test_an_agent_without_a_model_gets_the_default_model() -> None:
    found = ModelRegistry(KEYS, "openai", default_model="gpt-x").resolve("", None)
    assert (found.provider, found.model) == ("openai", "gpt-x")


@pytest.mark.parametrize(
    ("name", "key", "mode"),
    [("anthropic", "ANTHROPIC_API_KEY", "anthropic_messages"), ("openai", "OPENAI_API_KEY", "responses")],
)
def test_a_built_in_provider_at_another_address_keeps_its_key_variable_and_its_api_mode(
    name: str, key: str, mode: str
) -> None:
    registry = ModelRegistry({key: "sk-1"})
    registry.add(name, ProviderConfig("https://proxy.example/v1"))
    assert (registry.resolve(f"{name}/m", None).api_mode, registry.address(name)[1]) == (mode, "sk-1")
    without_key = ModelRegistry({})
    without_key.add(name, ProviderConfig("https://proxy.example/v1"))
    assert without_key.address(name)[1] is None
    registry.add(name, ProviderConfig("https://proxy.example/v1", "chat_completions", api_key="other"))
    assert (registry.resolve(f"{name}/m", None).api_mode, registry.address(name)[1]) == (
        "chat_completions",
        "other",
    )


def test_a_missing_key_names_its_variable_and_the_vault() -> None:
    expected = "needs a key and none is set; set the variable OPENAI_API_KEY, or `treadle vault set OPENAI_API_KEY`"
    with pytest.raises(MissingKey, match=expected):
        ModelRegistry({"OPENAI_API_KEY": "  "}).resolve("openai/gpt-x", None)


@pytest.mark.parametrize(
    ("url", "is_local"),
    [
        ("http://localhost:8000/v1", True),
        ("http://127.0.0.1:8000/v1", True),
        ("http://[::1]:8000/v1", True),
        ("http://10.1.2.3/v1", True),
        ("http://192.168.1.20:11434/v1", True),
        ("http://172.20.0.5/v1", True),
        ("http://[fd00::1]/v1", True),
        ("http://100.100.5.5/v1", True),
        ("http://vllm:8000/v1", True),
        ("http://gpu.local/v1", True),
        ("https://api.example.com/v1", False),
        ("http://8.8.8.8/v1", False),
    ],
)
def test_endpoints_in_the_local_network_have_long_timeouts(url: str, is_local: bool) -> None:
    expected = Timeouts(None, 600.0, None) if is_local else Timeouts(120.0, 60.0, 600.0)
    assert ProviderConfig(url).effective_timeouts == expected
    partly = ProviderConfig(url, timeouts=TimeoutSettings(first_byte=1.0))
    assert partly.effective_timeouts == Timeouts(1.0, expected.between_bytes, expected.whole_call)
    off = msgspec.convert({"base_url": url, "timeouts": {"between_bytes": None}}, ProviderConfig)
    assert off.effective_timeouts == Timeouts(expected.first_byte, None, expected.whole_call)
    with pytest.raises(ValueError, match=r"timeouts\.whole_call must be above 0"):
        TimeoutSettings(whole_call=0)


def test_a_missing_key_names_its_setting() -> None:
    registry = ModelRegistry({})
    registry.add("mine", ProviderConfig("https://host/v1", needs_key=True))
    with pytest.raises(MissingKey, match=r"set api_key of provider mine under providers\.mine in config\.yaml"):
        registry.resolve("mine/m", None)


def test_a_key_with_invalid_characters_is_refused_and_not_shown() -> None:
    with pytest.raises(MissingKey, match="OPENAI_API_KEY contains characters that a key cannot have") as raised:
        ModelRegistry({"OPENAI_API_KEY": "sk-a\nb"}).resolve("openai/gpt-x", None)
    assert "sk-a" not in str(raised.value)


def test_a_client_is_made_once_and_replaced_with_its_provider() -> None:
    registry = ModelRegistry({})
    registry.add("mine", ProviderConfig("https://host/v1"))
    first = registry.resolve("mine/a", None).client
    assert registry.resolve("mine/b", None).client is first
    registry.add("mine", ProviderConfig("https://other/v1"))
    assert registry.resolve("mine/a", None).client is not first


def test_a_registered_model_is_used_as_it_is() -> None:
    echo = Echo()
    registry = ModelRegistry({})
    registry.add_model("echo", echo, api_mode="scripted")
    resolved = registry.resolve("echo/anything/at/all", None)
    assert (resolved.client, resolved.model, resolved.api_mode) == (echo, "anything/at/all", "scripted")


@pytest.mark.parametrize("name", ["", "a/b"])
def test_a_provider_name_with_a_slash_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="Choose a name without a slash"):
        ModelRegistry({}).add(name, ProviderConfig("https://host/v1"))


async def test_the_key_of_the_environment_reaches_the_provider() -> None:
    async with FakeEndpoint(says("hi")) as server:
        registry = ModelRegistry({"MY_KEY": "sk-mine\n"})
        registry.add("mine", ProviderConfig(f"{server.url}/", api_key_env="MY_KEY"))
        end = await registry.resolve("mine/m", None).client.reply(HELLO, print)
        await registry.close()
    assert isinstance(end, Completed)
    assert server.requests[0].path == "/v1/chat/completions"
    assert server.requests[0].headers["authorization"] == "Bearer sk-mine"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("box", "http://box:11434/v1"),
        ("box:99", "http://box:99/v1"),
        (":99", "http://127.0.0.1:99/v1"),
        ("http://box:99/", "http://box:99/v1"),
        ("https://box", "https://box/v1"),
        ("https://box/ollama", "https://box/ollama/v1"),
        ("[::1]:99", "http://[::1]:99/v1"),
    ],
)
def test_the_address_of_ollama_is_read_from_its_variable(host: str, url: str) -> None:
    assert build_presets({"OLLAMA_HOST": host})["ollama"].base_url == url


def test_a_local_model_has_long_timeouts() -> None:
    config = ModelRegistry({}).providers["ollama"]
    assert config is not None
    assert config.effective_timeouts == Timeouts(None, 600.0, None)


@pytest.mark.parametrize("url", ["", "host/v1", "ftp://host", "http://", "file:///etc"])
def test_an_invalid_base_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="base_url must be an http or https URL"):
        ProviderConfig(url)


def test_a_timeout_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match=r"timeouts\.between_bytes must be above 0, or null"):
        Timeouts(between_bytes=0)


def test_the_key_is_not_in_the_representation() -> None:
    assert "sk-" not in repr(ProviderConfig("https://host/v1", api_key="sk-1", headers={"api-key": "sk-2"}))


def test_the_address_and_key_of_a_provider_are_returned() -> None:
    """For calls that are not to its models."""
    registry = ModelRegistry({"OTHER_KEY": "sk-1"})
    registry.add(
        "mine", ProviderConfig("http://127.0.0.1:9/v1", api_key_env="OTHER_KEY", headers={"X-Team": "red"})
    )
    registry.add("open", ProviderConfig("http://127.0.0.1:9/v1"))
    assert registry.address("mine") == ("http://127.0.0.1:9/v1", "sk-1", {"X-Team": "red"})
    assert registry.address("open") == ("http://127.0.0.1:9/v1", None, {})
    with pytest.raises(UnknownModel, match="no provider is called `mime`; did you mean `mine`"):
        registry.address("mime")
    with pytest.raises(MissingKey, match="OPENAI_API_KEY"):
        registry.address("openai")
