"""The address that a server or a worker listens on."""

from contextlib import AsyncExitStack
from ipaddress import ip_address

from treadle.config.home_config import ServerSettings
from treadle.domain.errors import UsageError
from treadle.surfaces.http.application import Application
from treadle.surfaces.http.engine_server import serve_over_tcp
from treadle.surfaces.http.server import bind_socket, raise_file_limit


async def listen(app: Application, host: str, port: int, settings: ServerSettings, opened: AsyncExitStack) -> str:
    """Serve HTTP until `opened` is closed, and return the URL. Raises UsageError for an address in use."""
    raise_file_limit()
    try:
        listener = bind_socket(host, port)
    except OSError as error:
        what = f"{host} port {port} cannot be listened on: {error.strerror or error}."
        raise UsageError(f"{what} Choose another with --port.") from None
    opened.callback(listener.close)
    hosts = settings.hosts if _is_any(host) else (*settings.hosts, _format_host(host))
    await opened.enter_async_context(
        serve_over_tcp(app, listener, hosts, settings.origins, settings.streams_per_token, settings.stream_memory)
    )
    return f"http://{_format_host(host)}:{listener.getsockname()[1]}"


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
