"""Where a command listens, for as long as it works."""

from contextlib import AsyncExitStack
from ipaddress import ip_address

from treadle.config.home import ServerSettings
from treadle.domain.errors import UsageError
from treadle.surfaces.http.application import Application
from treadle.surfaces.http.engine_server import serve_over_tcp
from treadle.surfaces.http.server import bind_socket, raise_file_limit


async def listen(app: Application, host: str, port: int, settings: ServerSettings, opened: AsyncExitStack) -> str:
    """Answer whoever has a token until what was opened is closed; the URL. Raises UsageError where none can be."""
    raise_file_limit()
    try:
        listener = bind_socket(host, port)
    except OSError as error:
        what = f"{host} port {port} cannot be listened on: {error.strerror or error}."
        raise UsageError(f"{what} Choose another with --port.") from None
    opened.callback(listener.close)
    hosts = settings.hosts if _is_any(host) else (*settings.hosts, _in_url(host))
    await opened.enter_async_context(
        serve_over_tcp(app, listener, hosts, settings.origins, settings.streams_per_token)
    )
    return f"http://{_in_url(host)}:{listener.getsockname()[1]}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it. A name other than localhost may point anywhere."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _is_any(host: str) -> bool:
    """Whether it stands for all addresses of the machine: then nobody is called so."""
    try:
        return ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return not host


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
