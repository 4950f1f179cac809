"""Restricts where webhooks may be sent: not to this machine or its link, where services trust every client.

The connection is made to the address that was checked, whatever the host name is."""

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import DefaultResolver

SETTING = "webhooks.allow_local in config.yaml"
_METADATA = frozenset(map(ip_address, ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254")))
"""Addresses of cloud metadata services that serve credentials, in addition to the local link."""
_NAT64 = (ip_network("64:ff9b::/96"), ip_network("64:ff9b:1::/48"), ip_network("::/96"))


def explain_local_address(text: str) -> str | None:
    """Return what makes an address local to this machine or its link, or None."""
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address) and (embedded := _extract_ipv4(address)) is not None:
        address = embedded
    if address.is_loopback or address.is_unspecified or address in ip_network("0.0.0.0/8"):
        return "an address of this machine"
    if address.is_link_local or address in _METADATA:
        return "an address of the local link or of a cloud's metadata service"
    return "a multicast address" if address.is_multicast else None


def explain_local_host(host: str) -> str | None:
    """Return what makes a host local, judging by its name, or None."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith((".localhost", ".localdomain")):
        return "a name of this machine"
    try:
        return explain_local_address(name)
    except ValueError:
        pass
    try:
        return explain_local_address(socket.inet_ntoa(socket.inet_aton(name)))  # 127.1, 0x7f000001
    except (OSError, UnicodeError):
        return None


def describe_refusal(host: str, why: str) -> str:
    return f"`{host[:200]}` is {why}, and webhooks are not sent there. Set {SETTING} to true if it is yours."


class LocalDestination(OSError):
    """A webhook would be sent to an address that the settings do not allow."""


class VettedResolver(AbstractResolver):
    """Resolves names, and rejects addresses that are not allowed. Literal addresses are not passed to it."""

    def __init__(self) -> None:
        self._resolver = DefaultResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        for each in found:
            if (why := explain_local_address(each["host"])) is not None:
                raise LocalDestination(describe_refusal(host, why))
        return found

    async def close(self) -> None:
        await self._resolver.close()


def _extract_ipv4(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address embedded in an IPv6 address, or None."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address.packed[8:12] in (b"\0\0\x5e\xfe", b"\x02\0\x5e\xfe") or any(address in net for net in _NAT64):
        low = IPv4Address(address.packed[12:])
        return low if int(low) > 1 else None
    return None
