"""Whether a Treadle server answers at the configured address."""

import aiohttp
import msgspec
from msgspec import Struct

from treadle.config.home import ServerSettings
from treadle.doctor.findings import Finding, setting
from treadle.models.http.failure import describe_os_error
from treadle.models.http.fetch import fetch, open_session

ABOUT = "server"
MAX_VERSION = 40
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
"""Where to connect to a server that is bound to all addresses."""


class _Health(Struct):
    status: str
    version: str


async def describe_server(server: ServerSettings, timeout_seconds: float, *, offline: bool) -> Finding:
    """Connect to where `treadle serve` is configured to be."""
    where = f"{server.host}:{server.port}"
    if server.port == 0:
        return setting(ABOUT, "`treadle serve` is configured to take any free port; not tried")
    if offline:
        return setting(ABOUT, f"`treadle serve` is configured for {where}; not tried")
    host = _ANY_ADDRESS.get(server.host, server.host)
    host = f"[{host}]" if ":" in host else host
    try:
        async with open_session() as session:
            answer = await fetch(session, f"http://{host}:{server.port}/healthz", {}, timeout_seconds)
    except TimeoutError:
        found = f"something accepts connections on {where} and did not answer within {timeout_seconds:g} s"
        return Finding(ABOUT, "note", found, _OTHER)
    except aiohttp.ClientConnectorError as error:
        found = f"no server runs on {where} ({describe_os_error(error.os_error)})"
        return Finding(ABOUT, "note", found, "Start it with: treadle serve")
    except (aiohttp.ClientError, OSError, ValueError):
        return Finding(ABOUT, "note", f"something other than Treadle answers on {where}", _OTHER)
    try:
        health = msgspec.json.decode(answer.body, type=_Health)
    except msgspec.DecodeError:
        return Finding(ABOUT, "note", f"something other than Treadle answers on {where}", _OTHER)
    return Finding(ABOUT, "ok", f"a Treadle server (version {health.version[:MAX_VERSION]}) answers on {where}")


_OTHER = "`treadle serve` cannot use this address. Set server.port in config.yaml, or stop the other program."
