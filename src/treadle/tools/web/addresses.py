"""Decides which hosts may be contacted: those of the public internet, by name or plain address.

Names are checked first, to give the model a clear message. The address decides, however it was obtained. An IPv6
form that embeds an IPv4 address is refused whatever it embeds."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

Address = IPv4Address | IPv6Address
VetAddress = Callable[[Address], str | None]
"""Returns why an address may not be contacted, or None if it may."""
ResolveHost = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host, for a port."""

_NOT_PUBLIC_4 = {
    ip_network(network): why
    for network, why in {
        "0.0.0.0/8": "this machine",
        "10.0.0.0/8": "a private network",
        "100.64.0.0/10": "a provider's inner network",
        "127.0.0.0/8": "this machine",
        "168.63.129.16/32": "a cloud's inner service",
        "169.254.0.0/16": "the local link, where clouds keep credentials",
        "172.16.0.0/12": "a private network",
        "192.0.0.0/24": "reserved",
        "192.0.2.0/24": "reserved for examples",
        "192.31.196.0/24": "reserved",
        "192.52.193.0/24": "reserved",
        "192.88.99.0/24": "a relay into other networks",
        "192.168.0.0/16": "a private network",
        "192.175.48.0/24": "reserved",
        "198.18.0.0/15": "reserved for measurements",
        "198.51.100.0/24": "reserved for examples",
        "203.0.113.0/24": "reserved for examples",
        "224.0.0.0/4": "a group of machines",
        "240.0.0.0/4": "reserved",
    }.items()
}
_PUBLIC_6 = ip_network("2000::/3")
_NOT_PUBLIC_6 = {
    ip_network(network): why
    for network, why in {
        "::/96": "this machine, or an IPv4 address in another form",
        "::ffff:0:0/96": "an IPv4 address in another form",
        "64:ff9b::/96": "an IPv4 address in another form",
        "64:ff9b:1::/48": "an IPv4 address in another form",
        "2001::/23": "a tunnel, or reserved",
        "2001:db8::/32": "reserved for examples",
        "2002::/16": "an IPv4 address in another form",
        "3fff::/20": "reserved for examples",
        "fc00::/7": "a private network",
        "fe80::/10": "the local link",
        "fec0::/10": "a private network",
        "ff00::/8": "a group of machines",
    }.items()
}
_LOCAL_NAMES = ("localhost", "local", "localdomain", "internal", "intranet", "lan", "home.arpa", "onion")


def explain_not_public(address: Address) -> str | None:
    """Return why an address is not on the public internet, or None if it is."""
    if isinstance(address, IPv4Address):
        return next((why for network, why in _NOT_PUBLIC_4.items() if address in network), None)
    if address.scope_id is not None:
        return "the local link"
    for network, why in _NOT_PUBLIC_6.items():
        if address in network:
            return why
    # ISATAP: the lower half embeds an IPv4 address.
    if address.packed[8:12] in (b"\0\0\x5e\xfe", b"\x02\0\x5e\xfe"):
        return "an IPv4 address in another form"
    return None if address in _PUBLIC_6 else "reserved"


def explain_not_public_name(host: str) -> str | None:
    """Return why a host is refused before it is resolved, or None. `host` is a plain address, or a name in
    ASCII."""
    if not host:
        return "it names no host"
    if _is_address(host):
        return None
    if host.endswith("."):
        return "the name ends in a dot; leave it out"
    last = host.rpartition(".")[2]
    if last.isdigit() or last.lower().startswith("0x"):
        return "it is an address in an unusual form; write it as four decimal numbers"
    if "." not in host or any(f".{host.lower()}".endswith(f".{name}") for name in _LOCAL_NAMES):
        return "it is the name of a machine on a local network"
    return None


async def resolve_host(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host according to the system resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
