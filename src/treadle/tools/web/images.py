"""Fetches images that callers link to, under the rules of `web_fetch`: only from the public internet."""

from base64 import b64encode

from treadle.domain.messages import Image
from treadle.ports.tool import ToolError
from treadle.tools.web.addresses import ResolveHost, VetAddress, explain_not_public, resolve_host
from treadle.tools.web.http_fetch import TIMEOUT_SECONDS, FetchLimits, fetch_page


async def fetch_image(
    url: str, max_bytes: int, vet: VetAddress = explain_not_public, resolve: ResolveHost = resolve_host
) -> Image:
    """Return the image at a URL. Raise ToolError if it cannot be fetched, is too large, or not an image."""
    fetched = await fetch_page(url, vet, resolve, FetchLimits(max_bytes, TIMEOUT_SECONDS))
    kind = fetched.content_type.lower()
    if not kind.startswith("image/"):
        raise ToolError(f"{url} is {kind or 'of no known type'}, not an image. Give the URL of an image.")
    if fetched.cut:
        raise ToolError(f"the image at {url} has more than {max_bytes:,} bytes. Give a smaller one.")
    return Image(kind, b64encode(fetched.body).decode())
