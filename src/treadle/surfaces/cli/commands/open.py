"""`treadle open`: a one-time sign-in link for the dashboard."""

from typing import Annotated

from treadle.config.database_url import is_postgres
from treadle.domain.errors import UsageError
from treadle.surfaces.cli.command_line import Group, Option
from treadle.surfaces.cli.shared_options import Json
from treadle.surfaces.home_access.connection import current_home, open_admin_caller
from treadle.surfaces.server.sign_in_link import make_url, open_browser
from treadle.surfaces.terminal.output import print_json

group = Group()


@group.command("open")
async def open_dashboard(
    print_only: Annotated[bool, Option("--print", help="Only print the link. Open no browser.")] = False,
    json: Json = False,
) -> int:
    """Open the dashboard of the running server in a browser, signed in as the owner of the home.

    The link works once, within 5 minutes."""
    from treadle.operations import dashboard
    from treadle.operations.operation import NoParameters

    home = current_home()
    async with open_admin_caller(home) as caller:
        link = await caller.call(dashboard.LINK, NoParameters())
    settings = home.config().server
    address = link.url
    if address is None and is_postgres(home.database_url):
        address = f"http://{settings.host}:{settings.port}"
    if address is None:
        raise UsageError("No server serves this home. Start one: treadle serve --open")
    url = make_url(address, link.code)
    if json:
        print_json({"url": url, "expires_at": link.expires_at.isoformat()})
        return 0
    print(f"{url}\nThe link works once, within 5 minutes.", flush=True)
    if not print_only:
        open_browser(url)
    return 0
