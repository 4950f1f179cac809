"""Canaries for what the code uses of other libraries without a promise: each fails when an upgrade changes it.

The gain of the short path around aiohttp is measured by `python -m bench.http_client`."""

import inspect
import ssl
import subprocess
import sys

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
from treadle.system.certificates import create_deferred_context


async def test_model_calls_take_the_short_path_around_aiohttp() -> None:
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

    assert isinstance(await respond(), ChunkStream)


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


def test_a_deferred_tls_context_has_the_settings_of_the_default_one() -> None:
    deferred, default = create_deferred_context(), ssl.create_default_context()
    for name in ("verify_mode", "check_hostname", "verify_flags", "options", "minimum_version", "protocol"):
        assert getattr(deferred, name) == getattr(default, name), name
    assert deferred.get_ca_certs() == []
    deferred.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="localhost")
    assert deferred.get_ca_certs() == default.get_ca_certs()


def test_aiohttp_verifies_servers_with_the_deferred_context() -> None:
    code = (
        "import treadle.models.http, aiohttp.connector as c, ssl; context = c._SSL_CONTEXT_VERIFIED; "
        "print(type(context).__name__, context.verify_mode.name, context.check_hostname); "
        "print(len(context.get_ca_certs())); "
        "print(ssl.create_default_context.__module__)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.splitlines() == ["DeferredContext CERT_REQUIRED True", "0", "ssl"]


def test_functions_can_be_called_before_pools_of_threads_stop() -> None:
    """As an engine that a program has opened without `with` needs to close itself."""
    code = """if True:
        import asyncio, concurrent.futures.thread, threading
        threading._register_atexit(lambda: asyncio.run(asyncio.to_thread(print, "closed")))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("closed\n", "")
