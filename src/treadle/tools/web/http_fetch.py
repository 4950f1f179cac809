"""Fetches one page over HTTP. Each host on the way is resolved once, all its addresses are vetted, and the
connection uses only those. Neither a redirect nor a name that changes its address leads anywhere else."""

import asyncio
import zlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

from treadle.ports.tool import ToolError
from treadle.tools.web.addresses import ResolveHost, VetAddress, explain_not_public_name

if TYPE_CHECKING:
    from aiohttp import ClientResponse
    from yarl import URL

MAX_REDIRECTS = 5
MAX_BYTES = 5_000_000
TIMEOUT_SECONDS = 30.0
_REDIRECT_STATUSES = {301, 302, 303, 307, 308}
_PORTS = {80, 443}
_FIRST_UNPRIVILEGED_PORT = 1024
_MAX_URL_CHARACTERS = 8000
_CHUNK_BYTES = 1 << 16
_HEADERS = {
    "User-Agent": "Mozilla/5.0 (compatible; Treadle web_fetch)",
    "Accept": "text/html, text/markdown, text/plain;q=0.9, application/json;q=0.9, */*;q=0.5",
    "Accept-Encoding": "gzip, deflate",
}


class FetchedPage(NamedTuple):
    url: str
    """The final URL, after redirects."""
    content_type: str
    charset: str | None
    body: bytes
    cut: bool


class FetchLimits(NamedTuple):
    bytes: int = MAX_BYTES
    seconds: float = TIMEOUT_SECONDS


DEFAULT_LIMITS = FetchLimits()


class _Redirect(NamedTuple):
    location: str


async def fetch_page(
    url: str, vet: VetAddress, resolve: ResolveHost, limits: FetchLimits = DEFAULT_LIMITS
) -> FetchedPage:
    """Return the page, after at most five redirects. Raise ToolError if it cannot be fetched."""
    try:
        async with asyncio.timeout(limits.seconds):
            return await _follow_redirects(url, vet, resolve, limits)
    except TimeoutError:
        raise ToolError(
            f"{url} did not answer within {limits.seconds:g} s. Try later, or another source."
        ) from None


async def _follow_redirects(url: str, vet: VetAddress, resolve: ResolveHost, limits: FetchLimits) -> FetchedPage:
    target = parse_url(url)
    for _ in range(MAX_REDIRECTS + 1):
        addresses = await _resolve_vetted(target, vet, resolve)
        page = await _get(target, addresses, limits)
        if isinstance(page, FetchedPage):
            return page
        target = _resolve_redirect(target, page.location)
    raise ToolError(f"{url} redirects more than {MAX_REDIRECTS} times. Use another address of the page.")


def parse_url(url: str) -> "URL":
    from yarl import URL

    if len(url) > _MAX_URL_CHARACTERS:
        raise ToolError(f"the URL is {len(url)} characters long; at most {_MAX_URL_CHARACTERS} are accepted.")
    try:
        target = URL(url.strip())
        port = target.port
    except (ValueError, UnicodeError) as error:
        raise ToolError(f"{url!r} is not a URL: {error}. Give one like https://example.com/page.") from None
    if target.scheme not in ("http", "https"):
        raise ToolError(f"{url!r} cannot be fetched: only http and https URLs can.")
    if target.raw_user is not None or target.raw_password is not None:
        raise ToolError("a URL with a user name or password in it is not fetched. Leave them out.")
    if reason := explain_not_public_name(target.raw_host or ""):
        raise ToolError(f"{url!r} is not fetched: {reason}. Only hosts of the public internet can be.")
    if port not in _PORTS and (port is None or port < _FIRST_UNPRIVILEGED_PORT):
        raise ToolError(f"{url!r} is not fetched: port {port} is not one for web pages.")
    return target.with_fragment(None)


def _resolve_redirect(target: "URL", location: str) -> "URL":
    from yarl import URL

    try:
        joined = str(target.join(URL(location)))
    except (ValueError, UnicodeError) as error:
        raise ToolError(f"{target} redirects to {location[:200]!r}, which is not a URL: {error}.") from None
    try:
        return parse_url(joined)
    except ToolError as refused:
        raise ToolError(f"{target} redirects elsewhere: {refused}") from None


async def _resolve_vetted(target: "URL", vet: VetAddress, resolve: ResolveHost) -> Sequence[str]:
    """Return the addresses of the host if all of them may be contacted."""
    host, port = str(target.raw_host), target.port or 0
    try:
        addresses = [str(ip_address(host))]
    except ValueError:
        addresses = await _look_up(host, port, resolve)
    for address in addresses:
        if reason := vet(ip_address(address)):
            raise ToolError(
                f"{target} is not fetched: {host} is at {address}, which is {reason}. Only hosts of the public "
                "internet can be fetched; do not try to reach it in another way."
            )
    return addresses


async def _look_up(host: str, port: int, resolve: ResolveHost) -> Sequence[str]:
    try:
        addresses = list(dict.fromkeys(await resolve(host, port)))
    except (OSError, UnicodeError) as error:
        raise ToolError(f"the host {host} was not found ({error}). Check its name.") from None
    if not addresses:
        raise ToolError(f"the host {host} has no address. Check its name.")
    return addresses


async def _get(target: "URL", addresses: Sequence[str], limits: FetchLimits) -> FetchedPage | _Redirect:
    async with _open_response(target, addresses) as response:
        location = response.headers.get("Location")
        if response.status in _REDIRECT_STATUSES and location:
            return _Redirect(location)
        if not 200 <= response.status < 300:
            raise _make_status_error(target, response.status, response.reason or "", response.headers)
        body, cut = await _read_body(response, limits.bytes)
        content_type = response.content_type if "Content-Type" in response.headers else ""
        return FetchedPage(str(target), content_type, response.charset, body, cut)


@asynccontextmanager
async def _open_response(target: "URL", addresses: Sequence[str]) -> "AsyncGenerator[ClientResponse]":
    import aiohttp

    from treadle.tools.web.pinned_resolver import PinnedResolver

    connector = aiohttp.TCPConnector(
        resolver=PinnedResolver(str(target.raw_host), addresses), use_dns_cache=False, force_close=True
    )
    session = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        auto_decompress=False,
        headers=_HEADERS,
        timeout=aiohttp.ClientTimeout(total=None),
    )
    try:
        async with session, session.get(target, allow_redirects=False) as response:
            _check_peer(response, addresses, target)
            yield response
    except aiohttp.ClientError as error:
        raise ToolError(f"{target} could not be fetched: {error}. Try later, or another source.") from None


def _check_peer(response: "ClientResponse", addresses: Sequence[str], target: "URL") -> None:
    """Raise ToolError if the connection went to an address that was not vetted."""
    connection = response.connection
    peer = connection.transport.get_extra_info("peername") if connection and connection.transport else None
    if peer is not None and str(ip_address(peer[0])) not in addresses:
        raise ToolError(f"{target} was answered from {peer[0]}, which was not vetted. It is not read.")


def _make_status_error(target: "URL", status: int, reason: str, headers: Mapping[str, str]) -> ToolError:
    later = headers.get("Retry-After", "")
    wait = f" It asks to wait {later} s." if later.isdigit() else ""
    match status:
        case 401 | 403:
            advice = "It does not let this tool in; use another source."
        case 404 | 410:
            advice = "There is no such page; check the address or search for it."
        case 429:
            advice = "It gets too many requests; try later."
        case _:
            advice = "Try later, or another source." if status >= 500 else "Use another source."
    return ToolError(f"{target} answered {status} {reason}. {advice}{wait}".replace(" .", "."))


async def _read_body(response: "ClientResponse", limit: int) -> tuple[bytes, bool]:
    """Return the decompressed body up to a size, and whether there is more."""
    decompressor = _Decompressor(response.headers.get("Content-Encoding", ""), str(response.url))
    pieces: list[bytes] = []
    room = limit
    received = 0
    async for compressed in response.content.iter_chunked(_CHUNK_BYTES):
        received += len(compressed)
        piece = decompressor.decompress(compressed, room + 1)
        pieces.append(piece[:room])
        if len(piece) > room or received > limit:
            return b"".join(pieces), True
        room -= len(piece)
    return b"".join(pieces), False


class _Decompressor:
    """Decompresses in bounded pieces: a small body can expand to many gigabytes."""

    def __init__(self, encoding: str, url: str) -> None:
        self._url = url
        match encoding.strip().lower():
            case "" | "identity":
                self._stream = None
            case "gzip" | "x-gzip":
                self._stream = zlib.decompressobj(wbits=31)
            case "deflate":
                self._stream = zlib.decompressobj()
            case other:
                raise ToolError(f"{url} is packed as {other[:50]!r}, which was not asked for. Use another source.")

    def decompress(self, compressed: bytes, limit: int) -> bytes:
        if self._stream is None:
            return compressed
        try:
            return self._stream.decompress(compressed, limit)
        except zlib.error as error:
            raise ToolError(f"{self._url} could not be unpacked ({error}). Use another source.") from None
