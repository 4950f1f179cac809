"""The server processes of local models: when they start, are discarded and end, also while one is loading.

A shell script replaces the server, so that no weights are needed."""

import asyncio
import sys
from asyncio.subprocess import Process
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.fake_endpoint import FakeEndpoint, Silence, says
from tests.models.test_local import hello
from tests.patience import HANG_SECONDS
from treadle.domain.agents import ModelSettings
from treadle.models.local import server_processes
from treadle.models.local.models import MAX_REPLY_TOKENS, LocalModels
from treadle.ports.model import Completed, Failed

LOADS = "exec sleep 30"
ANNOUNCES = """echo '{"url": "http://127.0.0.1:9"}'; exec sleep 30"""


class Children:
    """The processes that are started. Their starters continue when `go_on` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str = LOADS) -> None:
        self.started: list[Process] = []
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()
        self._spawn = asyncio.create_subprocess_exec
        program = tmp_path / "server"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program))
        monkeypatch.setattr(asyncio, "create_subprocess_exec", self._start)

    async def _start(self, *command: str, **options: Any) -> Process:
        self.started.append(await self._spawn(*command, **options))
        self.begun.set()
        await self.go_on.wait()
        return self.started[-1]

    @property
    def alive(self) -> list[int]:
        return [process.pid for process in self.started if process.returncode is None]


def ask(models: LocalModels, path: Path) -> "asyncio.Task[Completed | Failed]":
    return asyncio.create_task(models.reply(hello(str(path)), lambda _: None))


def assert_closed_error(end: Completed | Failed) -> None:
    assert isinstance(end, Failed)
    assert (end.kind, end.retryable) == ("unreachable", False)
    assert "were closed before it had loaded" in end.message


async def test_closing_ends_a_server_that_is_still_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models, children = LocalModels(tmp_path), Children(monkeypatch, tmp_path)
    asked = [ask(models, tmp_path / "m.gguf") for _ in range(2)]  # the second waits for the first
    async with asyncio.timeout(HANG_SECONDS):
        await children.begun.wait()
        await models.close()
        assert children.alive == []
        for end in await asyncio.gather(*asked):
            assert_closed_error(end)
    assert len(children.started) == 1


async def test_closing_ends_a_server_whose_process_has_just_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models, children = LocalModels(tmp_path), Children(monkeypatch, tmp_path, ANNOUNCES)
    children.go_on.clear()
    asked = ask(models, tmp_path / "m.gguf")
    async with asyncio.timeout(HANG_SECONDS):
        await children.begun.wait()
        closing = asyncio.create_task(models.close())
        await asyncio.sleep(0)  # it has begun to close, and waits for the process that is starting
        assert not closing.done()
        children.go_on.set()
        await closing
        assert children.alive == []
        assert_closed_error(await asked)


async def test_cancelling_while_a_model_loads_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models, children = LocalModels(tmp_path), Children(monkeypatch, tmp_path)
    asked = ask(models, tmp_path / "m.gguf")
    async with asyncio.timeout(HANG_SECONDS):
        await children.begun.wait()
        await asyncio.sleep(0)
        asked.cancel()
        await asyncio.wait([asked])
    assert asked.cancelled()
    assert children.alive == []


def serving(server: FakeEndpoint) -> str:
    """A child that says it listens where this endpoint does."""
    return f"""echo '{{"url": "{server.url.removesuffix("/v1")}"}}'; exec cat"""


async def test_a_closed_model_can_be_called_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine can be opened again, also in another event loop."""
    models = LocalModels(tmp_path)

    async def run() -> None:
        async with FakeEndpoint(says("hi")) as server, asyncio.timeout(HANG_SECONDS):
            children = Children(monkeypatch, tmp_path, serving(server))
            assert isinstance(await ask(models, tmp_path / "m.gguf"), Completed)
            await models.close()
            assert (len(children.started), children.alive) == (1, [])

    for _ in range(2):
        with monkeypatch.context() as monkeypatch:
            await run()


async def test_a_health_check_that_times_out_closes_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_processes, "_HEALTH_TIMEOUT_SECONDS", 0.05)

    models = LocalModels(tmp_path)
    async with FakeEndpoint(says("hi"), Silence(), says("again")) as server, asyncio.timeout(HANG_SECONDS):
        children = Children(monkeypatch, tmp_path, serving(server))
        assert isinstance(await ask(models, tmp_path / "m.gguf"), Completed)
        await server.left.wait()
        server.left.clear()
        server.asked.clear()
        asked = ask(models, tmp_path / "m.gguf")
        await server.asked.wait()
        await server.left.wait()
        assert isinstance(await asked, Completed)
        assert [request.path for request in server.requests[1:2]] == ["/health"]
        assert len(children.started) == 2  # it is replaced
        await models.close()
        assert children.alive == []


async def test_an_unreachable_server_is_discarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models, children = LocalModels(tmp_path), Children(monkeypatch, tmp_path, ANNOUNCES)
    monkeypatch.setattr(server_processes, "_STOP_TIMEOUT_SECONDS", 0.05)  # it ends only when it is killed
    async with asyncio.timeout(HANG_SECONDS):
        end = await ask(models, tmp_path / "m.gguf")
    assert isinstance(end, Failed)
    assert (end.kind, end.retryable) == ("unreachable", True)
    assert (models.pids, children.alive) == ([], [])


async def test_a_reply_without_a_limit_gets_the_default_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = LocalModels(tmp_path)
    async with FakeEndpoint(says("hi")) as server, asyncio.timeout(HANG_SECONDS):
        Children(monkeypatch, tmp_path, serving(server))
        request = msgspec.structs.replace(hello(str(tmp_path / "m.gguf")), settings=ModelSettings())
        await models.reply(request, lambda _: None)
        await models.close()
        assert server.requests[0].json["max_tokens"] == MAX_REPLY_TOKENS
