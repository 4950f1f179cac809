"""The built-in providers."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from treadle.domain.providers import ProviderConfig
from treadle.models.structured_output import OLLAMA_PORT


def build_presets(environment: Mapping[str, str]) -> dict[str, ProviderConfig]:
    """Return the configuration of each built-in provider by name. The environment sets the address of Ollama."""
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
    """Return the URL for the value of OLLAMA_HOST, which may lack a scheme, a host or a port."""
    host = host.strip().rstrip("/")
    has_scheme = "://" in host
    url = urlsplit(host if has_scheme else f"http://{host}")
    name = url.hostname or "127.0.0.1"
    if name == "0.0.0.0":  # a listen address, not one to connect to
        name = "127.0.0.1"
    if ":" in name:
        name = f"[{name}]"
    port = url.port or (None if has_scheme else OLLAMA_PORT)
    return f"{url.scheme}://{name}{f':{port}' if port else ''}{url.path}/v1"
