"""Commands that attach to another process because it owns the home."""

import asyncio
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.fake_endpoint import DONE, PAUSE, Answer, FakeEndpoint, Request, calls, delta, fragment, says
from tests.patience import until
from tests.surfaces.http.process import Serving
from tests.surfaces.http.served_home import serve_home, wants_a_file
from tests.surfaces.shell import Process, Shell, finish, until_token
from treadle.api.engine import create_engine
from treadle.config.home import Home
from treadle.domain.ids import RunId
from treadle.domain.messages import user
from treadle.operations.operation import LocalCaller
from treadle.operations.requested_run import RequestedRun
from treadle.operations.run_control import STEER, SteerRun
from treadle.operations.run_start import START_LOCAL, StartLocalRun
from treadle.remote.caller import RemoteCaller
from treadle.remote.connection import Address, Connection
from treadle.surfaces.http import server
from treadle.surfaces.http.unix_socket import accept_attachments, socket_path

LIVE = ("token", "thinking", "tool_call_delta", "tool_call_progress", "attempt_reset")


def slow(*words: str) -> Answer:
    """An answer that stops after its first word until it is told to go on."""
    first, *rest = words
    return Answer(
        [delta(content=first), PAUSE, *(delta(content=word) for word in rest), delta(finish="stop"), DONE]
    )


async def until_noted(process: Process, words: str) -> str:
    """Read the standard error of a command up to a line with these words."""
    assert process.stderr is not None
    while line := await asyncio.to_thread(process.stderr.readline):
        if words in line.decode():
            return line.decode()
    raise AssertionError(f"the command ended without {words!r}")


def make_shell(tmp_path: Path, endpoint: FakeEndpoint, home: str = "home") -> Shell:
    return Shell(tmp_path / home, endpoint.url).configure()


async def test_every_command_works_through_the_server(tmp_path: Path) -> None:
    async with FakeEndpoint(policy=lambda _: says("Done.")) as endpoint:
        shell = make_shell(tmp_path, endpoint)
        serving = Serving(shell)
        await asyncio.to_thread(serving.start)
        ran = await shell("run", "Go.")
        assert (ran.code, ran.out) == (0, "Done.\n")
        events = (await shell("run", "--json", "Again.")).json
        assert [event["type"] for event in events][-1] == "run_end"
        run_id, session = events[0]["run_id"], events[0]["session_id"]
        assert run_id[:16] in (await shell("runs", "list")).out
        assert (await shell("runs", "cancel", run_id)).code == 2  # it has ended
        assert (await shell("runs", "fork", run_id, "--message", "Otherwise.")).out == "Done.\n"
        assert endpoint.requests[-1].json["messages"][-1]["content"] == "Otherwise."
        assert (await shell("runs", "replay", run_id)).code == 0
        added = (await shell("memory", "add", "The sky is blue.", "--json")).json[0]
        assert (await shell("memory", "pin", added["memory_id"])).code == 0
        pinned = [line["memory_id"] for line in (await shell("memory", "list", "--json")).json if "pinned" in line]
        assert pinned == [added["memory_id"]]
        exported = (await shell("memory", "export")).out.encode()
        assert (await shell("memory", "forget", added["memory_id"])).code == 0
        assert (await shell("memory", "import", "-", stdin=exported)).code == 0
        assert (await shell("agents", "state", "default", "paused")).code == 0
        assert "paused" in (await shell("run", "No.")).complaint
        assert (await shell("agents", "state", "default", "running")).code == 0
        made_token = (await shell("tokens", "create", "me", "--json")).json[0]
        assert made_token["token"].startswith("trd_")
        assert (await shell("tokens", "revoke", "me")).code == 0
        deleted = (await shell("sessions", "delete", session, "--yes", "--json")).json[0]
        assert deleted["tombstones"][0]["session_id"] == session
        assert "no session" in (await shell("sessions", "delete", "ses_x", "--yes")).complaint
        assert (await shell("prune", "--older-than", "1d", "--yes")).code == 0
        assert (
            "--base-url works only in a process that owns the home"
            in (await shell("run", "--base-url", endpoint.url, "-m", "m", "x")).complaint
        )
        await asyncio.to_thread(serving.stop)


async def test_an_approval_is_given_through_the_owner(tmp_path: Path) -> None:
    def policy(request: Request) -> Answer:
        if any(message["role"] == "tool" for message in request.json["messages"]):
            return says("Written.")
        return calls(fragment(0, "call_1", "write_file", '{"path": "x.txt", "content": "hello"}'))

    async with FakeEndpoint(policy=policy) as endpoint:
        shell = make_shell(tmp_path, endpoint).configure_careful()
        shell.cwd = tmp_path
        serving = Serving(shell)
        await asyncio.to_thread(serving.start)
        done = await shell("run", "--yes", "Write it.")
        assert (done.code, done.out) == (0, "Written.\n")
        assert (tmp_path / "x.txt").read_text() == "hello"
        await asyncio.to_thread(serving.stop)


async def test_an_owner_stays_until_attached_runs_end(tmp_path: Path) -> None:
    async with FakeEndpoint(slow("own", " words"), slow("other", " words")) as endpoint:
        shell = make_shell(tmp_path, endpoint)
        owner = shell.start("run", "--json", "First.")
        await until_token(owner)
        other = shell.start("run", "--json", "Second.")
        assert (await until_token(other))["data"]["text"] == "other"
        endpoint.go_on.set()
        done = await asyncio.gather(finish(owner), finish(other))
        assert [each.code for each in done] == [0, 0]
        assert [each.json[-1]["data"]["text"] for each in done] == ["own words", "other words"]


async def test_a_command_that_owns_the_home_gives_it_to_a_server_and_follows_its_run(tmp_path: Path) -> None:
    """The server says that it waits. The run goes on where it stopped: the model is asked nothing twice."""

    answers = (calls(fragment(0, "call_1", "glob", '{"pattern": "*.x"}')), says("From the server."))
    first = Answer([PAUSE, *answers[0].pieces])
    async with FakeEndpoint(first, answers[1]) as endpoint:
        shell = make_shell(tmp_path, endpoint).configure_careful()
        owner = shell.start("run", "--json", "First.")
        await endpoint.asked.wait()
        serving = shell.start("serve", "--json", "--port", "0")
        assert await until_noted(serving, "Waiting for process")
        endpoint.go_on.set()
        done = await finish(owner)
        assert "Handing the home over" in done.err
        assert (done.code, done.json[-1]["data"]["text"]) == (0, "From the server.")
        sequences = [event["sequence"] for event in done.json if event["type"] not in LIVE]
        assert sequences == list(range(1, len(sequences) + 1))
        assert len(endpoint.requests) == 2
        assert not any(event["type"] == "run_recovered" for event in done.json)
        serving.terminate()
        await finish(serving)


async def test_a_server_does_not_give_its_home_to_another_server(tmp_path: Path) -> None:
    async with FakeEndpoint() as endpoint:
        shell = make_shell(tmp_path, endpoint)
        serving = Serving(shell)
        await asyncio.to_thread(serving.start)
        second = await shell("serve", "--port", "0")
        assert second.code == 1
        assert "is owned by process" in second.complaint
        await asyncio.to_thread(serving.stop)


async def test_a_command_whose_owner_dies_reports_it_and_how_to_continue(tmp_path: Path) -> None:
    async with FakeEndpoint(slow("half", " never"), says("Whole.")) as endpoint:
        shell = make_shell(tmp_path, endpoint)
        serving = Serving(shell)
        await asyncio.to_thread(serving.start)
        attached = shell.start("run", "--json", "Go.")
        run_id = (await until_token(attached))["run_id"]
        serving.kill()
        done = await finish(attached)
        assert done.code == 1
        assert f"the process that executed {run_id} has stopped. The run is recorded, and continues" in done.err
        assert f"treadle runs events {run_id} --follow" in done.err
        assert f"treadle runs resume {run_id}" in done.err
        assert (tmp_path / "home" / "treadle.db.sock").exists()  # it had no time to take it away
        again = await shell("runs", "resume", run_id)
        assert (again.code, again.out) == (0, "Whole.\n")


async def test_commands_that_start_at_the_same_time_all_work(tmp_path: Path) -> None:
    """One of them owns the home, and the others come to it, or after it."""

    async with FakeEndpoint(policy=lambda _: says("Done.")) as endpoint:
        shell = make_shell(tmp_path, endpoint)
        for _ in range(3):
            begun = [shell.start("run", f"Message {number}.") for number in range(4)]
            done = await asyncio.gather(*map(finish, begun))
            assert [(each.code, each.out) for each in done] == [(0, "Done.\n")] * 4, done


async def test_a_process_does_not_end_between_two_requests_of_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEAD_TIMEOUT_SECONDS", 0.05)

    home = Home(tmp_path / "home").require_folder()
    async with create_engine(home=home) as engine, accept_attachments(engine, home) as attachments:
        path = socket_path(home)
        assert not attachments.are_open
        async with Connection(Address(str(path))) as connection:
            assert await connection.is_alive()
            await asyncio.sleep(0.2)  # longer than a connection to a port may stay without a request
            assert attachments.are_open
            assert await connection.is_alive()
        await until(lambda: not attachments.are_open)
        attachments.refuse_more()
        async with Connection(Address(str(path))) as late:
            assert not await late.is_alive(), "it is about to end"


async def test_a_key_is_the_same_in_the_owner_and_over_its_socket(tmp_path: Path) -> None:
    async with (
        serve_home(tmp_path, policy=lambda _: wants_a_file()) as home,
        accept_attachments(home.engine, home.home, home.app),
        Connection(Address(str(socket_path(home.home)))) as connection,
    ):
        local, remote = LocalCaller(home.engine.context), RemoteCaller(connection)
        submission = StartLocalRun(RequestedRun(home.home.agent("one"), user("Go.")))
        ticket = await local.call(START_LOCAL, submission, key="k")
        assert await remote.call(START_LOCAL, submission, key="k") == ticket
        assert await local.call(START_LOCAL, submission, key="k") == ticket
        assert (await local.call(START_LOCAL, submission, key="other")).run_id != ticket.run_id
        run_id = RunId(await home.begin("asking"))
        await home.until(run_id, "waiting")
        steer = SteerRun(run_id, "More.")
        sent = [await caller.call(STEER, steer, key="k") for caller in (remote, local, remote)]
        assert len({each.sequence for each in sent}) == 1


async def test_a_home_with_a_long_name_can_be_attached_to(tmp_path: Path) -> None:
    async def perform() -> None:
        with TemporaryDirectory(dir="/tmp") as runtime:
            await attach(runtime)

    async def attach(runtime: str) -> None:
        async with FakeEndpoint(policy=lambda _: says("Done.")) as endpoint:
            shell = make_shell(tmp_path, endpoint, "a-very-long-name" * 8)
            shell.environment["XDG_RUNTIME_DIR"] = runtime
            serving = Serving(shell)
            await asyncio.to_thread(serving.start)
            [place] = await asyncio.to_thread(lambda: list(Path(runtime).rglob("*.sock")))
            assert place.parent.stat().st_mode & 0o777 == 0o700
            assert (await shell("run", "Go.")).out == "Done.\n"
            await asyncio.to_thread(serving.stop)
            assert not place.exists()

    await perform()


async def test_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where the rights of the file would allow it: the kernel says who asks. Here it is the owner of the
    socket who is taken to be another."""

    def not_this_user(_: object) -> int:
        return os.getuid() + 1

    async def answer(place: Path) -> bytes:
        reader, writer = await asyncio.open_unix_connection(place)
        try:
            writer.write(b"GET /v1/tokens HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()

    async def perform() -> None:
        async with serve_home(tmp_path) as home, accept_attachments(home.engine, home.home, home.app):
            place = socket_path(home.home)
            assert place is not None
            assert place.stat().st_mode & 0o777 == 0o600
            assert (await answer(place)).startswith(b"HTTP/1.1 200")
            monkeypatch.setattr(server, "read_peer_uid", not_this_user)
            assert await answer(place) == b""

    await perform()
