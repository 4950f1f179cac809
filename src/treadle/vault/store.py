"""The secrets of a home, encrypted in `vault.db`. Any number of processes may have it open."""

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from uuid import uuid4

import apsw
from msgspec import Struct

from treadle.domain.errors import UsageError
from treadle.ports.vault import VaultError
from treadle.vault.cipher import Cipher, NotSealedSo
from treadle.vault.database import VaultDatabase, explain, open_database, transaction
from treadle.vault.keys import KeyPlace, place_for
from treadle.vault.names import refuse_wrong_grantee, refuse_wrong_name, refuse_wrong_value

DATABASE = "vault.db"
EVERY = "*"
_LOOKS = 3
"""So often the key is looked for again when it changes while it is read."""


class SecretGrant(Struct, frozen=True, order=True):
    """Names, or globs of names."""

    agent: str
    tool: str = EVERY


class Secret(Struct, frozen=True):
    """What may be known of a secret."""

    name: str
    grants: tuple[SecretGrant, ...]
    created: float
    changed: float


class VaultSnapshot(Struct, frozen=True):
    """What the vault held at one moment."""

    secrets: tuple[Secret, ...] = ()
    values: Mapping[str, str] = {}


class _Kept(Struct, frozen=True):
    """The vault's own row."""

    id: str
    check: bytes
    key_place: str


class VaultStore:
    """Nothing is made before a secret is set."""

    def __init__(self, home: Path, environment: Mapping[str, str], now: Callable[[], float] = time.time) -> None:
        self.path = home / DATABASE
        self._home = home
        self._environment = environment
        self._now = now
        self._connection: VaultDatabase | None = None
        self._file: tuple[int, int] | None = None
        self._seal: Cipher | None = None

    # ── Reading ──

    def state(self) -> tuple[int, int, int] | None:
        """Another one whenever somebody else has changed the vault; None: there is none. Costs microseconds."""
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
        """Everything, decrypted."""
        if self.state() is None:
            return VaultSnapshot()
        looks = 0
        while True:
            with transaction(self._open(), self.path, "DEFERRED"):
                kept, secrets = self._kept(), self._secrets()
                sealed = self._open().execute("SELECT name, version, sealed FROM secrets").fetchall()
            if kept is None:
                return VaultSnapshot()
            if seal := self._seal_for(kept):
                values = {name: self._opened(seal, kept, name, version, value) for name, version, value in sealed}
                return VaultSnapshot(secrets, values)
            looks += 1
            if looks == _LOOKS:
                raise self._no_key(kept)

    def inventory(self) -> Sequence[Secret]:
        """What there is. No key is needed to know that."""
        if self.state() is None:
            return ()
        with transaction(self._open(), self.path, "DEFERRED"):
            return self._secrets()

    # ── Writing ──

    def put(self, name: str, value: str, grants: Iterable[SecretGrant] = (), *, forced: bool = False) -> bool:
        """Keep a secret, or another value for one, with these grants beside those it has. Whether it is new."""
        refuse_wrong_name(name)
        refuse_wrong_value(name, value, forced)
        grants = _checked(grants)
        with transaction(self._open(), self.path):
            kept, seal = self._unlocked_or_made()
            found = self._open().execute("SELECT version FROM secrets WHERE name = ?", (name,)).fetchone()
            version = int(found[0]) + 1 if found else 1
            sealed = seal.close(kept.id, name, version, value)
            self._open().execute(
                "INSERT INTO secrets (name, version, sealed, created, changed) VALUES (?1, ?2, ?3, ?4, ?4) "
                "ON CONFLICT DO UPDATE SET version = ?2, sealed = ?3, changed = ?4",
                (name, version, sealed, self._now()),
            )
            self._add_grants(name, grants)
        return found is None

    def remove(self, name: str) -> None:
        with self._changing(name):
            self._open().execute("DELETE FROM secrets WHERE name = ?", (name,))

    def grant(self, name: str, grants: Iterable[SecretGrant]) -> None:
        grants = _checked(grants)
        with self._changing(name):
            self._add_grants(name, grants)

    def revoke(self, name: str, agents: Sequence[str] = (), tools: Sequence[str] = ()) -> int:
        """Take back the grants to these agents for these tools; none named means any. How many there were."""
        with self._changing(name):
            count = 0
            for agent, tool in product(agents or (None,), tools or (None,)):
                self._open().execute(
                    "DELETE FROM grants WHERE name = ?1 AND agent = ifnull(?2, agent) AND tool = ifnull(?3, tool)",
                    (name, agent, tool),
                )
                count += self._open().changes()
            return count

    def rotate(self) -> int:
        """Encrypt everything with a new key. How many secrets there are.

        The new key is durable beside the old one before anything is encrypted with it, all values change in one
        transaction, and the old key goes only after that: whenever this is cut off, one of the kept keys fits."""
        if self.state() is None:
            raise UsageError("There is no vault yet. `treadle vault set NAME` makes one, with a key of its own.")
        with transaction(self._open(), self.path):
            kept, old = self._unlocked_or_made()
            place = self._place(kept.id)
            place.settle(old.key)
            new = Cipher(place.prepare())
            if new.key == old.key:
                raise UsageError(f"The new key is the old one: {place.where}. Nothing was changed.")
            sealed = self._open().execute("SELECT name, version, sealed FROM secrets").fetchall()
            for name, version, value in sealed:
                text = self._opened(old, kept, name, version, value)
                self._open().execute(
                    "UPDATE secrets SET sealed = ?, version = ? WHERE name = ?",
                    (new.close(kept.id, name, version + 1, text), version + 1, name),
                )
            self._open().execute("UPDATE vault SET sealed_check = ?", (new.check(kept.id),))
        self._seal = new
        self._settle(new)
        return len(sealed)

    def key_place(self) -> str:
        """Where the key is, in words."""
        if self.state() is None:
            return self._place("").where
        with transaction(self._open(), self.path, "DEFERRED"):
            kept = self._kept()
        return self._place(kept.id if kept else "").where

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._file = self._seal = None

    # ── The key ──

    def _unlocked_or_made(self) -> tuple[_Kept, Cipher]:
        """The vault's row and its key, which are made for a new vault. In a writing transaction."""
        kept = self._kept()
        if kept is None:
            vault = uuid4().hex
            place = self._place(vault)
            seal = self._seal = Cipher(place.make())
            kept = _Kept(vault, seal.check(vault), place.where)
            self._open().execute(
                "INSERT INTO vault (one, id, sealed_check, key_place) VALUES (1, ?, ?, ?)",
                (kept.id, kept.check, kept.key_place),
            )
            return kept, seal
        for key in (self._seal.key if self._seal else None, *self._place(kept.id).keys()):
            if key is not None and (seal := Cipher(key)).fits(kept.id, kept.check):
                self._seal = seal
                return kept, seal
        raise self._no_key(kept)

    def _seal_for(self, kept: _Kept) -> Cipher | None:
        """The key that fits. One that a rotation could not settle any more is settled now."""
        if self._seal and self._seal.fits(kept.id, kept.check):
            return self._seal
        for position, key in enumerate(self._place(kept.id).keys()):
            seal = Cipher(key)
            if seal.fits(kept.id, kept.check):
                self._seal = seal
                if position:
                    with suppress(VaultError):  # the next one to come does it
                        self._settle(seal)
                return seal
        return None

    def _settle(self, seal: Cipher) -> None:
        """Keep this key alone, if it still is the key: under the lock that a rotation holds."""
        with transaction(self._open(), self.path):
            kept = self._kept()
            if kept and seal.fits(kept.id, kept.check):
                self._place(kept.id).settle(seal.key)

    def _place(self, vault: str) -> KeyPlace:
        return place_for(self._home, vault, self._environment)

    def _no_key(self, kept: _Kept) -> VaultError:
        place = self._place(kept.id)
        found = f"{place.where} holds another one" if any(place.keys()) else f"there is none in {place.where}"
        return VaultError(
            f"The key of the vault {self.path} was not found: {found}. It was in {kept.key_place} when the vault "
            "was made. Bring it back, or set TREADLE_VAULT_KEY to it; without it, move the vault away and set the "
            "secrets again."
        )

    def _opened(self, seal: Cipher, kept: _Kept, name: str, version: int, sealed: bytes) -> str:
        try:
            return seal.open(kept.id, name, version, sealed)
        except NotSealedSo:
            raise VaultError(
                f"The value of {name} in {self.path} was changed by something else than Treadle. Set it again "
                f"(treadle vault set {name}) or remove it (treadle vault remove {name})."
            ) from None

    # ── Rows ──

    def _open(self) -> VaultDatabase:
        if self._connection is None:
            self._connection = open_database(self.path)
            found = self.path.stat()
            self._file = found.st_dev, found.st_ino
        return self._connection

    def _kept(self) -> _Kept | None:
        row = self._open().execute("SELECT id, sealed_check, key_place FROM vault").fetchone()
        return _Kept(*row) if row else None

    def _secrets(self) -> tuple[Secret, ...]:
        grants: dict[str, list[SecretGrant]] = {}
        for name, agent, tool in self._open().execute("SELECT name, agent, tool FROM grants ORDER BY 1, 2, 3"):
            grants.setdefault(name, []).append(SecretGrant(agent, tool))
        rows = self._open().execute("SELECT name, created, changed FROM secrets ORDER BY name")
        return tuple(Secret(name, tuple(grants.get(name, ())), created, changed) for name, created, changed in rows)

    @contextmanager
    def _changing(self, name: str) -> Generator[None, None, None]:
        """A transaction about a secret that there is."""
        if self.state() is None:
            raise UsageError(
                f"No secret is called `{name}`: there is no vault yet. Set it: treadle vault set {name}"
            )
        with transaction(self._open(), self.path):
            names = [row[0] for row in self._open().execute("SELECT name FROM secrets ORDER BY name")]
            if name not in names:
                raise UsageError(f"No secret is called `{name}`; there are: {', '.join(names) or 'none'}.")
            yield

    def _add_grants(self, name: str, grants: Iterable[SecretGrant]) -> None:
        for grant in grants:
            self._open().execute("INSERT OR IGNORE INTO grants VALUES (?, ?, ?)", (name, grant.agent, grant.tool))


def _checked(grants: Iterable[SecretGrant]) -> Sequence[SecretGrant]:
    grants = tuple(grants)
    for grant in grants:
        refuse_wrong_grantee("an agent", grant.agent)
        refuse_wrong_grantee("a tool", grant.tool)
    return grants
