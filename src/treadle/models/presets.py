"""The providers that are known out of the box."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from treadle.domain.providers import ProviderConfig

_OLLAMA_PORT = 11434


def build_presets(environment: Mapping[str, str]) -> dict[str, ProviderConfig]:
    """Their configuration by name; the environment says where Ollama listens."""
    return {
        "anthropic": ProviderConfig(
            "https://api.anthropic.com/v1", api_key_env="ANTHROPIC_API_KEY", needs_key=True
        ),
        "openai": ProviderConfig("https://api.openai.com/v1", api_key_env="OPENAI_API_KEY", needs_key=True),
        "openrouter": ProviderConfig(
            "https://openrouter.ai/api/v1", api_key_env="OPENROUTER_API_KEY", needs_key=True
        ),
        "ollama": ProviderConfig(_ollama_url(environment.get("OLLAMA_HOST", "")), local=True),
    }


def _ollama_url(host: str) -> str:
    """The address that OLLAMA_HOST stands for, which may lack its scheme, its host or its port."""
    host = host.strip().rstrip("/")
    has_scheme = "://" in host
    url = urlsplit(host if has_scheme else f"http://{host}")
    name = url.hostname or "127.0.0.1"
    if name == "0.0.0.0":  # where a server listens on every address; nothing to connect to
        name = "127.0.0.1"
    if ":" in name:
        name = f"[{name}]"
    port = url.port or (None if has_scheme else _OLLAMA_PORT)
    return f"{url.scheme}://{name}{f':{port}' if port else ''}{url.path}/v1"
