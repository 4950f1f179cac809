"""Whether a provider answers and takes its keys: a free, read-only request for the listing of its models.

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
from treadle.models.http.error_rules import USUALLY_PASSES
from treadle.models.http.failure import explain_error, quote_provider
from treadle.models.http.fetch import FetchedBody, fetch, open_session
from treadle.models.http.keys import ProviderKey

PROBE_SECONDS = 2.0
"""For one request of a probe, from the name lookup to the last byte."""
LISTING_PATH = "/models"
_KEY_CHECK_PATHS: Mapping[str, str] = {"openrouter.ai": "/key"}
"""Where a provider whose listing is public says whether it takes a key, below its base URL."""
_LISTING_QUERIES: Mapping[str, str] = {"anthropic_messages": "limit=1000"}
"""Formats whose listing comes in pages unless it is asked for whole."""
_WINDOW_FIELDS = ("max_model_len", "context_length", "context_window", "max_input_tokens")
"""What servers call the context window in their listing: vLLM, OpenRouter, Groq, Anthropic."""

ProbeVerdict = Literal["answers", "unclear", "refused", "failing", "unreachable"]
"""answers: the listing came. unclear: something answers, and whether its models can be called is not known.
refused: the key was rejected, or one is required and none is set. failing: an error, or not a model API.
unreachable: no answer in time. The order is from best to worst."""
_BEST_FIRST: Sequence[ProbeVerdict] = ("answers", "unclear", "refused", "failing", "unreachable")


class Probe(Struct, frozen=True):
    """What a provider did when it was asked for its models."""

    verdict: ProbeVerdict
    words: str
    """On one line and without secrets; a sentence whose subject is the provider."""
    advice: str = ""
    models: Mapping[str, int | None] | None = None
    """The ids of its models with the context window that it states for each; None: it gave no complete listing."""
    refused_keys: tuple[str, ...] = ()
    """The settings of the keys that were rejected, where there are several keys."""

    def lists(self, model: str) -> bool:
        return self.models is not None and any(name in self.models for name in _listed_ids(model))

    def window(self, model: str) -> int | None:
        """Return the context window that the provider states for a model."""
        stated = [self.models.get(name) for name in _listed_ids(model)] if self.models else []
        return next((window for window in stated if window is not None), None)


async def probe_provider(endpoint: Endpoint, format_: WireFormat, timeout_seconds: float = PROBE_SECONDS) -> Probe:
    """Ask for the listing once with each key and, to learn whether it proves anything, once without any."""
    keys = list(endpoint.keys)
    listing = _build_url(endpoint, LISTING_PATH, _LISTING_QUERIES.get(format_.name, ""))
    key_check = _KEY_CHECK_PATHS.get(urlsplit(endpoint.url).hostname or "")
    checked = listing if key_check is None else _build_url(endpoint, key_check)
    async with open_session() as session:

        async def ask(url: str, key: ProviderKey | None) -> Probe:
            credentials: Mapping[str, str] = format_.credentials(key.value) if key else {}
            headers = {**format_.headers, **credentials, **endpoint.headers}
            try:
                answer = await fetch(session, url, headers, timeout_seconds)
            except TimeoutError:
                return Probe("unreachable", f"did not answer within {timeout_seconds:g} s", _CHECK_RUNNING)
            except Exception as error:  # whatever one provider does, the others are still looked at
                what, advice, _ = explain_error(endpoint, error)
                verdict = "failing" if isinstance(error, aiohttp.ClientResponseError) else "unreachable"
                return Probe(
                    verdict, f"could not be reached: {what}", _CHECK_RUNNING if advice == USUALLY_PASSES else advice
                )
            return _judge_response(endpoint, key, answer)

        without, *with_keys = await asyncio.gather(ask(listing, None), *(ask(checked, key) for key in keys))
    if not keys:
        return without
    return _combine_probes(keys, with_keys, without, is_key_check=key_check is not None)


_CHECK_RUNNING = "Check that it is running and that base_url is right."


def _combine_probes(
    keys: Sequence[ProviderKey], found: Sequence[Probe], without: Probe, *, is_key_check: bool
) -> Probe:
    """Return what the answers to all keys mean together."""
    best = min(found, key=lambda each: _BEST_FIRST.index(each.verdict))
    if best.verdict == "unclear" and is_key_check and without.verdict == "answers":
        best = msgspec.structs.replace(without, words=f"{without.words}; the key was not tried")
    elif best.verdict == "answers" and without.verdict == "answers" and not is_key_check:
        words = f"{best.words}; its listing needs no key, so the key was not tried"
        return msgspec.structs.replace(best, words=words)
    elif best.verdict == "answers":
        models = without.models if is_key_check else best.models
        best = msgspec.structs.replace(best, words=f"{_describe_count(models)}, and takes the key", models=models)
    refused = [key.setting for key, each in zip(keys, found, strict=True) if each.verdict == "refused"]
    if not refused or best.verdict == "refused":
        return best
    words, advice = f"{best.words}; it refused {', '.join(refused)} (401)", f"Replace {', '.join(refused)}."
    return msgspec.structs.replace(best, words=words, advice=advice, refused_keys=tuple(refused))


def _judge_response(endpoint: Endpoint, key: ProviderKey | None, answer: FetchedBody) -> Probe:
    """Return what one answer means."""
    said = quote_provider(endpoint, answer.body[:64_000].decode("utf-8", "replace"))
    match answer.status:
        case 200:
            return _judge_listing(answer, said)
        case 401:
            if key is None:
                return Probe("refused", "requires a key, and none is set (401)", f"Set {endpoint.key_setting}.")
            return Probe("refused", f"refused the key (401): {said}", f"Replace {key.setting}.")
        case 403 | 404 | 405 | 429 | 501:
            words = f"answers, and does not give a listing of its models ({answer.status}: {said})"
            return Probe("unclear", words, _TEST_MODEL)
        case status if 300 <= status < 400:
            words = f"redirects to another address ({status}), which was not followed"
            return Probe("failing", words, "Set base_url to the final address.")
        case status:
            return Probe("failing", f"answered {status}: {said}", "Check base_url, or try again later.")


_TEST_MODEL = "`treadle models test MODEL` calls a model; that may be charged."


class _Listing(Struct):
    data: list[dict[str, Any]] | None
    has_more: Any = False


class _KeyCheck(Struct):
    data: dict[str, Any]


def _judge_listing(answer: FetchedBody, said: str) -> Probe:
    """Return what a good status means: a listing, a good key, or a page of something else."""
    try:
        found = _decode_listing(answer.body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return _judge_other_body(answer, said)
    names = {str(each["id"]): _read_window(each) for each in found.data or () if each.get("id")}
    return Probe("answers", _describe_count(names), models=None if found.has_more else names)


def _decode_listing(body: bytes) -> _Listing:
    """Return a listing, which some servers send without the object around it."""
    if body.lstrip().startswith(b"["):
        return _Listing(msgspec.json.decode(body, type=list[dict[str, Any]]))
    return msgspec.json.decode(body, type=_Listing)


def _judge_other_body(answer: FetchedBody, said: str) -> Probe:
    if not answer.is_whole:
        return Probe("answers", "answers; its listing is too long to be read here")
    try:
        msgspec.json.decode(answer.body, type=_KeyCheck)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return Probe("failing", f"answers, but not with a listing of models: {said}", "Check base_url.")
    return Probe("answers", "answers")


def _describe_count(models: Mapping[str, int | None] | None) -> str:
    if models is None:
        return "answers"
    return f"answers with {len(models)} model{'' if len(models) == 1 else 's'}"


def _read_window(listed: Mapping[str, Any]) -> int | None:
    stated = [listed.get(name) for name in _WINDOW_FIELDS]
    return next((each for each in stated if isinstance(each, int) and each is not True and each > 0), None)


def _listed_ids(model: str) -> tuple[str, ...]:
    """Return the ids that a listing may use: Ollama adds a tag, Google a folder, OpenRouter lists no variants."""
    return (model, f"{model}:latest", f"models/{model}", model.partition(":")[0])


def _build_url(endpoint: Endpoint, path: str, query: str = "") -> str:
    """Return the address of a path below the base URL, which keeps its own query."""
    url = urlsplit(endpoint.url)
    joined = "&".join(part for part in (url.query, query) if part)
    return url._replace(path=url.path.rstrip("/") + path, query=joined).geturl()
