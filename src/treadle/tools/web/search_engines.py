"""The engines of `web_search`: SearXNG, Brave and Tavily. Each is one HTTP request with a JSON answer.

The operator configures the address, so it may be on this machine or in a private network. Redirects are not
followed: a key goes nowhere else."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from treadle.domain.web_search import SearchEngineName, WebSearchSettings
from treadle.ports.web_search import SearchFailed, SearchResult

MAX_BYTES = 2_000_000
TIMEOUT_SECONDS = 20.0
FindKey = Callable[[str], str | None]
"""Returns the value of a secret or a variable."""


class SearchRequest(NamedTuple):
    """An HTTP request to an engine."""

    method: str
    path: str
    query: Mapping[str, str | int] = {}
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = {}


class _Item(Struct):
    """A result of any of the engines. Brave has a `description`, the others `content`."""

    url: str = ""
    title: str | None = ""
    content: str | None = ""
    description: str | None = ""


class _Answer(Struct):
    results: list[_Item]


class _BraveAnswer(Struct):
    web: _Answer | None = None


class HttpSearchEngine:
    """Implements `ports.web_search.SearchEngine` for the configured engine."""

    def __init__(self, settings: WebSearchSettings, find_key: FindKey) -> None:
        assert settings.engine is not None, "web search is configured"
        self.name: SearchEngineName = settings.engine
        self._settings = settings
        self._find_key = find_key

    async def search(self, query: str, count: int) -> Sequence[SearchResult]:
        request = _REQUESTS[self.name](query, count, self._read_key())
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                body = await self._send(request)
        except TimeoutError:
            raise SearchFailed(f"{self.name} did not answer within {TIMEOUT_SECONDS:g} s. Try later.") from None
        return self._decode(body)[:count]

    def _read_key(self) -> str:
        variable = self._settings.key_variable
        if variable is None:
            return ""
        key = (self._find_key(variable) or "").strip()
        if not key:
            raise SearchFailed(f"{self.name} needs a key. The operator sets it: treadle vault set {variable}.")
        if not (key.isascii() and key.isprintable()):
            raise SearchFailed(f"The key in {variable} contains characters that a key cannot have. Copy it again.")
        return key

    async def _send(self, request: SearchRequest) -> bytes:
        import aiohttp

        url = f"{self._settings.address}{request.path}"
        timeout = aiohttp.ClientTimeout(total=None)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session,
                session.request(
                    request.method,
                    url,
                    params=request.query,
                    json=request.body,
                    headers={"Accept": "application/json", **request.headers},
                    allow_redirects=False,
                ) as response,
            ):
                if response.status != 200:
                    raise SearchFailed(self._explain_status(response.status, response.headers.get("Retry-After")))
                body = await response.content.read(MAX_BYTES + 1)
                while len(body) <= MAX_BYTES and (more := await response.content.read(MAX_BYTES + 1 - len(body))):
                    body += more
        except aiohttp.ClientError as error:
            raise SearchFailed(
                f"{self.name} could not be reached ({type(error).__name__}). Check web_search.base_url."
            ) from None
        if len(body) > MAX_BYTES:
            raise SearchFailed(f"{self.name} answered with more than {MAX_BYTES:,} bytes. The answer was not read.")
        return body

    def _explain_status(self, status: int, retry_after: str | None) -> str:
        wait = f" It asks to wait {retry_after} s." if retry_after and retry_after.isdigit() else ""
        match status:
            case 401 | 403 if self.name == "searxng":
                advice = "Allow its JSON format: `search: {formats: [html, json]}` in the settings.yml of SearXNG."
            case 401 | 403 | 422:
                advice = f"It refuses the key or the request. Check the key in {self._settings.key_variable}."
            case 402 | 432 | 433:
                advice = "The plan of the key is used up."
            case 429:
                advice = "It gets too many requests. Search later."
            case _ if 300 <= status < 400:
                advice = "It redirects. Write its final address in web_search.base_url."
            case _:
                advice = "Search later, or read pages that you know."
        return f"{self.name} answered {status}. {advice}{wait}"

    def _decode(self, body: bytes) -> Sequence[SearchResult]:
        try:
            if self.name == "brave":
                web = msgspec.json.decode(body, type=_BraveAnswer).web
                items = [] if web is None else web.results
            else:
                items = msgspec.json.decode(body, type=_Answer).results
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            advice = "Allow its JSON format and check web_search.base_url."
            raise SearchFailed(f"{self.name} answered with something other than search results. {advice}") from None
        return [SearchResult(item.title or "", item.url, item.content or item.description or "") for item in items]


def _ask_searxng(query: str, count: int, key: str) -> SearchRequest:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return SearchRequest("GET", "/search", {"q": query, "format": "json"}, headers=headers)


def _ask_brave(query: str, count: int, key: str) -> SearchRequest:
    headers = {"X-Subscription-Token": key}
    return SearchRequest("GET", "/res/v1/web/search", {"q": query, "count": count}, headers=headers)


def _ask_tavily(query: str, count: int, key: str) -> SearchRequest:
    body = {"query": query, "max_results": count}
    return SearchRequest("POST", "/search", body=body, headers={"Authorization": f"Bearer {key}"})


_REQUESTS: Mapping[SearchEngineName, Callable[[str, int, str], SearchRequest]] = {
    "searxng": _ask_searxng,
    "brave": _ask_brave,
    "tavily": _ask_tavily,
}
