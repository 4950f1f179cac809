"""A webhook receiver on loopback that accepts events, fails, hangs, redirects or sends an endless answer."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress

import msgspec
from aiohttp import web
from msgspec import Struct

from tests.patience import HANG_SECONDS


class Received(Struct, frozen=True):
    headers: dict[str, str]
    body: bytes

    @property
    def event_id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def type(self) -> str:
        return msgspec.json.decode(self.body)["type"]


Behaviour = int | str
"""A status; or `hang`, `elsewhere`, `endless`, `broken`."""


class Receiver:
    def __init__(self, url: str, behave: Callable[[Received], Behaviour]) -> None:
        self.url = url
        self.behave = behave
        self.received: list[Received] = []
        self.elsewhere = 0
        self._news = asyncio.Condition()

    async def take(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        received = Received(headers, await request.read())
        async with self._news:
            self.received.append(received)
            self._news.notify_all()
        match self.behave(received):
            case int() as status:
                return web.Response(status=status, text="thanks")
            case "hang":
                await asyncio.sleep(3600)
                return web.Response()
            case "elsewhere":
                return web.Response(status=302, headers={"Location": f"{self.url}/elsewhere"})
            case "broken":
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            case _:
                response = web.StreamResponse()
                await response.prepare(request)
                with suppress(ConnectionError):
                    while True:
                        await response.write(b"x" * 65536)
                return response

    async def wrong(self, _: web.Request) -> web.Response:
        self.elsewhere += 1
        return web.Response()

    async def until(self, count: int) -> list[Received]:
        """Wait until this many deliveries were received, and return them."""
        async with asyncio.timeout(HANG_SECONDS), self._news:
            await self._news.wait_for(lambda: len(self.received) >= count)
        return self.received


@asynccontextmanager
async def receiver(behave: Callable[[Received], Behaviour] = lambda _: 200) -> AsyncGenerator[Receiver, None]:
    receiving = Receiver("", behave)
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/", receiving.take)
    app.router.add_route("*", "/elsewhere", receiving.wrong)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        receiving.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield receiving
    finally:
        await runner.cleanup()
