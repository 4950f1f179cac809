"""The chat channels of a home, as the process that owns it has them."""

from collections.abc import Mapping, Sequence

from treadle.bootstrap.channels import find_adapter, resolve_settings
from treadle.bootstrap.stores import find_owner
from treadle.config.database_url import is_postgres
from treadle.config.home import Home
from treadle.doctor.findings import Finding, setting
from treadle.domain.channels import ChannelConfig, find_recipient
from treadle.domain.errors import TreadleError
from treadle.operations.channels import LIST, ChannelView

UNVERIFIED = "The device is not verified"
"""The account of a Matrix channel says so. Clients such as Element then exchange no encrypted messages with it."""


async def describe_channels(home: Home) -> Sequence[Finding]:
    """Return a finding for each configured channel. Nothing is connected for it."""
    configs = home.config().channels
    heartbeats = _describe_heartbeats(home, configs)
    if not configs:
        return heartbeats
    views = {view.name: view for view in await read_channels(home) or ()}
    return [*(_describe(home, name, config, views.get(name)) for name, config in configs.items()), *heartbeats]


def _describe_heartbeats(home: Home, configs: Mapping[str, ChannelConfig]) -> list[Finding]:
    """Return a finding for each heartbeat whose answers go to a recipient that is not configured."""
    found: list[Finding] = []
    for name in home.agents():
        try:
            heartbeat = home.agent(name).heartbeat
            if heartbeat.every is not None and heartbeat.deliver:
                find_recipient(configs, heartbeat.deliver)
        except ValueError as error:
            advice = f"Fix `heartbeat.deliver` of the agent {name}, or add the recipient to config.yaml."
            found.append(Finding(f"heartbeat of {name}", "wrong", f"its answers are lost: {error}", advice))
        except TreadleError:
            continue  # a file that cannot be read is reported elsewhere
    return found


def _describe(home: Home, name: str, config: ChannelConfig, view: ChannelView | None) -> Finding:
    title = f"channel {name}"
    if not config.enabled:
        return setting(title, "disabled")
    try:
        find_adapter(config.platform or name)
        resolve_settings(config.settings, lambda _: "checked later")
        home.agent(config.agent)
    except (ValueError, TreadleError) as error:
        return Finding(title, "wrong", str(error), "Fix it in config.yaml.")
    if view is None:
        return setting(title, f"{config.platform or name}, agent {config.agent}; `treadle serve` connects to it")
    if view.status == "failed":
        return Finding(title, "note", f"not connected: {view.reason}", f"Run `treadle channels test {name}`.")
    if view.failed:
        return Finding(title, "note", f"{view.failed} messages were given up", "The log of the server says why.")
    if view.status == "connected" and UNVERIFIED in view.account:
        return Finding(title, "note", f"connected as {view.account}", "See the page about Matrix in the docs.")
    if view.status == "connected":
        return Finding(title, "ok", f"connected as {view.account}, {len(view.people)} people")
    return setting(title, view.status)


async def read_channels(home: Home) -> Sequence[ChannelView] | None:
    """Return the channels of the process that owns the home; None if none answers."""
    if is_postgres(home.database_url) or (owner := find_owner(home)) is None or owner.socket is None:
        return None
    from treadle.operations.operation import NoParameters
    from treadle.remote.caller import RemoteCaller
    from treadle.remote.connection import Address, Connection, ServerGone

    try:
        async with Connection(Address(owner.socket)) as connection:
            return (await RemoteCaller(connection).call(LIST, NoParameters())).items
    except (TreadleError, ServerGone):
        return None
