"""The session cookie of the dashboard: its name, its attributes, and when it counts."""

from collections.abc import Callable, Mapping

from starlette.types import Message, Scope, Send

from treadle.operations.refusal import Refusal
from treadle.operations.sign_in_service import LONGEST_SECONDS

HEADER = b"x-treadle"
HEADER_VALUE = "dashboard"
"""A page of another site cannot send this header without asking the server first."""
IDENTITY_PATH = "/v1/dashboard/identity"
SIGN_IN_PATH = "/v1/dashboard/sign-in"
SAFE_METHODS = ("GET", "HEAD")
NO_COOKIE_PREFIXES = ("/v1/chat/", "/v1/responses", "/v1/models", "/metrics", "/mcp")
"""Routes for programs. A browser has no business there, so a cookie does not count."""

RESPONSE_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; sandbox"),
]
"""With data of the API: whatever a model or a tool wrote is never shown as a page."""


def cookie_name(scope: Scope) -> str:
    """Return the name of the cookie. It carries the port, because browsers share cookies between ports."""
    server = scope["server"]
    return f"treadle_{server[1] if server else 0}"


def read_cookie(scope: Scope, header: str) -> str:
    """Return the value of the session cookie; empty if there is none, or if it does not count for this path."""
    if not header or scope["path"].startswith(NO_COOKIE_PREFIXES):
        return ""
    wanted = f"{cookie_name(scope)}="
    for part in header.split(";"):
        if part.strip().startswith(wanted):
            return part.strip()[len(wanted) :]
    return ""


def check_same_origin(scope: Scope, headers: Mapping[bytes, str], is_ours: Callable[[str], bool]) -> None:
    """Raise Refusal unless a request with a cookie comes from a page of this server.

    Other ports of the same host count as the same site for cookies, so the cookie alone proves nothing."""
    site = headers[b"sec-fetch-site"]
    if site not in ("", "same-origin", "none"):
        raise Refusal(403, "ForeignOrigin", "The request comes from another site. Use the dashboard itself.")
    if scope["method"] in SAFE_METHODS:
        return
    if not is_ours(headers[b"origin"]) or headers[HEADER] != HEADER_VALUE:
        raise Refusal(
            403,
            "ForeignOrigin",
            "A request that changes something with a cookie needs the Origin of this server and the header "
            "X-Treadle: dashboard. Programs send `Authorization: Bearer trd_…` instead.",
        )


def make_cookie(scope: Scope, value: str, is_secure: bool) -> str:
    """Return the Set-Cookie header of a new sign-in, or one that deletes the cookie."""
    age = int(LONGEST_SECONDS) if value else 0
    secure = "; Secure" if is_secure else ""
    return f"{cookie_name(scope)}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{secure}"


def secure_responses(send: Send) -> Send:
    """Return a function that sends responses to a browser with headers that keep their content inert."""

    async def send_secured(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *RESPONSE_HEADERS]
        await send(message)

    return send_secured
