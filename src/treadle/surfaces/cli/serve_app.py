"""What can be typed after `treadle serve`. It imports its work when it is called."""

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
    log_format: Annotated[Format, typer.Option(help="How what happens is told on standard error.")] = Format.text,
    json: Annotated[bool, typer.Option("--json", help="Say in JSON where it listens.")] = False,
) -> None:
    """Offer the agents of the home over HTTP, until Ctrl-C. Other commands attach to it.

    The first time it prints an access token; `treadle tokens` makes more."""
    import uvloop

    from treadle.surfaces.cli import process
    from treadle.surfaces.cli import serve as command

    wanted = command.Wanted(host, port, log_format.value, json)
    process.perform(partial(command.serve, wanted), uvloop.new_event_loop)
