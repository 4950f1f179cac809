"""The commands `treadle serve` and `treadle worker`. Each imports its work when it is called."""

from enum import StrEnum
from functools import partial
from typing import Annotated

from treadle.surfaces.cli.command_line import Group, Option

serve_app = Group()


class Format(StrEnum):
    """What can be said after --log-format."""

    text = "text"
    json = "json"


@serve_app.command("serve")
def serve(
    host: Annotated[
        str | None, Option(metavar="HOST", help="The address to listen on. Default: 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None, Option(min=0, max=65535, metavar="PORT", help="The port. 0: any free port.")
    ] = None,
    workers: Annotated[
        int | None,
        Option(min=0, metavar="N", help="Maximum runs that execute at a time. Default: no limit."),
    ] = None,
    no_workers: Annotated[
        bool, Option("--no-workers", help="Execute no runs. On PostgreSQL `treadle worker` executes them.")
    ] = False,
    log_format: Annotated[Format, Option(help="Format of the log on standard error.")] = Format.text,
    json: Annotated[bool, Option("--json", help="Print the address as JSON.")] = False,
) -> None:
    """Serve the agents of the home over HTTP until Ctrl-C. Other commands connect to the server.

    The first start prints an access token. `treadle tokens create` creates more."""
    import uvloop

    from treadle.surfaces.cli import process
    from treadle.surfaces.cli import serve as command

    wanted = command.Wanted(host, port, log_format.value, json, 0 if no_workers else workers)
    process.perform(partial(command.serve, wanted), uvloop.new_event_loop)


@serve_app.command("openapi")
def openapi() -> None:
    """Print the OpenAPI description of the HTTP API. No server is needed."""
    import msgspec

    from treadle.surfaces.http.api_description import build_description

    print(msgspec.json.format(msgspec.json.encode(build_description()), indent=1).decode())


@serve_app.command("worker")
def worker(
    concurrency: Annotated[int, Option(min=1, metavar="N", help="Maximum runs that execute at a time.")] = 100,
    host: Annotated[str | None, Option(metavar="HOST", help="The address for --port. Default: 127.0.0.1.")] = None,
    port: Annotated[
        int | None,
        Option(
            min=0,
            max=65535,
            metavar="PORT",
            help="Serve /healthz, /readyz and /metrics on this port. 0: any free port. Default: no port.",
        ),
    ] = None,
    log_format: Annotated[Format, Option(help="Format of the log on standard error.")] = Format.text,
    json: Annotated[bool, Option("--json", help="Print the database and the concurrency as JSON.")] = False,
) -> None:
    """Start a worker for a PostgreSQL database. It runs until Ctrl-C.

    When it is stopped, it finishes the steps in progress and releases its runs to other workers."""
    import uvloop

    from treadle.surfaces.cli import process
    from treadle.surfaces.cli import worker as command

    wanted = command.Wanted(concurrency, host, port, log_format.value, json)
    process.perform(partial(command.work, wanted), uvloop.new_event_loop)
