"""The files of the vault: their content, their permissions, and errors for damaged files."""

import base64
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import cast

import apsw
import pytest

from treadle.domain.errors import UsageError
from treadle.ports.vault import VaultError
from treadle.vault.database import VaultDatabase
from treadle.vault.keys import KEY
from treadle.vault.store import SecretGrant, VaultStore

CANARY = "canary-4f1d0e-in-a-coal-mine"

each = pytest.mark.parametrize


def store(home: Path, environment: Mapping[str, str] | None = None) -> VaultStore:
    return VaultStore(home, environment or {})


def new_key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


def connect(home: Path) -> VaultDatabase:
    return cast(VaultDatabase, apsw.Connection(str(home / "vault.db")))


def change(home: Path, statement: str, *bindings: str) -> None:
    with closing(connect(home)) as connection:
        connection.execute(statement, bindings)


# ── What is kept ──


def test_values_and_grants_are_kept_for_the_next_process(tmp_path: Path) -> None:
    assert store(tmp_path).put("TOKEN", CANARY, [SecretGrant("researcher", "bash")])
    assert not store(tmp_path).put("TOKEN", CANARY + "2", [SecretGrant("writer")])
    moment = store(tmp_path).read()
    assert moment.values == {"TOKEN": CANARY + "2"}
    assert moment.secrets[0].grants == (SecretGrant("researcher", "bash"), SecretGrant("writer", "*"))


def test_reading_creates_no_file(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert store(home).read().values == {}
    assert store(home).inventory() == ()
    assert store(home).state() is None
    assert not home.exists()


def test_all_files_are_private_to_their_owner(tmp_path: Path) -> None:
    home = tmp_path / "home"
    before = os.umask(0)
    try:
        store(home).put("TOKEN", CANARY)
    finally:
        os.umask(before)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in home.iterdir()} == {0o600}


def test_no_current_or_former_value_is_in_any_file(tmp_path: Path) -> None:
    vault = store(tmp_path)
    vault.put("TOKEN", CANARY)
    sealed = _read_encrypted(tmp_path)
    vault.put("TOKEN", CANARY[::-1])
    vault.remove("TOKEN")
    for file in tmp_path.iterdir():
        content = file.read_bytes()
        assert CANARY.encode() not in content
        assert CANARY[::-1].encode() not in content
        assert sealed not in content


def _read_encrypted(home: Path) -> bytes:
    with closing(connect(home)) as connection:
        found = connection.execute("SELECT sealed FROM secrets").fetchone()
    assert found
    return bytes(found[0])


def test_the_same_value_is_encrypted_differently_each_time(tmp_path: Path) -> None:
    vault = store(tmp_path)
    found: set[bytes] = set()
    for _ in range(4):
        vault.put("TOKEN", CANARY)
        found.add(_read_encrypted(tmp_path))
    assert len(found) == 4


def test_grants_are_added_and_revoked(tmp_path: Path) -> None:
    vault = store(tmp_path)
    vault.put("TOKEN", CANARY)
    vault.grant(
        "TOKEN", [SecretGrant("a", "bash"), SecretGrant("a", "web_fetch"), SecretGrant("b"), SecretGrant("b")]
    )
    assert vault.revoke("TOKEN", ["a"], ["bash"]) == 1
    assert vault.inventory()[0].grants == (SecretGrant("a", "web_fetch"), SecretGrant("b"))
    assert vault.revoke("TOKEN", ["a"]) == 1
    assert vault.revoke("TOKEN", ["nobody"]) == 0
    vault.remove("TOKEN")
    vault.put("TOKEN", CANARY)
    assert vault.inventory()[0].grants == ()


REFUSED_NAMES = (
    *("", "1ST", "A-B", "A B", "A=B", "Ä", "X" * 65, "A\n", "_"),
    *("PATH", "LD_PRELOAD", "IFS", "BASH_ENV", "HOME", "PS4", "ENV", "PROMPT_COMMAND", "BASH_FUNC_ls"),
    *("TREADLE_VAULT_KEY", "PYTHONPATH", "GIT_SSH_COMMAND"),
)


@each("name", REFUSED_NAMES)
def test_names_that_would_break_a_shell_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a secret"):
        store(tmp_path).put(name, CANARY)
    assert not list(tmp_path.iterdir())


@each("value", ["", "1234567", "   short    ", "nul\0in the middle", "x" * 70_000, "half \ud800 a pair"])
def test_values_that_cannot_be_stored_are_refused_and_not_shown(tmp_path: Path, value: str) -> None:
    with pytest.raises(UsageError) as refused:
        store(tmp_path).put("TOKEN", value)
    assert not value or value.strip() not in str(refused.value)


def test_a_short_value_can_be_forced(tmp_path: Path) -> None:
    store(tmp_path).put("PIN", "1234", forced=True)
    assert store(tmp_path).read().values == {"PIN": "1234"}


def test_an_unknown_name_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no vault yet"):
        store(tmp_path).remove("TOKEN")
    store(tmp_path).put("OTHER", CANARY)
    with pytest.raises(UsageError, match="No secret is called `TOKEN`; there are: OTHER"):
        store(tmp_path).grant("TOKEN", [SecretGrant("a")])


# ── Tampering ──


def test_a_changed_value_is_refused_by_name(tmp_path: Path) -> None:
    store(tmp_path).put("TOKEN", CANARY)
    change(tmp_path, "UPDATE secrets SET sealed = CAST(x'00' || substr(sealed, 2) AS BLOB)")
    with pytest.raises(VaultError, match=r"The value of TOKEN .* was changed by another program"):
        store(tmp_path).read()
    store(tmp_path).put("TOKEN", CANARY)
    assert store(tmp_path).read().values == {"TOKEN": CANARY}


def test_an_encrypted_value_cannot_be_moved_to_another_name(tmp_path: Path) -> None:
    store(tmp_path).put("HARMLESS", "everybody may know")
    store(tmp_path).put("SECRET", CANARY)
    change(tmp_path, "UPDATE secrets SET sealed = (SELECT sealed FROM secrets WHERE name = 'SECRET')")
    with pytest.raises(VaultError, match="The value of HARMLESS"):
        store(tmp_path).read()


def test_an_old_encrypted_value_is_refused(tmp_path: Path) -> None:
    store(tmp_path).put("TOKEN", "the old value")
    change(tmp_path, "CREATE TABLE kept AS SELECT sealed FROM secrets")
    store(tmp_path).put("TOKEN", CANARY)
    change(tmp_path, "UPDATE secrets SET sealed = (SELECT sealed FROM kept)")
    with pytest.raises(VaultError, match="The value of TOKEN"):
        store(tmp_path).read()


def test_values_of_another_vault_are_refused(tmp_path: Path) -> None:
    key = {KEY: new_key()}
    for home in ("one", "two"):
        store(tmp_path / home, key).put("TOKEN", f"{CANARY} {home}")
    with closing(connect(tmp_path / "one")) as connection:
        connection.execute("ATTACH ? AS two", (str(tmp_path / "two" / "vault.db"),))
        connection.execute("UPDATE main.secrets SET sealed = (SELECT sealed FROM two.secrets)")
    with pytest.raises(VaultError, match="The value of TOKEN"):
        store(tmp_path / "one", key).read()


# ── Other files ──


def test_a_file_that_is_not_a_vault_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "vault.db").write_bytes(b"not a database at all, " * 100)
    with pytest.raises(VaultError, match="is damaged"):
        store(tmp_path).read()
    (tmp_path / "vault.db").unlink()
    change(tmp_path, "CREATE TABLE somebody_elses (x)")
    with pytest.raises(VaultError, match="another program"):
        store(tmp_path).put("TOKEN", CANARY)


def test_a_newer_vault_is_left_alone(tmp_path: Path) -> None:
    store(tmp_path).put("TOKEN", CANARY)
    change(tmp_path, "PRAGMA user_version = 99")
    with pytest.raises(VaultError, match=r"newer Treadle .format 99"):
        store(tmp_path).read()
