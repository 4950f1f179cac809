"""The key of a vault: where it is stored, and how it is rotated without losing a value."""

import base64
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.vault.test_store import CANARY, new_key, store
from treadle.domain.errors import UsageError
from treadle.ports.vault import VaultError
from treadle.vault.keys import KEY, NEXT_KEY
from treadle.vault.store import SecretGrant

each = pytest.mark.parametrize


# ── The key ──


SOME_KEY = b"\xfb\xff" * 16


@each(
    "text",
    [base64.b64encode(SOME_KEY).decode(), base64.urlsafe_b64encode(SOME_KEY).decode().rstrip("="), SOME_KEY.hex()],
)
def test_the_key_can_come_from_a_variable(tmp_path: Path, text: str) -> None:
    store(tmp_path, {KEY: f" {text}\n"}).put("TOKEN", CANARY)
    assert store(tmp_path, {KEY: SOME_KEY.hex().upper()}).read().values == {"TOKEN": CANARY}
    assert not (tmp_path / "vault.key").exists()


@each("text", ["short", "=" * 44, "é" * 32, "a" * 43 + "!", "ab" * 31])
def test_an_invalid_key_in_a_variable_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    with pytest.raises(VaultError, match=f"{KEY} is not a key: 32 bytes in base64 or hex") as refused:
        store(tmp_path, {KEY: text}).put("TOKEN", CANARY)
    assert text not in str(refused.value)


def test_a_wrong_key_gives_one_clear_error(tmp_path: Path) -> None:
    store(tmp_path).put("TOKEN", CANARY)
    wrong = store(tmp_path, {KEY: new_key()})
    for use in (wrong.read, wrong.rotate, lambda: wrong.put("OTHER", CANARY)):
        with pytest.raises(
            VaultError, match=f"the variable {KEY} holds another key. It was in the file .*vault.key"
        ):
            use()
    assert [secret.name for secret in wrong.inventory()] == ["TOKEN"]
    assert store(tmp_path).read().values == {"TOKEN": CANARY}


def test_a_lost_key_is_not_replaced(tmp_path: Path) -> None:
    store(tmp_path).put("TOKEN", CANARY)
    (tmp_path / "vault.key").unlink()
    with pytest.raises(VaultError, match="there is none in the file"):
        store(tmp_path).read()
    with pytest.raises(VaultError, match="there is none in the file"):
        store(tmp_path).put("TOKEN", CANARY)
    assert not (tmp_path / "vault.key").exists()


@each("mode", [0o640, 0o604, 0o660])
def test_a_key_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    store(tmp_path).put("TOKEN", CANARY)
    (tmp_path / "vault.key").chmod(mode)
    with pytest.raises(VaultError, match=f"is accessible to other users .mode {mode:o}.*chmod 600.*rotate"):
        store(tmp_path).read()
    (tmp_path / "vault.key").chmod(0o600)
    assert store(tmp_path).read().values == {"TOKEN": CANARY}


def test_a_key_file_that_is_a_link_is_refused(tmp_path: Path) -> None:
    store(tmp_path).put("TOKEN", CANARY)
    (tmp_path / "vault.key").rename(tmp_path / "elsewhere")
    (tmp_path / "vault.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(VaultError, match="cannot be read"):
        store(tmp_path).read()


def test_a_vault_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    store(tmp_path).put("TOKEN", CANARY)
    (tmp_path / "vault.db").chmod(0o644)
    store(tmp_path).read()
    assert stat.S_IMODE((tmp_path / "vault.db").stat().st_mode) == 0o600


# ── Rotation ──


def test_rotation_changes_the_key_and_nothing_else(tmp_path: Path) -> None:
    vault = store(tmp_path)
    for name in ("A", "B", "C"):
        vault.put(name, CANARY + name, [SecretGrant("x")])
    before, old = vault.read(), (tmp_path / "vault.key").read_text()
    assert vault.rotate() == 3
    assert store(tmp_path).read() == vault.read() == before
    assert (tmp_path / "vault.key").read_text() != old
    assert sorted(file.name for file in tmp_path.iterdir()) == ["vault.db", "vault.key"]
    with pytest.raises(VaultError, match="holds another key"):
        store(tmp_path, {KEY: old}).read()


def test_a_key_in_a_variable_is_rotated_with_a_second_variable(tmp_path: Path) -> None:
    old, new = new_key(), new_key()
    store(tmp_path, {KEY: old}).put("TOKEN", CANARY)
    with pytest.raises(UsageError, match=f"Set {NEXT_KEY} to a new key"):
        store(tmp_path, {KEY: old}).rotate()
    with pytest.raises(UsageError, match="The new key equals the old one"):
        store(tmp_path, {KEY: old, NEXT_KEY: old}).rotate()
    store(tmp_path, {KEY: old, NEXT_KEY: new}).rotate()
    assert store(tmp_path, {KEY: new}).read().values == {"TOKEN": CANARY}
    assert store(tmp_path, {KEY: old, NEXT_KEY: new}).read().values == {"TOKEN": CANARY}
    with pytest.raises(VaultError, match="holds another key"):
        store(tmp_path, {KEY: old}).read()


DIE_AT = """
import os, sys
from pathlib import Path
from treadle.vault import cipher, keys, store

count = last = 0

def dying(function):
    def wrapped(*args, **keywords):
        global count
        count += 1
        if count == last:
            os._exit(9)
        result = function(*args, **keywords)
        count += 1
        if count == last:
            os._exit(9)
        return result
    return wrapped

for owner, names in (
    (keys.KeyFile, ("prepare", "settle")),
    (cipher.Cipher, ("close", "check")),
    (keys, ("_write",)),
    (os, ("fsync", "close")),
    (Path, ("replace", "unlink")),
):
    for name in names:
        setattr(owner, name, dying(getattr(owner, name)))

class Dying:
    def __init__(self, connection):
        self.connection = connection

    def __getattr__(self, name):
        found = getattr(self.connection, name)
        return dying(found) if name == "execute" else found

for line in sys.stdin:
    if os.fork():
        print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
        continue
    count, last = 0, int(line)
    vault = store.VaultStore(Path(sys.argv[1]), {})
    vault._open()
    vault._connection = Dying(vault._connection)
    vault.rotate()
    os._exit(0)
"""
"""Forks a process for each line of its input, which dies at that point of a rotation, and prints its exit code."""


def test_a_rotation_that_dies_anywhere_loses_nothing(tmp_path: Path) -> None:
    """The process is killed before and after each statement, each write and each step, one after the other."""
    values = {name: CANARY + name for name in ("A", "B")}
    for name, value in values.items():
        store(tmp_path).put(name, value, [SecretGrant("x")])
    deaths, code = -1, 9
    command = [sys.executable, "-c", DIE_AT, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        while code == 9:
            deaths += 1
            server.stdin.write(f"{deaths + 1}\n")
            server.stdin.flush()
            code = int(server.stdout.readline())
            assert store(tmp_path).read().values == values, f"after death {deaths + 1}"
            store(tmp_path).put("A", values["A"])
    assert code == 0
    assert deaths > 30
    assert sorted(file.name for file in tmp_path.iterdir() if not file.name.startswith(".")) == [
        "vault.db",
        "vault.key",
    ]


def test_an_interrupted_rotation_is_completed_by_the_next_process(tmp_path: Path) -> None:
    vault = store(tmp_path)
    vault.put("TOKEN", CANARY)
    old = (tmp_path / "vault.key").read_bytes()
    vault.rotate()
    (tmp_path / "vault.key").rename(tmp_path / "vault.key.next")
    (tmp_path / "vault.key").write_bytes(old)
    (tmp_path / "vault.key").chmod(0o600)
    assert store(tmp_path).read().values == {"TOKEN": CANARY}
    assert not (tmp_path / "vault.key.next").exists()
    assert (tmp_path / "vault.key").read_bytes() != old


# ── The keyring ──


class FakeKeyring:
    """As much of a keyring as is used."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, name: str) -> str | None:
        return self.kept.get((service, name))

    def set_password(self, service: str, name: str, value: str) -> None:
        self.kept[service, name] = value

    def delete_password(self, service: str, name: str) -> None:
        del self.kept[service, name]


def test_a_keyring_is_used_if_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keyring = pytest.importorskip("keyring")
    ring = FakeKeyring()
    monkeypatch.setattr(keyring, "get_keyring", lambda: ring)
    vault = store(tmp_path)
    vault.put("TOKEN", CANARY)
    assert vault.key_place() == "the keyring of this system"
    assert len(ring.kept) == 1
    before = dict(ring.kept)
    vault.rotate()
    assert ring.kept.keys() == before.keys()
    assert ring.kept != before
    assert store(tmp_path).read().values == {"TOKEN": CANARY}
    assert not (tmp_path / "vault.key").exists()
    monkeypatch.undo()
    with pytest.raises(VaultError, match="It was in the keyring of this system when"):
        store(tmp_path).read()


def test_a_keyring_that_keeps_nothing_or_fails_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keyring = pytest.importorskip("keyring")

    class Locked(FakeKeyring):
        def get_password(self, service: str, name: str) -> str | None:
            raise RuntimeError("locked")

    monkeypatch.setattr(keyring, "get_keyring", Locked)
    store(tmp_path / "locked").put("TOKEN", CANARY)
    assert (tmp_path / "locked" / "vault.key").exists()
    null = pytest.importorskip("keyring.backends.null")
    monkeypatch.setattr(keyring, "get_keyring", null.Keyring)
    store(tmp_path / "null").put("TOKEN", CANARY)
    assert (tmp_path / "null" / "vault.key").exists()
