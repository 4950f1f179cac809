"""The context window that a server on this machine or network was started with, as the server says.

A model is often served with less than it was trained for: Ollama takes 4,096 tokens by default, and llama.cpp what
its command line says. Only requests that change nothing are made, each with a time limit."""

import asyncio
import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, cast
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Struct

from treadle.domain.providers import ProviderConfig

REQUEST_TIMEOUT_SECONDS = 2.0
OLLAMA_PORT, LLAMA_CPP_PORT = 11434, 8080
LLAMA_CPP_SERVER = "llama.cpp"
"""What llama.cpp calls itself in the header `Server`."""
MAX_RESPONSE_BYTES = 8 * 2**20
_NUM_CTX = re.compile(r"^\s*num_ctx\s+(\d+)", re.MULTILINE)


class Window(Struct, frozen=True):
    """A context window that a server names."""

    tokens: int
    in_force: bool
    """The model is loaded with it. False: it is what the model was made for, and may be loaded with less."""


def can_report_window(config: ProviderConfig, server: str = "") -> bool:
    """Whether the server of a provider can be asked: Ollama, llama.cpp, or another on the user's own machine."""
    if config.mode == "anthropic_messages" and not config.local:
        return False
    if config.local or server.startswith(LLAMA_CPP_SERVER):
        return True
    url = urlsplit(config.base_url)
    return url.port in (OLLAMA_PORT, LLAMA_CPP_PORT) and _is_nearby(url.hostname or "")


def _is_nearby(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith((".local", ".lan", ".internal"))
    return address.is_loopback or address.is_private


async def fetch_window(base_url: str, model: str, headers: Mapping[str, str]) -> Window | None:
    """Return the context window of a model as its server states it; None where it does not, or does not answer."""
    import aiohttp

    root = base_url.rstrip("/").removesuffix("/v1")
    timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_SECONDS)
    async with aiohttp.ClientSession(
        headers=headers, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()
    ) as session:

        async def ask(method: str, path: str, body: Any = None) -> dict[str, Any]:
            """Return the JSON object of a good answer; an empty one for anything else."""
            try:
                async with session.request(method, root + path, json=body, allow_redirects=False) as response:
                    found = msgspec.json.decode(await response.content.read(MAX_RESPONSE_BYTES))
                    is_object = response.status == 200 and isinstance(found, dict)
                    return cast("dict[str, Any]", found) if is_object else {}
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError, RecursionError):
                return {}

        props, running = await asyncio.gather(ask("GET", f"/props?model={quote(model)}"), ask("GET", "/api/ps"))
        if (tokens := _read_llama_cpp_window(props)) is not None:
            return Window(tokens, in_force=True)
        if "models" not in running:
            return None
        if (tokens := _read_loaded_window(running, model)) is not None:
            return Window(tokens, in_force=True)
        shown = await ask("POST", "/api/show", {"model": model})
        return _read_ollama_window(shown)


def _read_llama_cpp_window(props: Mapping[str, Any]) -> int | None:
    """Return the window of each slot of llama.cpp."""
    settings = props.get("default_generation_settings")
    return _positive_int(cast("dict[str, Any]", settings).get("n_ctx")) if isinstance(settings, dict) else None


def _read_loaded_window(running: Mapping[str, Any], model: str) -> int | None:
    """Return the window of a model that Ollama has loaded."""
    listed = running.get("models")
    for each in cast("list[Any]", listed) if isinstance(listed, list) else ():
        if isinstance(each, dict):
            loaded = cast("dict[str, Any]", each)
            if {loaded.get("name"), loaded.get("model")} & {model, f"{model}:latest"}:
                return _positive_int(loaded.get("context_length"))
    return None


def _read_ollama_window(shown: Mapping[str, Any]) -> Window | None:
    """Return what Ollama will load a model with, or else what the model was made for."""
    parameters, facts = shown.get("parameters"), shown.get("model_info")
    if isinstance(parameters, str) and (found := _NUM_CTX.search(parameters)) is not None:
        return Window(int(found[1]), in_force=True)
    for name, value in cast("dict[str, Any]", facts).items() if isinstance(facts, dict) else ():
        if name.endswith(".context_length") and (tokens := _positive_int(value)) is not None:
            return Window(tokens, in_force=False)
    return None


def _positive_int(value: Any) -> int | None:
    return value if isinstance(value, int) and value is not True and value > 0 else None
