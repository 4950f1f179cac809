"""What can be typed after `treadle serve` and `treadle worker`. Each imports its work when it is called."""

from enum import StrEnum
from functools import partial
from typing import Annotated

import typer

serve_app = typer.Typer()


class Format(StrEnum):
    """What can be said after --log-format."""

    text = "text"
    json = "json"


@serve_app.command("serve")
def serve(
    host: Annotated[
        str | None, typer.Option(metavar="HOST", help="The address to listen on; without it 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, metavar="PORT", help="The port; 0: any that is free.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Work on so many runs at once; without it on as many as come."),
    ] = None,
    no_workers: Annotated[
        bool, typer.Option("--no-workers", help="Leave all work to others, on PostgreSQL: `treadle worker`.")
    ] = False,
    log_format: Annotated[Format, typer.Option(help="How what happens is told on standard error.")] = Format.text,
    json: Annotated[bool, typer.Option("--json", help="Say in JSON where it listens.")] = False,
) -> None:
    """Offer the agents of the home over HTTP, until Ctrl-C. Other commands attach to it.

    The first time it prints an access token; `treadle tokens` makes more."""
    import uvloop

    from treadle.surfaces.cli import process
    from treadle.surfaces.cli import serve as command

    wanted = command.Wanted(host, port, log_format.value, json, 0 if no_workers else workers)
    process.perform(partial(command.serve, wanted), uvloop.new_event_loop)


@serve_app.command("worker")
def worker(
    concurrency: Annotated[
        int, typer.Option(min=1, metavar="N", help="Work on so many runs at once, at most.")
    ] = 100,
    host: Annotated[
        str | None, typer.Option(metavar="HOST", help="The address for --port; without it 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            metavar="PORT",
            help="Offer /healthz, /readyz and /metrics on this port; 0: any that is free. Without it on none.",
        ),
    ] = None,
    log_format: Annotated[Format, typer.Option(help="How what happens is told on standard error.")] = Format.text,
    json: Annotated[bool, typer.Option("--json", help="Say in JSON what it works on.")] = False,
) -> None:
    """Work on the runs of a PostgreSQL database, beside servers and other workers, until Ctrl-C.

    Told to stop, it takes nothing new, brings the steps under way to their end, and leaves the rest to others."""
    import uvloop

    from treadle.surfaces.cli import process
    from treadle.surfaces.cli import worker as command

    wanted = command.Wanted(concurrency, host, port, log_format.value, json)
    process.perform(partial(command.work, wanted), uvloop.new_event_loop)
