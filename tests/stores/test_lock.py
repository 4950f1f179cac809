"""One process owns a SQLite database. Other processes get an error that names it."""

import os
import signal
import socket
from pathlib import Path

import pytest

from tests.stores.processes import OWN_AN_ENGINE, discard, holder
from treadle.api.engine import create_engine
from treadle.config.home import Home
from treadle.domain.errors import StoreError, StoreOwned
from treadle.stores.sqlite.lock import DatabaseLock, read_owner


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "treadle.db")


async def open_engine(path: str) -> None:
    async with create_engine(f"sqlite:///{path}", home=Home(Path(path).parent)):
        pass


async def test_a_second_engine_gets_the_name_of_the_owner_of_the_database(path: str) -> None:
    with holder(OWN_AN_ENGINE, path) as owner:
        with pytest.raises(StoreOwned) as raised:
            await open_engine(path)
        text = str(raised.value)
        assert f"process {owner.pid} " in text
        assert path in text
        assert "\n" not in text
        discard(owner)
        owner.wait(10)
    await open_engine(path)


async def test_a_second_engine_in_the_same_process_is_refused_too(path: str) -> None:
    home = Home(Path(path).parent)
    async with create_engine(f"sqlite:///{path}", home=home) as first:
        with pytest.raises(StoreOwned, match="is open in this process already"):
            async with create_engine(f"sqlite:///{path}", home=home):
                pass
        assert await first.service.runs() == [], "the first goes on"
    async with create_engine(f"sqlite:///{path}", home=home):
        pass


async def test_a_killed_owner_leaves_no_lock(path: str) -> None:
    with holder(OWN_AN_ENGINE, path) as owner:
        owner.send_signal(signal.SIGKILL)
        owner.wait(10)
        await open_engine(path)


async def test_an_engine_that_cannot_open_leaves_no_lock(path: str) -> None:
    Path(path).write_bytes(b"this is not a database" * 500)
    with pytest.raises(StoreError, match="damaged"):
        await open_engine(path)
    Path(path).unlink()
    await open_engine(path)


@pytest.mark.parametrize("content", [b"", b"null", b"{", b"\xff\xfe", b'{"pid":"x"}', b"[" * 4000])
def test_a_lock_file_without_readable_content_still_locks(path: str, content: bytes) -> None:
    lock = DatabaseLock(path)
    Path(f"{path}.lock").write_bytes(content)
    with pytest.raises(StoreOwned, match="another process"):
        DatabaseLock(path)
    lock.release()
    DatabaseLock(path).release()


async def test_a_lock_file_without_a_lock_owns_nothing(path: str) -> None:
    """What a process that died has left there, or a copy of it."""
    Path(f"{path}.lock").write_bytes(b'{"pid":1,"command":"init","since":0}')
    await open_engine(path)


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StoreError) as raised:
        DatabaseLock(str(tmp_path / "nowhere" / "treadle.db"))
    assert "does not exist. Create it" in str(raised.value)


def test_a_socket_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands send messages to the owner of a home, and take its settings."""
    path, server = str(tmp_path / "treadle.db"), socket.socket(socket.AF_UNIX)
    lock = DatabaseLock(path)
    with server:
        server.bind(str(tmp_path / "socket"))
        lock.announce(str(tmp_path / "socket"))
        assert (found := read_owner(path)) is not None
        assert found.socket == str(tmp_path / "socket")
        other_user = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: other_user)
        assert (found := read_owner(path)) is not None
        assert (found.pid, found.socket) == (os.getpid(), None)
        with pytest.raises(StoreOwned) as caught:
            DatabaseLock(path)
        assert caught.value.socket is None
    lock.release()
