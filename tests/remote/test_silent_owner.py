"""A stopped process that owns the home: commands say which process it is, and do not hang."""

import asyncio
import os
import signal
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fake_endpoint import FakeEndpoint, says
from tests.remote.test_attached_commands import make_shell, slow, until_noted
from tests.surfaces.http.process import Serving
from tests.surfaces.shell import Shell, finish, until_token
from treadle.remote import owner_watch
from treadle.remote.connection import Address, Connection, OwnerName, OwnerSilent
from treadle.remote.owner_watch import NOTICE_SECONDS


@contextmanager
def stopped(serving: Serving) -> Generator[int]:
    """Stop the server with SIGSTOP during the block. Yield its process id."""
    os.kill(serving.pid, signal.SIGSTOP)
    try:
        yield serving.pid
    finally:
        os.kill(serving.pid, signal.SIGCONT)


async def test_commands_name_a_stopped_owner_after_three_seconds_and_continue_with_it(tmp_path: Path) -> None:
    async with FakeEndpoint(policy=lambda _: says("Done.")) as endpoint:
        shell = make_shell(tmp_path, endpoint)
        serving = Serving(shell)
        await asyncio.to_thread(serving.start)
        commands = (("tokens", "create", "me"), ("serve", "--port", "0"), ("run", "Go."))
        with stopped(serving) as pid:
            started = [shell.start(*words) for words in commands]
            notes = await asyncio.gather(*(until_noted(each, "does not answer") for each in started))
            for note in notes:
                assert f"owned by process {pid} (`treadle serve`" in note
                assert f"(for {NOTICE_SECONDS:.0f} s). It is stopped (SIGSTOP)." in note
                assert f"`kill -CONT {pid}`" in note
        ended = await asyncio.gather(*map(finish, started))
        assert ended[1].code == 1, "two servers cannot own one home"
        for done in (
            ended[0],
            ended[2],
        ):  # on a busy machine the first one has given up when the last one starts
            assert done.code == 0 or "which does not answer" in done.complaint
        await asyncio.to_thread(serving.stop)


async def test_a_command_that_follows_a_run_says_that_the_owner_has_stopped(tmp_path: Path) -> None:
    async with FakeEndpoint(slow("Once", " upon")) as endpoint:
        shell = make_shell(tmp_path, endpoint)
        serving = Serving(shell)
        await asyncio.to_thread(serving.start)
        following = shell.start("run", "--json", "Tell.")
        await until_token(following)
        with stopped(serving) as pid:
            assert f"process {pid} " in await until_noted(following, "does not answer")
        await until_noted(following, f"Process {pid} answers again.")
        endpoint.go_on.set()
        assert (await finish(following)).json[-1]["type"] == "run_end"
        await asyncio.to_thread(serving.stop)


async def test_the_doctor_names_a_stopped_owner(tmp_path: Path) -> None:
    shell = Shell(tmp_path / "home").configure()
    serving = Serving(shell)
    await asyncio.to_thread(serving.start)
    with stopped(serving) as pid:
        assert f"owned by process {pid} " in " ".join((await shell("doctor")).err.split())
    await asyncio.to_thread(serving.stop)


async def test_a_silent_owner_is_given_up_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_watch, "NOTICE_SECONDS", 0.02)

    path, told = str(tmp_path / "s"), list[str]()
    address = Address(path, OwnerName(os.getpid(), "process 7 (`treadle run`)"))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()  # the kernel accepts connections; no process answers
        async with Connection(address, told.append, limit_seconds=0.1) as connection:
            with pytest.raises(OwnerSilent, match=r"process 7 \(`treadle run`\), which does not answer"):
                await connection.is_alive()
    assert len(told) == 1, "the user is told once"


async def test_a_slow_answer_of_an_owner_that_answers_probes_is_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_watch, "NOTICE_SECONDS", 0.2)
    answers = iter((0.6, *[0.0] * 100))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if await reader.readline():
                await asyncio.sleep(next(answers))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                await writer.drain()
        finally:
            writer.close()

    path, told = str(tmp_path / "s"), list[str]()
    server = await asyncio.start_unix_server(serve, path)
    address = Address(path, OwnerName(os.getpid(), "process 7"))
    async with server, Connection(address, told.append, limit_seconds=0.3) as connection:
        assert await connection.is_alive()
    assert told == []
