"""A web server on loopback, under names that only the tests know."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from treadle.domain.ids import RunId, SessionId
from treadle.ports.tool import ToolContext
from treadle.tools.web import make_web_fetch
from treadle.tools.web.addresses import Address, ResolveHost, VetAddress, explain_not_public
from treadle.tools.web.http_fetch import DEFAULT_LIMITS, FetchLimits

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
CONTEXT = ToolContext(RunId("run_1"), SessionId("ses_1"), "c1", "run_1/c1", lambda text: None)
HOST = "site.example.org"


def anywhere(address: Address) -> str | None:
    return None


def only_here(address: Address) -> str | None:
    """Treat the first address of this machine as a public one."""
    return None if str(address) == "127.0.0.1" else explain_not_public(address)


async def here(host: str, port: int) -> Sequence[str]:
    return ["127.0.0.1"]


async def fetched(
    url: str,
    vet: VetAddress = anywhere,
    resolve: ResolveHost = here,
    limits: FetchLimits = DEFAULT_LIMITS,
    **arguments: Any,
) -> str:
    tool = make_web_fetch(vet, resolve, limits)
    parsed = tool.parse(msgspec.json.encode({"url": url, **arguments}).decode())
    return str(await tool.run(parsed, CONTEXT))


@asynccontextmanager
async def serving(handler: Handler, host: str = "127.0.0.1") -> AsyncGenerator[int]:
    """Yield the port of a server that gives this answer to every request."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application, shutdown_timeout=0.1, auto_decompress=False)
    await runner.setup()
    site = web.TCPSite(runner, host, 0)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def page(text: str, kind: str = "text/html") -> Handler:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=text, content_type=kind)

    return answer


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await work()

    asyncio.run(whole())
