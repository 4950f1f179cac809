"""A resolver that returns only vetted addresses. It is imported when a page is fetched."""

import socket
from collections.abc import Sequence

from aiohttp.abc import AbstractResolver, ResolveResult


class PinnedResolver(AbstractResolver):
    """Resolves one host to fixed addresses."""

    def __init__(self, host: str, addresses: Sequence[str]) -> None:
        self._host = host
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        if host.lower() != self._host.lower():
            raise OSError(f"{host} was not vetted")
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
        ]

    async def close(self) -> None:
        """Do nothing; there is nothing to release."""
