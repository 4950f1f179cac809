"""Whether a Treadle server answers at the configured address."""

import aiohttp
import msgspec
from msgspec import Struct

from treadle.bootstrap.databases import find_owner
from treadle.config.home import Home
from treadle.doctor.findings import setting
from treadle.domain.errors import TreadleError
from treadle.models.http.failure import describe_os_error
from treadle.models.http.fetch import fetch, open_session
from treadle.operations.local_admin import ADDRESS
from treadle.operations.operation import NoParameters
from treadle.operations.system_facts import DoctorFinding
from treadle.remote.caller import RemoteCaller
from treadle.remote.connection import Connection, OwnerSilent, ServerGone, address_of
from treadle.remote.owner_watch import NOTICE_SECONDS

ABOUT = "server"
MAX_VERSION = 40
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
"""Where to connect to a server that is bound to all addresses."""


class _Health(Struct):
    status: str
    version: str
    processes: int | None = None


async def describe_server(home: Home, timeout_seconds: float, *, offline: bool) -> DoctorFinding:
    """Connect to where the process that owns the home serves, or else to where `treadle serve` is configured to
    be."""
    server = home.config().server
    try:
        url = None if offline else await _find_running(home)
    except OwnerSilent as silent:
        return DoctorFinding(ABOUT, "wrong", "the process that owns the home does not answer", str(silent))
    where = f"{server.host}:{server.port}" if url is None else url.partition("://")[2]
    if url is None and server.port == 0:
        return setting(ABOUT, "`treadle serve` is configured to take any free port; not tried")
    if offline:
        return setting(ABOUT, f"`treadle serve` is configured for {where}; not tried")
    host = _ANY_ADDRESS.get(server.host, server.host)
    host = f"[{host}]" if ":" in host else host
    try:
        async with open_session() as session:
            answer = await fetch(session, f"{url or f'http://{host}:{server.port}'}/healthz", {}, timeout_seconds)
    except TimeoutError:
        found = f"something accepts connections on {where} and did not answer within {timeout_seconds:g} s"
        return DoctorFinding(ABOUT, "note", found, _OTHER)
    except aiohttp.ClientConnectorError as error:
        found = f"no server runs on {where} ({describe_os_error(error.os_error)})"
        return DoctorFinding(ABOUT, "note", found, "Start it with: treadle serve")
    except (aiohttp.ClientError, OSError, ValueError):
        return DoctorFinding(ABOUT, "note", f"something other than Treadle answers on {where}", _OTHER)
    try:
        health = msgspec.json.decode(answer.body, type=_Health)
    except msgspec.DecodeError:
        return DoctorFinding(ABOUT, "note", f"something other than Treadle answers on {where}", _OTHER)
    return DoctorFinding(ABOUT, "ok", f"a Treadle server ({_describe(health)}) answers on {where}")


def _describe(health: _Health) -> str:
    version = f"version {health.version[:MAX_VERSION]}"
    match health.processes:
        case None:
            return version
        case 1:
            return f"{version}, 1 process is ready"
        case number:
            return f"{version}, {number} processes are ready"


async def _find_running(home: Home) -> str | None:
    """Return where the process that owns the home serves, if one does. Raise OwnerSilent if it does not answer."""
    try:
        if (owned := find_owner(home)) is None or owned.socket is None:
            return None
        async with Connection(address_of(owned), limit_seconds=NOTICE_SECONDS) as connection:
            return (await RemoteCaller(connection).call(ADDRESS, NoParameters())).url
    except OwnerSilent:
        raise
    except (TreadleError, ServerGone):
        return None


_OTHER = "`treadle serve` cannot use this address. Set server.port in config.yaml, or stop the other program."
