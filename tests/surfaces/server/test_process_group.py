"""Several processes of `treadle serve`: what needs no database."""

import asyncio
import re
import socket
from pathlib import Path

import pytest

from tests.surfaces.shell import Shell
from treadle.config.home_config import ServerSettings
from treadle.domain.errors import UsageError
from treadle.domain.ids import TokenId
from treadle.operations.refusal import Refusal
from treadle.surfaces.http.shared_board import TOKENS, SharedBoard, create_board_file, open_board
from treadle.surfaces.http.siblings import Siblings
from treadle.surfaces.http.sign_in_limit import FAILURE_SECONDS, MAX_FAILURES, SharedSignInLimit
from treadle.surfaces.server import process_group
from treadle.surfaces.server.listener import BALANCES_CONNECTIONS, open_shared_port
from treadle.surfaces.server.messages import ServerOptions, divide
from treadle.surfaces.server.process_group import ProcessGroup, StartFailed
from treadle.telemetry.exposition import Family, Histogram, merge_pages, render_page

A, B = TokenId("tok_a"), TokenId("tok_b")


def test_several_processes_need_postgresql(tmp_path: Path) -> None:
    async def run() -> None:
        shell = Shell(tmp_path / "home").configure()
        refused = await shell("serve", "--processes", "2")
        assert refused.code == 2
        assert refused.complaint.startswith("--processes 2 needs PostgreSQL: the database sqlite:///")
        shell.write("config.yaml", "server: {processes: 3}")
        refused = await shell("serve")
        assert refused.complaint.startswith("server.processes: 3 needs PostgreSQL: ")

    asyncio.run(run())


@pytest.mark.parametrize("processes", [0, 257])
def test_the_number_of_processes_in_the_configuration_has_limits(processes: int) -> None:
    with pytest.raises(ValueError, match=f"processes must be from 1 to 256, found {processes}"):
        ServerSettings(processes=processes)


def test_parts_of_a_limit_add_up_to_it() -> None:
    for total in range(10):
        parts = [divide(total, 4, number) for number in range(1, 5)]
        assert sum(part or 0 for part in parts) == total
        assert max(part or 0 for part in parts) - min(part or 0 for part in parts) <= 1
    assert divide(None, 4, 1) is None


# ── The port ──


def test_the_sockets_of_a_port_share_its_connections_and_exclude_other_servers() -> None:
    sockets = open_shared_port("127.0.0.1", 0, 3)
    port: int = sockets[0].getsockname()[1]
    with pytest.raises(UsageError, match=f"127.0.0.1 port {port} cannot be listened on"):
        open_shared_port("127.0.0.1", port, 2)
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(60)]
    accepted = [_accept_all(each) for each in sockets]
    assert sum(map(len, accepted)) == 60
    if BALANCES_CONNECTIONS:
        assert min(map(len, accepted)) > 0, "by chance once in 10^10 times"
    for each in (*sockets, *clients, *sum(accepted, list[socket.socket]())):
        each.close()


def _accept_all(listener: socket.socket) -> list[socket.socket]:
    accepted = list[socket.socket]()
    while True:
        try:
            accepted.append(listener.accept()[0])
        except BlockingIOError:
            return accepted


# ── What processes share ──


def open_boards(processes: int) -> list[SharedBoard]:
    descriptor = create_board_file(processes)
    return [open_board(descriptor, number) for number in range(processes)]


def test_streams_of_a_token_are_counted_in_all_processes() -> None:
    first, second = open_boards(2)
    first.add_streams(A, 1)
    second.add_streams(A, 2)
    second.add_streams(B, 1)
    assert (first.count_streams(A), second.count_streams(A), first.count_streams(B)) == (3, 3, 1)
    second.add_streams(A, -1)
    assert first.count_streams(A) == 2
    first.clear(1)
    assert (first.count_streams(A), first.count_streams(B)) == (1, 0), "the second process has ended"


def test_a_board_has_room_for_the_tokens_that_have_streams() -> None:
    [board] = open_boards(1)
    for number in range(3 * TOKENS):
        board.add_streams(TokenId(f"tok_{number}"), 1)
        board.add_streams(TokenId(f"tok_{number}"), -1)
    tokens = [TokenId(f"tok_new_{number}") for number in range(TOKENS)]
    for token in tokens:
        board.add_streams(token, 1)
    assert {board.count_streams(token) for token in tokens} == {1}
    board.add_streams(A, 1)
    assert board.count_streams(A) == 0, "it counts for no limit"


def test_a_change_of_access_is_seen_by_all_processes_even_after_its_process_has_ended() -> None:
    first, second = open_boards(2)
    second.add_change()
    first.clear(1)
    second.add_change()
    first.add_change()
    assert (first.count_changes(), second.count_changes()) == (3, 3)


def test_failed_sign_ins_are_counted_in_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (SharedSignInLimit(tmp_path / "failures") for _ in range(2))
    for number in range(MAX_FAILURES):
        first.check("10.0.0.1")
        (first, second)[number % 2].count_failure("10.0.0.1")
    for limit in (first, second):
        with pytest.raises(Refusal):
            limit.check("10.0.0.1")
        limit.check("10.0.0.2")
    monkeypatch.setattr("time.monotonic", lambda: 1e9 + FAILURE_SECONDS)
    first.check("10.0.0.1")


def test_one_process_at_a_time_holds_a_name(tmp_path: Path) -> None:
    async def run() -> None:
        holders = [Siblings(tmp_path, str(number)) for number in range(4)]
        inside = 0

        async def work(holder: Siblings, name: str) -> None:
            nonlocal inside
            for _ in range(20):
                async with holder.hold(name):
                    inside += 1
                    assert inside == 1
                    await asyncio.sleep(0)
                    inside -= 1

        await asyncio.gather(*(work(holder, "a") for holder in holders))
        async with holders[0].hold("a"), holders[1].hold("b"):
            pass

    asyncio.run(run())
    assert list(tmp_path.iterdir()) == []


def test_pages_of_metrics_are_merged_with_the_label_of_their_process() -> None:
    def make_page(amount: int) -> bytes:
        plain, labelled = Family("up", "Whether it is up."), Family("runs_total", "Runs.", ("agent",))
        plain.set(float(amount))
        labelled.add(('a "b} c',), float(amount))
        times = Histogram("seconds", "Seconds.", ("agent",), (1.0,))
        times.cell(("a",)).observe(0.5)
        return render_page((plain, labelled, times))

    merged = merge_pages({"1": make_page(1), "2": make_page(2)}).decode().splitlines()
    assert merged == [
        "# HELP up Whether it is up.",
        "# TYPE up counter",
        'up{process="1"} 1',
        'up{process="2"} 2',
        "# HELP runs_total Runs.",
        "# TYPE runs_total counter",
        'runs_total{process="1",agent="a \\"b} c"} 1',
        'runs_total{process="2",agent="a \\"b} c"} 2',
        "# HELP seconds Seconds.",
        "# TYPE seconds histogram",
        *(
            f"seconds_{suffix} {value}"
            for number in "12"
            for suffix, value in (
                (f'bucket{{process="{number}",agent="a",le="1"}}', 1),
                (f'bucket{{process="{number}",agent="a",le="+Inf"}}', 1),
                (f'sum{{process="{number}",agent="a"}}', 0.5),
                (f'count{{process="{number}",agent="a"}}', 1),
            )
        ),
    ]


# ── Processes that cannot start ──


def test_processes_that_end_before_they_are_ready_end_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async def run() -> None:
        group = ProcessGroup(ServerOptions("127.0.0.1", 0), 2, tmp_path, 1.0)
        try:
            with pytest.raises(StartFailed, match="Process 1 ended 3 times before it was ready"):
                await group.start()
        finally:
            await group.close()

    monkeypatch.setattr(process_group, "MODULE", "this")  # it has no main()
    monkeypatch.setattr(process_group, "FIRST_PAUSE_SECONDS", 0.01)
    asyncio.run(run())
    said = capfd.readouterr().err.splitlines()
    assert len([line for line in said if "AttributeError" in line and line.startswith("[1] ")]) == 3
    assert (
        len([line for line in said if re.search(r"Process 1 could not be started. It is replaced in", line)]) == 2
    )
