"""The secrets of a home, encrypted in `vault.db`. Several processes may have it open."""

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from uuid import uuid4

import apsw
from msgspec import Struct

from treadle.domain.errors import UnknownSecret, UsageError
from treadle.ports.vault import VaultError
from treadle.vault.cipher import Cipher, DecryptionFailed
from treadle.vault.database import VaultDatabase, explain, open_database, transaction
from treadle.vault.keys import KeyPlace, find_key_place
from treadle.vault.names import check_grantee, check_name, check_value

DATABASE = "vault.db"
EVERY = "*"
_MAX_KEY_ATTEMPTS = 3
"""How often the key is read again if it changes meanwhile."""


class SecretGrant(Struct, frozen=True, order=True):
    """An agent and a tool, each a name or a glob of names."""

    agent: str
    tool: str = EVERY


class Secret(Struct, frozen=True):
    """Metadata of a secret."""

    name: str
    grants: tuple[SecretGrant, ...]
    created: float
    changed: float


class VaultSnapshot(Struct, frozen=True):
    """The content of the vault at one point in time."""

    secrets: tuple[Secret, ...] = ()
    values: Mapping[str, str] = {}


class _VaultRow(Struct, frozen=True):
    """The vault's own row."""

    id: str
    check: bytes
    key_place: str


class VaultStore:
    """Reads and writes the vault. No file is created before a secret is set."""

    def __init__(self, home: Path, environment: Mapping[str, str], now: Callable[[], float] = time.time) -> None:
        self.path = home / DATABASE
        self._home = home
        self._environment = environment
        self._now = now
        self._connection: VaultDatabase | None = None
        self._file: tuple[int, int] | None = None
        self._cipher: Cipher | None = None

    # ── Reads ──

    def state(self) -> tuple[int, int, int] | None:
        """Return a value that differs whenever another process changed the vault, or None without a vault. Takes
        microseconds."""
        try:
            found = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            self.close()
            return None
        if self._file != (found.st_dev, found.st_ino):
            self.close()
        try:
            version = self._open().execute("PRAGMA data_version").fetchone()
        except apsw.Error as error:
            raise explain(error, self.path) from error
        return found.st_dev, found.st_ino, int(version[0]) if version else 0

    def read(self) -> VaultSnapshot:
        """Return the whole content, decrypted."""
        if self.state() is None:
            return VaultSnapshot()
        attempts = 0
        while True:
            with transaction(self._open(), self.path, "DEFERRED"):
                row, secrets = self._read_row(), self._secrets()
                sealed = self._open().execute("SELECT name, version, sealed FROM secrets").fetchall()
            if row is None:
                return VaultSnapshot()
            if cipher := self._find_cipher(row):
                values = {name: self._decrypt(cipher, row, name, version, value) for name, version, value in sealed}
                return VaultSnapshot(secrets, values)
            attempts += 1
            if attempts == _MAX_KEY_ATTEMPTS:
                raise self._explain_missing_key(row)

    def inventory(self) -> Sequence[Secret]:
        """Return the metadata of all secrets, which needs no key."""
        if self.state() is None:
            return ()
        with transaction(self._open(), self.path, "DEFERRED"):
            return self._secrets()

    # ── Writes ──

    def put(self, name: str, value: str, grants: Iterable[SecretGrant] = (), *, forced: bool = False) -> bool:
        """Store a secret or a new value for one, add these grants, and return whether it is new."""
        check_name(name)
        check_value(name, value, forced)
        grants = _check_grants(grants)
        with transaction(self._open(), self.path):
            row, cipher = self._unlock_or_create()
            found = self._open().execute("SELECT version FROM secrets WHERE name = ?", (name,)).fetchone()
            version = int(found[0]) + 1 if found else 1
            sealed = cipher.close(row.id, name, version, value)
            self._open().execute(
                "INSERT INTO secrets (name, version, sealed, created, changed) VALUES (?1, ?2, ?3, ?4, ?4) "
                "ON CONFLICT DO UPDATE SET version = ?2, sealed = ?3, changed = ?4",
                (name, version, sealed, self._now()),
            )
            self._add_grants(name, grants)
        return found is None

    def remove(self, name: str) -> None:
        with self._change(name):
            self._open().execute("DELETE FROM secrets WHERE name = ?", (name,))

    def grant(self, name: str, grants: Iterable[SecretGrant]) -> None:
        grants = _check_grants(grants)
        with self._change(name):
            self._add_grants(name, grants)

    def revoke(self, name: str, agents: Sequence[str] = (), tools: Sequence[str] = ()) -> int:
        """Remove the grants to these agents for these tools, and return how many there were. An empty list means
        any."""
        with self._change(name):
            count = 0
            for agent, tool in product(agents or (None,), tools or (None,)):
                self._open().execute(
                    "DELETE FROM grants WHERE name = ?1 AND agent = ifnull(?2, agent) AND tool = ifnull(?3, tool)",
                    (name, agent, tool),
                )
                count += self._open().changes()
            return count

    def rotate(self) -> int:
        """Encrypt everything with a new key, and return the number of secrets.

        The new key is stored durably in addition to the old one before anything is encrypted with it. All values
        change in one transaction, and the old key is removed only after that: whenever this is interrupted, one of
        the stored keys fits."""
        if self.state() is None:
            raise UsageError("There is no vault yet. `treadle vault set NAME` creates one with its own key.")
        with transaction(self._open(), self.path):
            row, old = self._unlock_or_create()
            place = self._place(row.id)
            place.settle(old.key)
            new = Cipher(place.prepare())
            if new.key == old.key:
                raise UsageError(f"The new key equals the old one: {place.where}. Nothing was changed.")
            sealed = self._open().execute("SELECT name, version, sealed FROM secrets").fetchall()
            for name, version, value in sealed:
                text = self._decrypt(old, row, name, version, value)
                self._open().execute(
                    "UPDATE secrets SET sealed = ?, version = ? WHERE name = ?",
                    (new.close(row.id, name, version + 1, text), version + 1, name),
                )
            self._open().execute("UPDATE vault SET sealed_check = ?", (new.check(row.id),))
        self._cipher = new
        self._settle(new)
        return len(sealed)

    def key_place(self) -> str:
        """Return a description of where the key is stored."""
        if self.state() is None:
            return self._place("").where
        with transaction(self._open(), self.path, "DEFERRED"):
            row = self._read_row()
        return self._place(row.id if row else "").where

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._file = self._cipher = None

    # ── Key ──

    def _unlock_or_create(self) -> tuple[_VaultRow, Cipher]:
        """Return the vault's row and its cipher, created for a new vault. Call it in a writing transaction."""
        row = self._read_row()
        if row is None:
            vault = uuid4().hex
            place = self._place(vault)
            cipher = self._cipher = Cipher(place.make())
            row = _VaultRow(vault, cipher.check(vault), place.where)
            self._open().execute(
                "INSERT INTO vault (one, id, sealed_check, key_place) VALUES (1, ?, ?, ?)",
                (row.id, row.check, row.key_place),
            )
            return row, cipher
        for key in (self._cipher.key if self._cipher else None, *self._place(row.id).keys()):
            if key is not None and (cipher := Cipher(key)).is_key_of(row.id, row.check):
                self._cipher = cipher
                return row, cipher
        raise self._explain_missing_key(row)

    def _find_cipher(self, row: _VaultRow) -> Cipher | None:
        """Return the cipher whose key fits. Completes a rotation that was interrupted before its last step."""
        if self._cipher and self._cipher.is_key_of(row.id, row.check):
            return self._cipher
        for position, key in enumerate(self._place(row.id).keys()):
            cipher = Cipher(key)
            if cipher.is_key_of(row.id, row.check):
                self._cipher = cipher
                if position:
                    with suppress(VaultError):  # the next reader retries
                        self._settle(cipher)
                return cipher
        return None

    def _settle(self, cipher: Cipher) -> None:
        """Make this the only key, if it is still current, under the lock that a rotation holds."""
        with transaction(self._open(), self.path):
            row = self._read_row()
            if row and cipher.is_key_of(row.id, row.check):
                self._place(row.id).settle(cipher.key)

    def _place(self, vault: str) -> KeyPlace:
        return find_key_place(self._home, vault, self._environment)

    def _explain_missing_key(self, row: _VaultRow) -> VaultError:
        place = self._place(row.id)
        found = f"{place.where} holds another key" if any(place.keys()) else f"there is none in {place.where}"
        return VaultError(
            f"The key of the vault {self.path} was not found: {found}. It was in {row.key_place} when the vault "
            "was created. Restore it, or set TREADLE_VAULT_KEY to it. Without it, move the vault away and set the "
            "secrets again."
        )

    def _decrypt(self, cipher: Cipher, row: _VaultRow, name: str, version: int, sealed: bytes) -> str:
        try:
            return cipher.open(row.id, name, version, sealed)
        except DecryptionFailed:
            raise VaultError(
                f"The value of {name} in {self.path} was changed by another program. Set it again "
                f"(treadle vault set {name}) or remove it (treadle vault remove {name})."
            ) from None

    # ── Rows ──

    def _open(self) -> VaultDatabase:
        if self._connection is None:
            self._connection = open_database(self.path)
            found = self.path.stat()
            self._file = found.st_dev, found.st_ino
        return self._connection

    def _read_row(self) -> _VaultRow | None:
        row = self._open().execute("SELECT id, sealed_check, key_place FROM vault").fetchone()
        return _VaultRow(*row) if row else None

    def _secrets(self) -> tuple[Secret, ...]:
        grants: dict[str, list[SecretGrant]] = {}
        for name, agent, tool in self._open().execute("SELECT name, agent, tool FROM grants ORDER BY 1, 2, 3"):
            grants.setdefault(name, []).append(SecretGrant(agent, tool))
        rows = self._open().execute("SELECT name, created, changed FROM secrets ORDER BY name")
        return tuple(Secret(name, tuple(grants.get(name, ())), created, changed) for name, created, changed in rows)

    @contextmanager
    def _change(self, name: str) -> Generator[None, None, None]:
        """Run a transaction about an existing secret. Raise UnknownSecret if it does not exist."""
        if self.state() is None:
            raise UnknownSecret(
                f"No secret is called `{name}`: there is no vault yet. Set it: treadle vault set {name}"
            )
        with transaction(self._open(), self.path):
            names = [row[0] for row in self._open().execute("SELECT name FROM secrets ORDER BY name")]
            if name not in names:
                raise UnknownSecret(f"No secret is called `{name}`; there are: {', '.join(names) or 'none'}.")
            yield

    def _add_grants(self, name: str, grants: Iterable[SecretGrant]) -> None:
        for grant in grants:
            self._open().execute("INSERT OR IGNORE INTO grants VALUES (?, ?, ?)", (name, grant.agent, grant.tool))


def _check_grants(grants: Iterable[SecretGrant]) -> Sequence[SecretGrant]:
    grants = tuple(grants)
    for grant in grants:
        check_grantee("an agent", grant.agent)
        check_grantee("a tool", grant.tool)
    return grants
