"""An embedder behind an OpenAI-compatible endpoint: `POST {base_url}/embeddings`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from treadle.domain.providers import find_secrets, remove_credentials
from treadle.ports.memory import EmbeddingFailed, Vector

BATCH_SIZE = 64
"""Texts per request."""
MAX_CHARS = 8000
MAX_RESPONSE_BYTES = 32 * 2**20
"""A longer response is not read."""
TIMEOUT_SECONDS = 20.0
_MAX_QUOTED_CHARS = 200
_MIN_SECRET_CHARS = 6


class EmbedderEndpoint(Struct, frozen=True):
    """The address of a provider, with its key and headers."""

    base_url: str
    key: str | None = None
    headers: Mapping[str, str] = {}

    def __repr__(self) -> str:
        """Omit the key and the headers."""
        return f"Address({remove_credentials(self.base_url)!r})"


class _Item(Struct):
    embedding: list[float]
    index: int | None = None


class _Answer(Struct):
    data: list[_Item]


class RemoteEmbedder:
    """Implements `ports.memory.Embedder`."""

    def __init__(
        self,
        provider: str,
        model: str,
        address: EmbedderEndpoint,
        seconds: float = TIMEOUT_SECONDS,
        hide: Callable[[str], str] = str,
    ) -> None:
        """`hide` redacts what must not leave this machine."""
        self.name = f"{provider}/{model}"
        self.dimensions: int | None = None
        self._model = model
        self._address = address
        self._seconds = seconds
        self._hide = hide
        self._session: Any = None

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        vectors: list[Vector] = []
        for at in range(0, len(texts), BATCH_SIZE):
            vectors += self._read(
                await self._request(texts[at : at + BATCH_SIZE]), len(texts[at : at + BATCH_SIZE])
            )
        return vectors

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _request(self, texts: Sequence[str]) -> bytes:
        import aiohttp  # imported on first use: it is half of the start-up time of a command

        if self._session is None:
            self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
        body = {"model": self._model, "input": [self._hide(text)[:MAX_CHARS] or " " for text in texts]}
        headers = {"Content-Type": "application/json", **self._address.headers}
        if self._address.key:
            headers["Authorization"] = f"Bearer {self._address.key}"
        timeout = aiohttp.ClientTimeout(total=self._seconds)
        try:
            async with self._session.post(
                self._url, data=msgspec.json.encode(body), headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                answer: bytes = await response.content.read(MAX_RESPONSE_BYTES + 1)
                while len(answer) <= MAX_RESPONSE_BYTES and (
                    more := await response.content.read(MAX_RESPONSE_BYTES + 1)
                ):
                    answer += more
                status: int = response.status
        except TimeoutError:
            raise self._make_failure(f"did not answer within {self._seconds:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError, TypeError) as error:
            raise self._make_failure(
                f"could not be reached ({type(error).__name__}: {error}); check base_url"
            ) from None
        if status != 200:
            raise self._make_failure(self._describe_refusal(status, answer))
        if len(answer) > MAX_RESPONSE_BYTES:
            raise self._make_failure(f"sent more than {MAX_RESPONSE_BYTES // 2**20} MB; nothing of it was used")
        return answer

    @property
    def _url(self) -> str:
        """The embeddings URL. A query string of the base URL is preserved."""
        url = urlsplit(self._address.base_url)
        return url._replace(path=url.path.rstrip("/") + "/embeddings").geturl()

    def _read(self, answer: bytes, count: int) -> list[Vector]:
        try:
            items = msgspec.json.decode(answer, type=_Answer).data
        except msgspec.DecodeError as error:
            raise self._make_failure(
                f"did not return a list of embeddings ({error}): {_quote(answer)}; check that base_url is the "
                "address of an OpenAI-compatible API"
            ) from None
        if len(items) != count:
            raise self._make_failure(f"was asked for {count} vectors and sent {len(items)}")
        if all(item.index is not None for item in items):
            items.sort(key=lambda item: item.index or 0)
            if [item.index for item in items] != list(range(count)):
                raise self._make_failure("sent vectors whose numbers are not those of the texts")
        self.dimensions = len(items[-1].embedding) or None
        return [item.embedding for item in items]

    def _describe_refusal(self, status: int, answer: bytes) -> str:
        match status:
            case 401 | 403:
                advice = "check the key of this provider"
            case 404 | 405:
                advice = f"check that base_url is right and that it has an embedding model `{self._model}`"
            case 429:
                advice = "its rate or quota is used up; it is tried again later"
            case 300 | 301 | 302 | 303 | 307 | 308:
                advice = "it sends elsewhere, which is not followed; set base_url to where it really is"
            case _ if status >= 500:
                advice = "it is tried again later"
            case _:
                advice = f"check that `{self._model}` is an embedding model"
        return f"refused with HTTP {status} ({_quote(answer)}); {advice}"

    def _make_failure(self, what: str) -> EmbeddingFailed:
        text = f"the embedder {self.name} at {remove_credentials(self._address.base_url)} {what}"
        for secret in (self._address.key, *self._address.headers.values(), *find_secrets(self._address.base_url)):
            if secret and len(secret) >= _MIN_SECRET_CHARS:
                text = text.replace(secret, "[hidden]")
        return EmbeddingFailed(text)


def _quote(answer: bytes) -> str:
    text = " ".join(answer[: 4 * _MAX_QUOTED_CHARS].decode("utf-8", "replace").split())
    return f"{text[:_MAX_QUOTED_CHARS]}…" if len(text) > _MAX_QUOTED_CHARS else text or "an empty answer"
