"""Downloads of files that people send, with limits of size and time, from the platform's own server only."""

import asyncio
from collections.abc import Mapping

import aiohttp
from yarl import URL

from treadle.ports.channel import ChannelError, ChannelRefused

DOWNLOAD_SECONDS = 60.0
"""How long one file may take: the messages of its conversation wait for it."""
MAX_REDIRECTS = 3
CHUNK_BYTES = 65_536


async def download(
    session: aiohttp.ClientSession, url: str, max_bytes: int, headers: Mapping[str, str] | None = None
) -> bytes:
    """Return the content of a file. Redirects are followed on the same server only, so neither the token nor the
    request reaches another one. Raise ChannelRefused if the file is too large or is stored elsewhere."""
    place = URL(url)
    try:
        async with asyncio.timeout(DOWNLOAD_SECONDS):
            for _ in range(MAX_REDIRECTS + 1):
                found = await _get(session, place, max_bytes, headers)
                if isinstance(found, bytes):
                    return found
                if found.origin() != place.origin():
                    raise ChannelRefused("it is stored on another server")
                place = found
    except TimeoutError:
        raise ChannelError(f"the download took more than {DOWNLOAD_SECONDS:.0f} s") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise ChannelError(f"the download failed: {error or type(error).__name__}") from None
    raise ChannelError(f"the server redirected more than {MAX_REDIRECTS} times")


async def _get(
    session: aiohttp.ClientSession, place: URL, max_bytes: int, headers: Mapping[str, str] | None
) -> bytes | URL:
    """Return the content, or where the server redirects to."""
    async with session.get(place, headers=headers, allow_redirects=False) as response:
        if response.status in (301, 302, 303, 307, 308):
            return place.join(URL(response.headers.get("Location", "")))
        if response.status != 200:
            raise ChannelError(f"the server answered {response.status}")
        data = bytearray()
        async for chunk in response.content.iter_chunked(CHUNK_BYTES):
            data += chunk
            if len(data) > max_bytes:
                raise ChannelRefused(f"it has more than {max_bytes} bytes")
        return bytes(data)
