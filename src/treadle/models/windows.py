"""Asks a server on this machine or network for the context window with which a model is loaded.

Models are often served with a smaller window than they were trained for: Ollama's default is 4,096 tokens, and
llama.cpp uses the value from its command line. All requests are read-only and have a time limit."""

import asyncio
import re
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Struct

from treadle.domain.providers import ProviderConfig, is_private

REQUEST_TIMEOUT_SECONDS = 2.0
OLLAMA_PORT, LLAMA_CPP_PORT = 11434, 8080
LLAMA_CPP_SERVER, OLLAMA_SERVER = "llama.cpp", "ollama"
"""The value of the `Server` header of llama.cpp, and what Ollama is called, which sends no such header."""
OLLAMA_FINGERPRINT = re.compile(rb'"system_fingerprint":\s*"fp_ollama"')
"""What shows that a reply comes from Ollama."""
MAX_RESPONSE_BYTES = 8 * 2**20
_NUM_CTX = re.compile(r"^\s*num_ctx\s+(\d+)", re.MULTILINE)


class Window(Struct, frozen=True):
    """A context window reported by a server."""

    tokens: int
    in_force: bool
    """True: the model is loaded with it. False: it is the model's maximum, and the model may be loaded with
    less."""


def can_report_window(config: ProviderConfig, server: str = "") -> bool:
    """Return whether the server of a provider can report a window: Ollama, llama.cpp, or another local server. An
    unknown server in the same network is asked only after a reply, its name or its port shows what it is."""
    if config.mode == "anthropic_messages" and not config.local:
        return False
    if config.local or server.startswith(LLAMA_CPP_SERVER):
        return True
    if not is_private(config.base_url):
        return False
    url = urlsplit(config.base_url)
    is_named = "llama" in (url.hostname or "").lower()
    return is_named or url.port in (OLLAMA_PORT, LLAMA_CPP_PORT) or server == OLLAMA_SERVER


async def fetch_window(base_url: str, model: str, headers: Mapping[str, str]) -> Window | None:
    """Return the context window of a model as reported by its server, or None if the server does not report
    one."""
    import aiohttp

    root = base_url.rstrip("/").removesuffix("/v1")
    timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_SECONDS)
    async with aiohttp.ClientSession(
        headers=headers, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()
    ) as session:

        async def request(method: str, path: str, body: Any = None) -> dict[str, Any]:
            """Return the JSON object of a 200 response, or an empty dict."""
            try:
                async with session.request(method, root + path, json=body, allow_redirects=False) as response:
                    found = msgspec.json.decode(await response.content.read(MAX_RESPONSE_BYTES))
                    is_object = response.status == 200 and isinstance(found, dict)
                    return cast("dict[str, Any]", found) if is_object else {}
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError, RecursionError):
                return {}

        props, running = await asyncio.gather(
            request("GET", f"/props?model={quote(model)}"), request("GET", "/api/ps")
        )
        if (tokens := _read_llama_cpp_window(props)) is not None:
            return Window(tokens, in_force=True)
        if "models" not in running:
            return None
        if (tokens := _read_loaded_window(running, model)) is not None:
            return Window(tokens, in_force=True)
        details = await request("POST", "/api/show", {"model": model})
        return _read_ollama_window(details)


def _read_llama_cpp_window(props: Mapping[str, Any]) -> int | None:
    """Return the window of each slot of llama.cpp."""
    settings = props.get("default_generation_settings")
    return _positive_int(cast("dict[str, Any]", settings).get("n_ctx")) if isinstance(settings, dict) else None


def _read_loaded_window(running: Mapping[str, Any], model: str) -> int | None:
    """Return the window of a model that Ollama has loaded."""
    listed = running.get("models")
    for entry in cast("list[Any]", listed) if isinstance(listed, list) else ():
        if isinstance(entry, dict):
            loaded = cast("dict[str, Any]", entry)
            if {loaded.get("name"), loaded.get("model")} & {model, f"{model}:latest"}:
                return _positive_int(loaded.get("context_length"))
    return None


def _read_ollama_window(details: Mapping[str, Any]) -> Window | None:
    """Return the window with which Ollama will load a model, or else the maximum of the model."""
    parameters, facts = details.get("parameters"), details.get("model_info")
    if isinstance(parameters, str) and (found := _NUM_CTX.search(parameters)) is not None:
        return Window(int(found[1]), in_force=True)
    for name, value in cast("dict[str, Any]", facts).items() if isinstance(facts, dict) else ():
        if name.endswith(".context_length") and (tokens := _positive_int(value)) is not None:
            return Window(tokens, in_force=False)
    return None


def _positive_int(value: Any) -> int | None:
    return value if isinstance(value, int) and value is not True and value > 0 else None
