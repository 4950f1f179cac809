"""Canaries for what the code uses of other libraries without a promise: each fails when an upgrade changes it.

The gain of the short path around aiohttp is measured by `python -m bench.http_client`."""

import asyncio
import inspect

import pytest
from pgqueuer import Queries, QueueManager
from uvicorn import Server
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tests.fake_endpoint import DONE, Answer, FakeEndpoint, delta
from treadle.dispatch import pgqueuer as dispatcher
from treadle.models.http.endpoint import Endpoint
from treadle.models.http.keys import KeyRing
from treadle.models.http.response_reader import ChunkStream, HttpResponse
from treadle.models.http.transport import Connections, PreparedPost
from treadle.surfaces.http.server import BoundedProtocol, SameUserProtocol


def test_model_calls_take_the_short_path_around_aiohttp() -> None:
    async def respond() -> HttpResponse:
        connections = Connections()
        try:
            async with FakeEndpoint(policy=lambda _: Answer([delta("a"), DONE])) as server:
                response = await PreparedPost(
                    Endpoint(provider="fake", url=server.url, keys=KeyRing(())), connections
                )(b"{}", None)
                response.release()
                return response
        finally:
            await connections.close()

    assert isinstance(asyncio.run(respond()), ChunkStream)


@pytest.mark.parametrize("protocol", [BoundedProtocol, SameUserProtocol])
def test_uvicorn_still_has_what_the_bounded_connections_override_and_use(protocol: type[HttpToolsProtocol]) -> None:
    ours = {name for kind in protocol.__mro__ if kind.__module__.startswith("treadle.") for name in vars(kind)}
    overridden = {
        "connection_made", "data_received", "on_message_begin", "on_headers_complete", "on_message_complete",
        "send_400_response", "connection_lost",
    }  # fmt: skip
    assert overridden <= ours
    for name in overridden:
        assert callable(getattr(HttpToolsProtocol, name))
    source = inspect.getsource(HttpToolsProtocol.__init__)
    for attribute in ("connections", "pipeline", "cycle", "transport", "scope", "loop"):
        assert f"self.{attribute}" in source
    assert callable(Server.capture_signals)


def test_pgqueuer_still_takes_jobs_through_the_method_that_is_overridden() -> None:
    own = dispatcher._Jobs.dequeue  # pyright: ignore[reportPrivateUsage] -- the override under test
    assert list(inspect.signature(own).parameters) == list(inspect.signature(Queries.dequeue).parameters)
    wanted = {"dequeue_timeout", "batch_size", "shutdown_on_listener_failure", "heartbeat_timeout"}
    assert wanted | {"log_aggregation_interval"} <= set(inspect.signature(QueueManager.run).parameters)
    assert ".dequeue(" in inspect.getsource(inspect.getmodule(QueueManager) or QueueManager)
