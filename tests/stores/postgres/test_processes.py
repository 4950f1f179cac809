"""The real commands, each in its own process, on one database; and a server whose database goes away."""

import asyncio
import json
import os
from collections.abc import Awaitable
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import pytest

from tests.fake_endpoint import DONE, PAUSE, Answer, FakeEndpoint, delta, says
from tests.patience import HANG_SECONDS
from tests.stores.postgres.servers import NAMED
from tests.stores.postgres.wire import wire
from tests.surfaces.http.served_home import serve_home
from tests.surfaces.http.sse import Sent, Wire
from tests.surfaces.shell import Process, Shell
from treadle.stores.postgres import database, notifications, writer


async def in_time(scenario: Awaitable[None]) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        await scenario


async def first_line(process: Process) -> dict[str, str]:
    assert process.stdout is not None
    said = await asyncio.to_thread(process.stdout.readline)
    assert said, (await asyncio.to_thread(process.communicate))[1].decode()
    return json.loads(said)


async def stop_process(process: Process) -> str:
    """As by an administrator; what it has said."""
    process.terminate()
    _, said = await asyncio.to_thread(process.communicate, None, HANG_SECONDS)
    assert process.returncode == 0, said
    assert b"Traceback" not in said, said.decode()
    return said.decode()


COUNTED = 'treadle_runs_total{agent="default",outcome="completed"} 1'


async def text_of(http: aiohttp.ClientSession, path: str, token: str) -> str:
    async with http.get(path, headers={"Authorization": f"Bearer {token}"}) as response:
        return await response.text()


async def tells_how_it_is(worker: str, token: str) -> None:
    """Check the health routes of a worker with a port: public health, metrics for tokens, and nothing else."""
    async with aiohttp.ClientSession(worker) as http:
        for path, said, status in (
            ("/healthz", "", 200),
            ("/readyz", "", 200),
            ("/metrics", "", 401),
            ("/metrics", token, 200),
            ("/v1/runs", token, 404),
            ("/v1/agents", token, 404),
        ):
            async with http.get(path, headers={"Authorization": f"Bearer {said}"} if said else {}) as response:
                assert response.status == status, path
            if status == 200 and said:
                # The database shows a commit to others before it answers the worker, which counts then.
                while COUNTED not in await text_of(http, path, said):  # noqa: ASYNC110 -- it is another process
                    await asyncio.sleep(0.05)


async def test_a_server_accepts_a_run_and_shows_the_work_of_a_worker(url: str, tmp_path: Path) -> None:
    answer = Answer([delta(content="Hello, "), PAUSE, delta(content="world."), delta(finish="stop"), DONE])

    async def scenario() -> None:
        async with FakeEndpoint(answer, says("Hello again.")) as endpoint:
            shell = Shell(tmp_path / "home", endpoint.url).configure()
            shell.environment |= {"TREADLE_DATABASE_URL": url, "OPENAI_API_KEY": "x"}
            serving = shell.start("serve", "--no-workers", "--json", "--port", "0")
            served = await first_line(serving)
            worker = shell.start("worker", "--concurrency", "3", "--port", "0", "--json")
            told = await first_line(worker)
            assert told["concurrency"] == 3
            port, token = int(served["url"].rpartition(":")[2]), served["token"]
            async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as http:
                path = f"{served['url']}/v1/agents/default/runs"
                async with http.post(path, json={"message": "Go."}) as response:
                    run_id = (await response.json())["run_id"]
            stream = await Wire.open(port, f"/v1/runs/{run_id}/events", token, "0")
            sent = list[Sent]()
            async for each in stream.events():
                sent.append(each)
                if each.type == "token" and not endpoint.go_on.is_set():
                    assert each.data["data"]["text"] == "Hello, "
                    endpoint.go_on.set()
            await stream.close()
            durable = [each.data["sequence"] for each in sent if each.id is not None]
            assert durable == list(range(1, len(durable) + 1))
            assert sent[-1].data["data"]["text"] == "Hello, world."
            await tells_how_it_is(told["url"], token)  # before the next run, which either process may take
            done = await shell("run", "And?")
            assert (done.code, done.out) == (0, "Hello again.\n")
            assert "other workers continue them" in await stop_process(worker)
            await stop_process(serving)

    await in_time(scenario())


@pytest.mark.skipif(NAMED in os.environ, reason="this test stands between the store and its server")
async def test_a_process_that_starts_while_the_database_is_down_waits_for_it(url: str, tmp_path: Path) -> None:
    async def scenario(folder: Path) -> None:
        async with wire(url, folder) as (address, between):
            between.down = True
            shell = Shell(tmp_path / "home").configure()
            shell.environment |= {"TREADLE_DATABASE_URL": address}
            worker, serving = shell.start("worker", "--json"), shell.start("serve", "--json", "--port", "0")
            for process in (worker, serving):
                assert process.stderr is not None
                assert b"Waiting for it" in await asyncio.to_thread(process.stderr.readline)
            await stop_process(serving)
            between.down = False
            assert (await first_line(worker))["database"]
            await stop_process(worker)

    with TemporaryDirectory(prefix="wire") as short:
        await in_time(scenario(Path(short)))


@pytest.mark.skipif(NAMED in os.environ, reason="this test stands between the store and its server")
async def test_the_server_reports_an_unavailable_database_and_then_continues(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (database, writer, notifications):
        monkeypatch.setattr(module, "MAX_BACKOFF_SECONDS", 0.1)

    async def scenario(folder: Path) -> None:
        async with wire(url, folder) as (address, between), serve_home(tmp_path, database=address) as server:
            assert (await server.ask("GET", "/readyz")).status == 200
            between.down = True
            between.cut()
            with monkeypatch.context() as impatient:  # only while it is away: a busy machine needs more time
                for module in (database, writer):
                    impatient.setattr(module, "MAX_WAIT_SECONDS", 0.3)
                for method, path, body in (
                    ("GET", "/readyz", None),
                    ("GET", "/v1/runs", None),
                    ("POST", "/v1/agents/one/runs", {"message": "Go."}),
                ):
                    reply = await server.ask(method, path, body)
                    assert (reply.status, reply.headers["retry-after"]) == (503, "3"), path
                assert (await server.ask("GET", "/healthz")).status == 200
            between.down = False
            while (await server.ask("GET", "/readyz")).status != 200:
                pass
            run_id = await server.begin()
            assert (await server.engine.wait(run_id)).text == "Done."

    with TemporaryDirectory(prefix="wire") as short:  # its name must do for a socket
        await in_time(scenario(Path(short)))
