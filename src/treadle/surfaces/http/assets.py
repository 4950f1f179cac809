"""The pages and files of the dashboard, with the headers that keep them safe.

`make web` builds the files into the folder `dashboard` next to this module, and a wheel carries them. They hold no
data: a page gets everything through the API. All pages are one file, which shows what the path names."""

import gzip
import mimetypes
from functools import cache
from pathlib import Path

from litestar.types import ASGIApp, Receive, Scope, Send
from msgspec import Struct

FOLDER = Path(__file__).parent / "dashboard"
PAGES = frozenset(
    (
        "", "sign-in", "runs", "chat", "approvals", "agents", "schedules", "inbound-webhooks", "webhooks", "memory",
        "skills", "mcp-servers", "vault", "tokens", "models", "usage", "system", "reference", "compare", "search",
    )
)  # fmt: skip
"""The first segment of the path of each page."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types svelte-trusted-html treadle"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
FOREVER = "public, max-age=31536000, immutable"
"""For files whose name carries a hash of their content."""
NOT_BUILT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Treadle</title></head>
<body><h1>The dashboard is not built</h1>
<p>This server works, and its API is at <a href="/v1/openapi.json">/v1/openapi.json</a>.</p>
<p>To build the dashboard, run <code>make web</code> in a checkout of Treadle with access to the npm registry, then
reload this page. Packages from the package index contain it.</p></body></html>
"""


class AssetFile(Struct, frozen=True):
    """A file as it is sent."""

    media_type: str
    body: bytes
    gzipped: bytes
    cache_control: str


class DashboardFiles:
    """ASGI middleware that serves the pages and files of the dashboard, and passes on everything else."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] in ("GET", "HEAD") and (file := find_file(scope["path"])):
            await _send_file(file, scope, send)
        else:
            await self._app(scope, receive, send)


def find_file(path: str) -> AssetFile | None:
    """Return the file for a path; None if the dashboard has no such path."""
    if path.startswith("/assets/") or path == "/favicon.svg":
        return _read_asset(path[1:])
    return read_page() if path.split("/", 2)[1] in PAGES else None


def read_page() -> AssetFile:
    """Return the page, or how to build it. It is read each time, so a new build needs no restart."""
    try:
        body = (FOLDER / "index.html").read_bytes()
    except OSError:
        body = NOT_BUILT.encode()
    return AssetFile("text/html; charset=utf-8", body, gzip.compress(body, 6), "no-cache")


@cache
def _read_asset(name: str) -> AssetFile | None:
    path = FOLDER / name
    if path.parent != FOLDER / "assets" and path.parent != FOLDER:
        return None
    try:
        body = path.read_bytes()
    except OSError:
        return None
    media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    media_type = "text/javascript; charset=utf-8" if name.endswith(".js") else media_type
    return AssetFile(
        media_type, body, gzip.compress(body, 9), FOREVER if name.startswith("assets/") else "no-cache"
    )


async def _send_file(file: AssetFile, scope: Scope, send: Send) -> None:
    accepts = next((value for name, value in scope["headers"] if name == b"accept-encoding"), b"")
    zipped = b"gzip" in accepts
    body = file.gzipped if zipped else file.body
    headers = {
        **HEADERS,
        "content-type": file.media_type,
        "content-length": str(len(body)),
        "cache-control": file.cache_control,
        "vary": "accept-encoding",
        **({"content-encoding": "gzip"} if zipped else {}),
    }
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": 200, "headers": encoded})
    sent = b"" if scope["method"] == "HEAD" else body  # pyright: ignore[reportTypedDictNotRequiredAccess, reportGeneralTypeIssues] -- only HTTP requests come here
    await send({"type": "http.response.body", "body": sent, "more_body": False})
