"""The chat channels of a home: as the process that owns it has them, or as the process that holds a connection has
recorded it. Nothing is connected for it."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from treadle.bootstrap.databases import find_owner, read_channel_states
from treadle.config.database_url import is_postgres
from treadle.config.home import Home
from treadle.doctor.database import SERVER_SECONDS
from treadle.doctor.findings import setting
from treadle.domain.channels import ChannelConfig, find_recipient
from treadle.domain.errors import TreadleError
from treadle.home.channels import find_adapter, resolve_settings
from treadle.operations.channel_manager import ChannelView
from treadle.operations.channels import LIST
from treadle.operations.system_facts import DoctorFinding
from treadle.ports.channel_store import ChannelState

LIMITATION_ADVICE = "See the page about the platform in the docs."


async def describe_channels(home: Home, *, offline: bool = False) -> Sequence[DoctorFinding]:
    """Return a finding for each configured channel. Offline, a database on a server is not asked either."""
    configs = home.config().channels
    heartbeats = _describe_heartbeats(home, configs)
    if not configs:
        return heartbeats
    views = {view.name: view for view in await read_channels(home) or ()}
    is_asked = not views and not (offline and is_postgres(home.database_url))
    states = await _read_recorded(home) if is_asked else dict[str, ChannelState]()
    found = [_describe(home, name, config, views.get(name), states.get(name)) for name, config in configs.items()]
    return [*found, *heartbeats]


def _describe_heartbeats(home: Home, configs: Mapping[str, ChannelConfig]) -> list[DoctorFinding]:
    """Return a finding for each heartbeat whose answers go to a recipient that is not configured."""
    found: list[DoctorFinding] = []
    for name in home.agents():
        try:
            heartbeat = home.agent(name).heartbeat
            if heartbeat.every is not None and heartbeat.deliver:
                find_recipient(configs, heartbeat.deliver)
        except ValueError as error:
            advice = f"Fix `heartbeat.deliver` of the agent {name}, or add the recipient to config.yaml."
            found.append(DoctorFinding(f"heartbeat of {name}", "wrong", f"its answers are lost: {error}", advice))
        except TreadleError:
            continue  # a file that cannot be read is reported elsewhere
    return found


def _describe(
    home: Home, name: str, config: ChannelConfig, view: ChannelView | None, state: ChannelState | None
) -> DoctorFinding:
    title = f"channel {name}"
    if not config.enabled:
        return setting(title, "disabled")
    try:
        find_adapter(config.platform or name)
        resolve_settings(config.settings, lambda _: "checked later")
        home.agent(config.agent)
    except (ValueError, TreadleError) as error:
        return DoctorFinding(title, "wrong", str(error), "Fix it in config.yaml.")
    if view is not None:
        return _describe_view(title, name, view)
    if state is not None:
        return _describe_state(title, name, state)
    return setting(title, f"{config.platform or name}, agent {config.agent}; `treadle serve` connects to it")


def _describe_view(title: str, name: str, view: ChannelView) -> DoctorFinding:
    """Return a finding about what the process that owns the home says now."""
    since = "" if view.since is None else f" since {_write_time(view.since)}"
    if view.status == "failed":
        found = f"not connected{since}, reconnecting: {view.reason}"
        return DoctorFinding(title, "note", found, f"Run `treadle channels test {name}`.")
    if view.failed:
        return DoctorFinding(
            title, "note", f"{view.failed} messages were given up", "The log of the server says why."
        )
    if view.status == "connected" and view.reason:
        return DoctorFinding(title, "note", f"connected as {view.account}: {view.reason}", LIMITATION_ADVICE)
    if view.status == "connected":
        return DoctorFinding(title, "ok", f"connected as {view.account}{since}, {len(view.people)} people")
    return setting(title, view.status)


def _describe_state(title: str, name: str, state: ChannelState) -> DoctorFinding:
    """Return a finding about what the process that holds the connection recorded. Whether a process holds it is
    known with PostgreSQL: the holder has a lock. With SQLite, no process answered."""
    since = _write_time(datetime.fromtimestamp(state.since, UTC))
    account = f" as {state.account}" if state.account else ""
    match state.status:
        case "connected":
            recorded = f"connected{account} since {since}"
        case "failed":
            recorded = f"not connected since {since}, reconnecting: {state.reason}"
        case _:
            recorded = f"{state.status} since {since}"
    if not state.is_held:
        found = f"no server holds the connection (probed); the last one recorded: {recorded}"
        if state.status == "stopped":
            return DoctorFinding(title, "set", f"{found}; `treadle serve` connects to it", basis="recorded")
        return DoctorFinding(title, "note", found, "It may have been killed. Start one: treadle serve", "recorded")
    found = f"a server holds the connection (probed) and recorded: {recorded}"
    if state.status == "connected" and state.reason:
        return DoctorFinding(title, "note", f"{found}: {state.reason}", LIMITATION_ADVICE, "recorded")
    if state.status == "connected":
        return DoctorFinding(title, "ok", found, basis="recorded")
    advice = f"Run `treadle channels test {name}`." if state.status == "failed" else ""
    return DoctorFinding(title, "note", found, advice, "recorded")


def _write_time(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


async def _read_recorded(home: Home) -> Mapping[str, ChannelState]:
    """Return what was recorded about channels. It is nothing if the database cannot be read, which another finding
    reports."""
    try:
        async with asyncio.timeout(SERVER_SECONDS):
            return {state.channel: state for state in await read_channel_states(home.database_url)}
    except (TreadleError, TimeoutError):
        return {}


async def read_channels(home: Home) -> Sequence[ChannelView] | None:
    """Return the channels of the process that owns the home; None if none answers."""
    if (owned := find_owner(home)) is None or owned.socket is None:
        return None
    from treadle.operations.operation import NoParameters
    from treadle.remote.caller import RemoteCaller
    from treadle.remote.connection import Connection, ServerGone, address_of
    from treadle.remote.owner_watch import NOTICE_SECONDS

    try:
        async with Connection(address_of(owned), limit_seconds=NOTICE_SECONDS) as connection:
            return (await RemoteCaller(connection).call(LIST, NoParameters())).items
    except (TreadleError, ServerGone):
        return None
