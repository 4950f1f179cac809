"""The Unix socket of the engine: processes that a tool has started are refused, however they hide."""

import asyncio
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from treadle.api.engine import create_engine
from treadle.config.home import Home
from treadle.domain.permissions import SandboxPolicy
from treadle.ports.sandbox import Command, CommandError
from treadle.sandbox.commands import ShellCommands
from treadle.surfaces.http import peers
from treadle.surfaces.http.peers import find_refusal_reason
from treadle.surfaces.http.unix_socket import accept_attachments, socket_path

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says who is at the other end")

CLIENT = """
import os, select, signal, socket, sys
def parent(pid):
    return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
def end_of(pid):
    return os.pidfd_open(pid)
way, place, answers = sys.argv[1:4]
supervisor = os.getppid()
while b"treadle.sandbox.broker" not in open(f"/proc/{supervisor}/cmdline", "rb").read() and supervisor > 1:
    supervisor = parent(supervisor)
if way in ("double fork", "orphan"):
    alive, living = os.pipe()
    first = os.fork()
    if first:
        os.close(living)
        os.read(alive, 1)  # until the last one has ended
        sys.exit()
    os.setsid()
    ready, said = os.pipe()
    if os.fork():
        os.read(ready, 1)
        os._exit(0)
    above = end_of(os.getppid())
    os.write(said, b".")
    select.select([above], [], [])  # now it has another parent
if way == "orphan":  # what kept it is killed: the keeper first, so that it cannot clean up
    for pid in (parent(supervisor), supervisor):
        ended = end_of(pid)
        os.kill(pid, signal.SIGKILL)
        select.select([ended], [], [])
if way == "handed on":  # the process that connects ends at once, and another one uses the connection
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(place)
        socket.send_fds(theirs, [b"."], [connection.fileno()])
        os._exit(0)
    _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    os.wait()
    connection = socket.socket(fileno=descriptors[0])
else:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(place)
said = b""
try:
    connection.sendall(b"GET /v1/agents HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n")
    while piece := connection.recv(4096):
        said += piece
except OSError:
    pass
answer = socket.socket(socket.AF_UNIX)
answer.connect(answers)
answer.sendall(said.partition(b"\\r\\n")[0] or b"nothing")
answer.close()
"""


@asynccontextmanager
async def open_socket(folder: Path) -> AsyncGenerator[Path]:
    """An engine in this very process, to which others may attach: where."""
    home = Home(folder / "home")
    engine = create_engine(home=home)
    async with engine, accept_attachments(engine, home):
        place = socket_path(home)
        assert place is not None
        yield place


class ClientReports:
    """What clients were told, as they report it."""

    def __init__(self) -> None:
        self.first: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = (await reader.read()).decode()
        writer.close()
        self.first.set_result(said)


@pytest.mark.parametrize("way", ["plain", "double fork", "orphan", "handed on"])
async def test_a_process_that_a_tool_has_started_is_refused(tmp_path: Path, way: str) -> None:
    said: list[str] = []

    (tmp_path / "work").mkdir()
    (tmp_path / "client.py").write_text(CLIENT)
    commands, answers = ShellCommands(), ClientReports()
    async with open_socket(tmp_path) as place, await asyncio.start_unix_server(answers, tmp_path / "a"):
        line = f"{sys.executable} {tmp_path}/client.py '{way}' {place} {tmp_path}/a"
        try:
            await commands.run(Command(line, tmp_path / "work", SandboxPolicy("off")), print)
        except CommandError:
            assert way == "orphan"
        said.append(await answers.first)
    commands.close()
    assert said == ["HTTP/1.1 403 Forbidden"]


async def test_other_processes_of_the_user_are_accepted(tmp_path: Path) -> None:
    """Also one that this very process has started, and one in a session of its own."""

    said: list[str] = []

    async def scenario(way: str) -> None:
        (tmp_path / "client.py").write_text(CLIENT)
        answers = ClientReports()
        async with open_socket(tmp_path) as place, await asyncio.start_unix_server(answers, tmp_path / "a"):
            client = await asyncio.create_subprocess_exec(
                sys.executable, str(tmp_path / "client.py"), way, str(place), str(tmp_path / "a")
            )
            await client.wait()
            said.append(await answers.first)

    for way in ("plain", "double fork"):
        await scenario(way)
    assert said == ["HTTP/1.1 200 OK"] * 2


def test_a_peer_that_cannot_be_seen_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.listen()
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(tmp_path / "s"))
    connection, _ = listener.accept()
    assert find_refusal_reason(connection) is None  # this process itself

    def someone_gone(connection: socket.socket) -> tuple[int, int]:
        return 2**22 - 1, 0

    monkeypatch.setattr(peers, "read_peer_credentials", someone_gone)
    assert find_refusal_reason(connection) is not None
    for each in (listener, client, connection):
        each.close()
