"""Sign-in links of the dashboard. The code is in the fragment, which a browser sends to no server."""

import os
import sys
from urllib.parse import urlsplit


def make_url(address: str, code: str) -> str:
    """Return the link that signs in with a code."""
    host, port = urlsplit(address).hostname or "127.0.0.1", urlsplit(address).port
    local = "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    return f"http://{local}:{port}/sign-in#code={code}"


def can_open_browser() -> bool:
    """Return whether this machine has a screen to show a browser on."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def open_browser(url: str) -> None:
    """Open a link in the user's browser. Without one, the printed link remains."""
    if not can_open_browser():
        return
    import webbrowser

    webbrowser.open(url)
