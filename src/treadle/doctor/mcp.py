"""The MCP servers of a home: their approvals, and the connections of the process that owns the home."""

from collections.abc import Sequence
from importlib.util import find_spec

from treadle.bootstrap.databases import find_owner
from treadle.config.home import Home
from treadle.doctor.findings import setting
from treadle.domain.errors import TreadleError
from treadle.domain.mcp_servers import McpConnectionView
from treadle.home.mcp_entries import ServerEntry, list_entries
from treadle.operations.system_facts import DoctorFinding

INSTALL = "pip install 'treadle[mcp]'"


async def describe_mcp(home: Home) -> Sequence[DoctorFinding]:
    """Return a finding for each configured server. No server is started."""
    entries = list_entries(home)
    if not entries:
        return ()
    if find_spec("mcp") is None:
        return [
            DoctorFinding(
                "mcp", "wrong", f"{len(entries)} servers are configured, but the extra is missing", INSTALL
            )
        ]
    connections = await read_connections(home)
    return [_describe(entry, connections.get((entry.name, entry.agent), ())) for entry in entries]


def _describe(entry: ServerEntry, connections: Sequence[McpConnectionView]) -> DoctorFinding:
    name = f"mcp {entry.name}"
    of_agent = f" --agent {entry.agent}" if entry.agent else ""
    if entry.state == "disabled":
        return setting(name, "disabled")
    if entry.state != "approved":
        what = "it is not approved" if entry.state == "new" else "its entry has changed since it was approved"
        return DoctorFinding(name, "note", what, f"Run `treadle mcp approve {entry.name}{of_agent}`.")
    failed = [each for each in connections if each.state == "failed"]
    if failed:
        advice = f"Run `treadle mcp test {entry.name}{of_agent}`."
        return DoctorFinding(name, "note", f"not available: {failed[0].reason}", advice)
    if any(each.state == "connected" for each in connections):
        return DoctorFinding(name, "ok", f"connected, {len(entry.tools)} tools")
    return setting(name, f"approved with {len(entry.tools)} tools; not connected now")


async def read_connections(home: Home) -> dict[tuple[str, str], tuple[McpConnectionView, ...]]:
    """Return the connections of the process that owns the home, if there is one that answers."""
    if (owned := find_owner(home)) is None or owned.socket is None:
        return {}
    from treadle.operations.mcp_servers import LIST
    from treadle.operations.operation import NoParameters
    from treadle.remote.caller import RemoteCaller
    from treadle.remote.connection import Connection, ServerGone, address_of
    from treadle.remote.owner_watch import NOTICE_SECONDS

    try:
        async with Connection(address_of(owned), limit_seconds=NOTICE_SECONDS) as connection:
            page = await RemoteCaller(connection).call(LIST, NoParameters())
    except (TreadleError, ServerGone):
        return {}
    return {(each.name, each.agent or ""): each.connections for each in page.items}
