"""Checks whether a provider answers and accepts its keys, with a free, read-only request for its model listing.

No model is called, so nothing is charged. A key is sent only to the base URL that it is configured for."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

import aiohttp
import msgspec
from msgspec import Struct

from treadle.models.http.client import WireFormat
from treadle.models.http.endpoint import Endpoint
from treadle.models.http.failure import explain_error, quote_provider
from treadle.models.http.fetch import FetchedBody, fetch, open_session
from treadle.models.http.keys import ProviderKey

PROBE_SECONDS = 2.0
"""Time limit for one request of a probe, from the DNS lookup to the last byte."""
LISTING_PATH = "/models"
_KEY_CHECK_PATHS: Mapping[str, str] = {"openrouter.ai": "/key"}
"""Paths below the base URL that report whether a key is valid, for providers whose listing is public."""
_LISTING_QUERIES: Mapping[str, str] = {"anthropic_messages": "limit=1000"}
"""Queries that request the whole listing, for formats that return it in pages."""
_WINDOW_FIELDS = ("max_model_len", "context_length", "context_window", "max_input_tokens")
"""Names of the context window in listings: vLLM, OpenRouter, Groq, Anthropic."""

ProbeVerdict = Literal["answers", "unclear", "refused", "failing", "unreachable"]
"""answers: the listing arrived. unclear: something answers, but whether its models can be called is unknown.
refused: the key was rejected, or a key is required and none is set. failing: an error, or not a model API.
unreachable: no answer in time. Ordered from best to worst."""
_BEST_FIRST: Sequence[ProbeVerdict] = ("answers", "unclear", "refused", "failing", "unreachable")


class Probe(Struct, frozen=True):
    """How a provider responded to a request for its models."""

    verdict: ProbeVerdict
    words: str
    """One line without secrets: a sentence whose subject is the provider."""
    advice: str = ""
    models: Mapping[str, int | None] | None = None
    """Model ids, each with the context window that the provider reports. None: no complete listing was
    returned."""
    refused_keys: tuple[str, ...] = ()
    """The settings of the rejected keys, if the provider has several keys."""

    def lists(self, model: str) -> bool:
        return self.models is not None and any(name in self.models for name in _listed_ids(model))

    def window(self, model: str) -> int | None:
        """Return the context window that the provider reports for a model."""
        stated = [self.models.get(name) for name in _listed_ids(model)] if self.models else []
        return next((window for window in stated if window is not None), None)


async def probe_provider(endpoint: Endpoint, format_: WireFormat, timeout_seconds: float = PROBE_SECONDS) -> Probe:
    """Request the listing once with each key, and once without a key to learn whether a key is needed at all."""
    keys = list(endpoint.keys)
    listing = _build_url(endpoint, LISTING_PATH, _LISTING_QUERIES.get(format_.name, ""))
    key_check = _KEY_CHECK_PATHS.get(urlsplit(endpoint.url).hostname or "")
    checked = listing if key_check is None else _build_url(endpoint, key_check)
    async with open_session() as session:

        async def request(url: str, key: ProviderKey | None) -> Probe:
            credentials: Mapping[str, str] = format_.credentials(key.value) if key else {}
            headers = {**format_.headers, **credentials, **endpoint.headers}
            try:
                response = await fetch(session, url, headers, timeout_seconds)
            except TimeoutError:
                return Probe("unreachable", f"did not answer within {timeout_seconds:g} s", _CHECK_RUNNING)
            except Exception as error:  # one broken provider must not stop the probes of the others
                what, advice, _ = explain_error(endpoint, error)
                verdict = "failing" if isinstance(error, aiohttp.ClientResponseError) else "unreachable"
                return Probe(verdict, f"could not be reached: {what}", advice or _CHECK_RUNNING)
            return _judge_response(endpoint, key, response)

        without, *with_keys = await asyncio.gather(request(listing, None), *(request(checked, key) for key in keys))
    if not keys:
        return without
    return _combine_probes(keys, with_keys, without, is_key_check=key_check is not None)


_CHECK_RUNNING = "Check that it is running and that base_url is right."


def _combine_probes(
    keys: Sequence[ProviderKey], probes: Sequence[Probe], without: Probe, *, is_key_check: bool
) -> Probe:
    """Return the combined result of the probes of all keys."""
    best = min(probes, key=lambda probe: _BEST_FIRST.index(probe.verdict))
    if best.verdict == "unclear" and is_key_check and without.verdict == "answers":
        best = msgspec.structs.replace(without, words=f"{without.words}; the key was not tried")
    elif best.verdict == "answers" and without.verdict == "answers" and not is_key_check:
        words = f"{best.words}; its listing needs no key, so the key was not tried"
        return msgspec.structs.replace(best, words=words)
    elif best.verdict == "answers":
        models = without.models if is_key_check else best.models
        best = msgspec.structs.replace(best, words=f"{_describe_count(models)}, and takes the key", models=models)
    refused = [key.setting for key, probe in zip(keys, probes, strict=True) if probe.verdict == "refused"]
    if not refused or best.verdict == "refused":
        return best
    words, advice = f"{best.words}; it refused {', '.join(refused)} (401)", f"Replace {', '.join(refused)}."
    return msgspec.structs.replace(best, words=words, advice=advice, refused_keys=tuple(refused))


def _judge_response(endpoint: Endpoint, key: ProviderKey | None, response: FetchedBody) -> Probe:
    """Return what one response means."""
    message = quote_provider(endpoint, response.body[:64_000].decode("utf-8", "replace"))
    match response.status:
        case 200:
            return _judge_listing(response, message)
        case 401:
            if key is None:
                return Probe("refused", "requires a key, and none is set (401)", f"Set {endpoint.key_setting}.")
            return Probe("refused", f"refused the key (401): {message}", f"Replace {key.setting}.")
        case 403 | 404 | 405 | 429 | 501:
            words = f"answers, and does not give a listing of its models ({response.status}: {message})"
            return Probe("unclear", words, _TEST_MODEL)
        case status if 300 <= status < 400:
            words = f"redirects to another address ({status}), which was not followed"
            return Probe("failing", words, "Set base_url to the final address.")
        case status:
            return Probe("failing", f"answered {status}: {message}", "Check base_url, or try again later.")


_TEST_MODEL = "`treadle models test MODEL` calls a model; that may be charged."


class _Listing(Struct):
    data: list[dict[str, Any]] | None
    has_more: Any = False


class _KeyCheck(Struct):
    data: dict[str, Any]


def _judge_listing(response: FetchedBody, message: str) -> Probe:
    """Return what a 200 response means: a listing, a valid key, or an unrelated page."""
    try:
        listing = _decode_listing(response.body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return _judge_other_body(response, message)
    windows = {str(model["id"]): _read_window(model) for model in listing.data or () if model.get("id")}
    return Probe("answers", _describe_count(windows), models=None if listing.has_more else windows)


def _decode_listing(body: bytes) -> _Listing:
    """Return a listing. Some servers send a bare array."""
    if body.lstrip().startswith(b"["):
        return _Listing(msgspec.json.decode(body, type=list[dict[str, Any]]))
    return msgspec.json.decode(body, type=_Listing)


def _judge_other_body(response: FetchedBody, message: str) -> Probe:
    if not response.is_whole:
        return Probe("answers", "answers; its listing is too long to be read here")
    try:
        msgspec.json.decode(response.body, type=_KeyCheck)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return Probe("failing", f"answers, but not with a listing of models: {message}", "Check base_url.")
    return Probe("answers", "answers")


def _describe_count(models: Mapping[str, int | None] | None) -> str:
    if models is None:
        return "answers"
    return f"answers with {len(models)} model{'' if len(models) == 1 else 's'}"


def _read_window(model: Mapping[str, Any]) -> int | None:
    windows = [model.get(name) for name in _WINDOW_FIELDS]
    return next(
        (window for window in windows if isinstance(window, int) and window is not True and window > 0), None
    )


def _listed_ids(model: str) -> tuple[str, ...]:
    """Return the ids that a listing may use for a model: Ollama adds a tag, Google a folder, and OpenRouter lists
    no variants."""
    return (model, f"{model}:latest", f"models/{model}", model.partition(":")[0])


def _build_url(endpoint: Endpoint, path: str, query: str = "") -> str:
    """Return the URL of a path below the base URL, keeping the query of the base URL."""
    url = urlsplit(endpoint.url)
    joined = "&".join(part for part in (url.query, query) if part)
    return url._replace(path=url.path.rstrip("/") + path, query=joined).geturl()
