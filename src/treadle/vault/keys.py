"""Where the key of a vault is stored: the environment, the system keyring, or a file in the home.

A place stores the key and, during a rotation, the next one."""

import base64
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from treadle.domain.errors import UsageError
from treadle.ports.vault import VaultError
from treadle.vault.cipher import KEY_BYTES, generate_key

KEY = "TREADLE_VAULT_KEY"
NEXT_KEY = "TREADLE_VAULT_NEXT_KEY"
KEY_FILE = "vault.key"
_NEXT = ".next"
_SERVICE = "treadle"
_KEY_COMMAND = "python3 -c 'import os, base64; print(base64.b64encode(os.urandom(32)).decode())'"


class KeyPlace(Protocol):
    @property
    def where(self) -> str:
        """A description for messages."""
        ...

    def keys(self) -> Iterator[bytes]:
        """Yield the key and the next one, if they exist."""
        ...

    def make(self) -> bytes:
        """Return the key for a new vault, stored durably; the existing one if there is one."""
        ...

    def prepare(self) -> bytes:
        """Store the next key durably in addition to the current one, and return it."""
        ...

    def settle(self, key: bytes) -> None:
        """Make this the only key. Idempotent."""
        ...


def find_key_place(home: Path, vault: str, environment: Mapping[str, str]) -> KeyPlace:
    """Return where the key of a vault is or would be stored: the first place that works."""
    if environment.get(KEY):
        return EnvironmentKey(environment)
    file = KeyFile(home / KEY_FILE)
    if file.exists:
        return file
    return _open_keyring(vault) or file


class EnvironmentKey:
    """The key is a variable. Treadle cannot change it, so the user also supplies the next one."""

    where = f"the variable {KEY}"

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def keys(self) -> Iterator[bytes]:
        for variable in (KEY, NEXT_KEY):
            if given := self._environment.get(variable):
                yield _decode(given, f"The variable {variable}")

    def make(self) -> bytes:
        return next(self.keys())

    def prepare(self) -> bytes:
        if not self._environment.get(NEXT_KEY):
            raise UsageError(
                f"The key is {self.where}, which Treadle cannot change. Set {NEXT_KEY} to a new key "
                f"({_KEY_COMMAND}), rotate again, then set {KEY} to the new key. Nothing was changed."
            )
        return list(self.keys())[1]

    def settle(self, key: bytes) -> None:
        pass


class KeyFile:
    """The key is a file that only its owner may read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = path.with_name(path.name + _NEXT)

    @property
    def where(self) -> str:
        return f"the file {self._path}"

    @property
    def exists(self) -> bool:
        return self._path.exists() or self._next.exists()

    def keys(self) -> Iterator[bytes]:
        for path in (self._path, self._next):
            if (key := _read(path)) is not None:
                yield key

    def make(self) -> bytes:
        key = _read(self._path)
        if key is None:
            _write(self._path, key := generate_key())
        return key

    def prepare(self) -> bytes:
        key = generate_key()
        _write(self._next, key)
        return key

    def settle(self, key: bytes) -> None:
        if _read(self._path) != key:
            _write(self._path, key)
        for path in (self._next, _partial_path(self._next), _partial_path(self._path)):
            path.unlink(missing_ok=True)


class KeyringKey:
    """The key is in the system keyring, under the id of the vault."""

    where = "the keyring of this system"

    def __init__(self, backend: Any, vault: str) -> None:
        self._backend = backend
        self._names = (vault, vault + _NEXT)

    def keys(self) -> Iterator[bytes]:
        for name in self._names:
            if (given := self._backend.get_password(_SERVICE, name)) is not None:
                yield _decode(given, f"The entry {_SERVICE}/{name} of the keyring")

    def make(self) -> bytes:
        for key in self.keys():
            return key
        self._put(self._names[0], key := generate_key())
        return key

    def prepare(self) -> bytes:
        self._put(self._names[1], key := generate_key())
        return key

    def settle(self, key: bytes) -> None:
        self._put(self._names[0], key)
        if self._backend.get_password(_SERVICE, self._names[1]) is not None:
            self._backend.delete_password(_SERVICE, self._names[1])

    def _put(self, name: str, key: bytes) -> None:
        self._backend.set_password(_SERVICE, name, _encode(key))
        if self._backend.get_password(_SERVICE, name) != _encode(key):
            raise VaultError(f"The keyring did not store the key of the vault. Set {KEY} instead ({_KEY_COMMAND}).")


def _open_keyring(vault: str) -> KeyringKey | None:
    """Return the keyring if one is installed and responds. Servers often have none, or a locked one."""
    try:
        import keyring  # an optional extra
        from keyring.backends import fail, null

        backend: Any = keyring.get_keyring()
        if isinstance(backend, fail.Keyring | null.Keyring):
            return None
        backend.get_password(_SERVICE, vault)
    except Exception:  # a backend that raises does not work
        return None
    return KeyringKey(backend, vault)


# ── Keys as text ──


def _encode(key: bytes) -> str:
    return base64.b64encode(key).decode()


def _decode(text: str, what: str) -> bytes:
    """Return a key from base64 or hex. Errors do not show the text: it may be a key with one character missing."""
    text = text.strip()
    for decode in (bytes.fromhex, _decode_base64):
        with suppress(ValueError):
            if len(key := decode(text)) == KEY_BYTES:
                return key
    raise VaultError(
        f"{what} is not a key: {KEY_BYTES} bytes in base64 or hex are needed, {len(text)} characters were found. "
        f"Set it to the key that the vault was created with. To generate a new one, run: {_KEY_COMMAND}"
    )


def _decode_base64(text: str) -> bytes:
    """Decode the standard or the URL-safe alphabet, with or without padding."""
    text = text.rstrip("=").replace("-", "+").replace("_", "/")
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


def _read(path: Path) -> bytes | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise VaultError(
            f"The key file {path} cannot be read: {error.strerror}. Check the file and its permissions."
        ) from None
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise VaultError(
                f"The key file {path} is accessible to other users (mode {stat.S_IMODE(found.st_mode):o}). Run: "
                f"chmod 600 {path}. If another user may have read it, also run: treadle vault rotate"
            )
        return _decode(file.read(1024).decode("ascii", "replace"), f"The key file {path}")


def _partial_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")


def _write(path: Path, key: bytes) -> None:
    """Write the key atomically and durably, never readable by others. The caller holds the lock of the vault."""
    part = _partial_path(path)
    try:
        part.unlink(missing_ok=True)
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(_encode(key) + "\n")
            file.flush()
            os.fsync(handle)
        part.replace(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise VaultError(
            f"The key file {path} cannot be written: {error.strerror}. Check the folder, its permissions and the "
            "free space on the disk."
        ) from None
