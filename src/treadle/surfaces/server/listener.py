"""The address that a server or a worker listens on."""

import socket
import sys
from contextlib import AsyncExitStack, ExitStack
from ipaddress import ip_address

from treadle.config.home_config import ServerSettings
from treadle.domain.errors import UsageError
from treadle.surfaces.http.application import Application
from treadle.surfaces.http.engine_server import serve_over_tcp
from treadle.surfaces.http.server import BACKLOG, bind_socket, raise_file_limit

BALANCES_CONNECTIONS = sys.platform == "linux"
"""Whether the system distributes connections over the sockets that share a port with SO_REUSEPORT."""


async def listen(app: Application, host: str, port: int, settings: ServerSettings, opened: AsyncExitStack) -> str:
    """Serve HTTP until `opened` is closed, and return the URL. Raises UsageError for an address in use."""
    raise_file_limit()
    listener = _bind(host, port)
    opened.callback(listener.close)
    await opened.enter_async_context(
        serve_over_tcp(
            app,
            listener,
            list_hosts(host, settings),
            settings.origins,
            settings.streams_per_token,
            settings.stream_memory,
        )
    )
    return make_url(host, listener.getsockname()[1])


def open_shared_port(host: str, port: int, processes: int) -> list[socket.socket]:
    """Return a listening socket for each process. Raise UsageError for an address in use, also by another server
    that shares its port.

    The system distributes connections over the sockets. Where it cannot, all processes have the same socket."""
    with ExitStack() as opened:
        exclusive = _bind(host, port)
        if not BALANCES_CONNECTIONS:
            return [exclusive] * processes
        opened.callback(exclusive.close)  # it kept other servers off the port until it was shared
        exclusive.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        return [_join(exclusive) for _ in range(processes)]


def _join(exclusive: socket.socket) -> socket.socket:
    """Return another listening socket for the same port."""
    joined = socket.socket(exclusive.family, exclusive.type, exclusive.proto)
    joined.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    joined.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    joined.bind(exclusive.getsockname())
    joined.listen(BACKLOG)
    joined.setblocking(False)
    return joined


def _bind(host: str, port: int) -> socket.socket:
    try:
        return bind_socket(host, port)
    except OSError as error:
        what = f"{host} port {port} cannot be listened on: {error.strerror or error}."
        raise UsageError(f"{what} Choose another with --port.") from None


def list_hosts(host: str, settings: ServerSettings) -> tuple[str, ...]:
    """Return the accepted `Host` headers besides those of the loopback address."""
    return settings.hosts if _is_any(host) else (*settings.hosts, _format_host(host))


def make_url(host: str, port: int) -> str:
    return f"http://{_format_host(host)}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the host. A name other than localhost may point anywhere."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _is_any(host: str) -> bool:
    """Return whether the host stands for all addresses of the machine: clients do not use it as a name."""
    try:
        return ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return not host


def _format_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
