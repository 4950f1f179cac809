"""The pages and files of the dashboard, with the headers that keep them safe.

`make web` and the build of a wheel put the files into the folder `dashboard` next to this module. They hold no
data: a page gets everything through the API. All pages are one file, which shows what the path names."""

import gzip
import mimetypes
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from starlette.types import ASGIApp, Receive, Scope, Send

from treadle.operations.refusal import Refusal
from treadle.surfaces.http.auth import send_problem
from treadle.surfaces.http.response_headers import accepts_gzip

API_PATHS = frozenset(("v1", "mcp", "metrics", "healthz", "readyz"))
"""The first segment of the paths of programs: a browser that opens one sees what programs see."""
FOLDER = Path(__file__).parent / "dashboard"
PAGES = frozenset(
    (
        "", "sign-in", "start", "overview", "runs", "chat", "inbox", "approvals", "agents", "schedules",
        "inbound-webhooks", "webhooks", "memory", "skills", "mcp-servers", "vault", "tokens", "users", "models",
        "usage", "evaluations", "suites", "system", "reference", "compare", "search",
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
ASSETS = "/assets/"
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
    """ASGI middleware that serves the pages and files of the dashboard, and passes on everything else. Requests for
    an unknown host are passed on first: they are refused there."""

    def __init__(self, app: ASGIApp, knows_host: Callable[[str], bool]) -> None:
        self._app = app
        self._knows_host = knows_host
        self._index = AssetIndex()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD") or not self._is_for_us(scope):
            await self._app(scope, receive, send)
        elif file := self._find_file(scope["path"]):
            await _send_file(file, scope, send)
        elif _opens_page(scope):
            await _send_file(read_page(), scope, send, status=404)
        elif scope["path"].startswith(ASSETS):
            await send_problem(Refusal(404, "NotFound", "The dashboard has no such file."), scope, send)
        else:
            await self._app(scope, receive, send)

    def _is_for_us(self, scope: Scope) -> bool:
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        return len(hosts) == 1 and self._knows_host(hosts[0])

    def _find_file(self, path: str) -> AssetFile | None:
        """Return the file for a path; None if the dashboard has no such path."""
        if path.startswith(ASSETS) or path == "/favicon.svg":
            return self._index.find(path[1:])
        return read_page() if path.split("/", 2)[1] in PAGES else None


class AssetIndex:
    """The files of the dashboard. Its size depends on the build and never on the requests."""

    def __init__(self) -> None:
        self._built_at: int | None = None
        self._files: dict[str, AssetFile | None] = {}
        """Name -> the file, once it was requested."""

    def find(self, name: str) -> AssetFile | None:
        """Return a file of the build, or None. A new build needs no restart."""
        if (built_at := _read_build_time()) != self._built_at:
            self._built_at, self._files = built_at, dict.fromkeys(_list_files())
        if name in self._files and self._files[name] is None:
            self._files[name] = _read_asset(name)
        return self._files.get(name)


def _read_build_time() -> int | None:
    try:
        return (FOLDER / "assets").stat().st_mtime_ns
    except OSError:
        return None


def _list_files() -> list[str]:
    names = [path.name for path in FOLDER.glob("assets/*") if path.is_file()]
    return ["favicon.svg", *(f"assets/{name}" for name in names)]


def read_page() -> AssetFile:
    """Return the page, or how to build it. It is read each time, so a new build needs no restart."""
    try:
        body = (FOLDER / "index.html").read_bytes()
    except OSError:
        body = NOT_BUILT.encode()
    return AssetFile("text/html; charset=utf-8", body, gzip.compress(body, 6), "no-cache")


def _read_asset(name: str) -> AssetFile | None:
    try:
        body = (FOLDER / name).read_bytes()
    except OSError:
        return None
    media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    media_type = "text/javascript; charset=utf-8" if name.endswith(".js") else media_type
    return AssetFile(
        media_type, body, gzip.compress(body, 9), FOREVER if name.startswith("assets/") else "no-cache"
    )


def _opens_page(scope: Scope) -> bool:
    """Return whether a browser opens a path that is neither a page nor a path of programs."""
    first = scope["path"].split("/", 2)[1]
    if first in API_PATHS or scope["path"].startswith(ASSETS):
        return False
    return any(name == b"accept" and value.startswith(b"text/html") for name, value in scope["headers"])


async def _send_file(file: AssetFile, scope: Scope, send: Send, status: int = 200) -> None:
    zipped = accepts_gzip(scope)
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
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    sent = b"" if scope["method"] == "HEAD" else body
    await send({"type": "http.response.body", "body": sent, "more_body": False})
