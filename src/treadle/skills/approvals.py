"""The skills that a user has approved, stored in `skills/approved.yaml` of the home: which skill, and the hash of
all its files."""

import fcntl
import os
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec import Struct

from treadle.domain.errors import ConfigError
from treadle.skills.content import open_folder, read_regular
from treadle.skills.manifest import InvalidSkill

FILE = "approved.yaml"
HOME = "home"
"""The origin of a skill of the home. The origin of a skill of a workspace is the path of its folder."""
MAX_BYTES = 4_000_000
_HEADER = (
    "# The skills that you have read and approved, each with the hash of all its files. One that was\n"
    "# changed since does not count until it is approved again. `treadle skills approve` and `treadle\n"
    "# skills remove` write this file.\n"
)
_LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


class Approval(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    origin: str
    sha256: str


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    approved: tuple[Approval, ...] = ()


class ApprovedSkills:
    """The current content of the file. Nothing is created before a skill is approved."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "skills"
        self.path = self.folder / FILE
        self._last: tuple[bytes, tuple[Approval, ...]] = (b"", ())

    def read(self) -> Sequence[Approval]:
        """Return all approvals. Raise ConfigError if the file is damaged."""
        content = self._content()
        known, approvals = self._last
        if content == known:
            return approvals
        try:
            data = yaml.load(content, _LOADER)
            approvals = msgspec.convert(data or {}, _File).approved
        except (yaml.YAMLError, msgspec.ValidationError, ValueError, RecursionError):
            raise ConfigError(
                f"{self.path}: the file is damaged, so no skill counts as approved; fix it, or delete "
                "it and approve the skills again"
            ) from None
        self._last = (content, approvals)
        return approvals

    def put(self, approval: Approval) -> None:
        """Store an approval, replacing an earlier one of the same skill."""
        self._change(lambda known: (*_remove(known, approval.name, approval.origin), approval))

    def revoke(self, name: str, origin: str) -> bool:
        """Remove an approval. Return False if there was none."""
        is_known = any((one.name, one.origin) == (name, origin) for one in self.read())
        if is_known:
            self._change(lambda known: _remove(known, name, origin))
        return is_known

    def make_folder(self) -> None:
        """Create the folder, private to this user, if it is missing."""
        for folder in (self.folder.parent, self.folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _content(self) -> bytes:
        try:
            with open_folder(self.folder) as folder:
                content, found = read_regular(FILE, folder, MAX_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return b""
        except (OSError, InvalidSkill) as error:
            raise ConfigError(
                f"{self.path}: it cannot be read: {_describe_error(error)}; check the file and its permissions"
            ) from None
        if found.st_size > MAX_BYTES:
            raise ConfigError(f"{self.path}: it is larger than {MAX_BYTES // 1_000_000} MB; remove approvals")
        return content

    def _change(self, change: Callable[[Sequence[Approval]], Sequence[Approval]]) -> None:
        try:
            self.make_folder()
            with _lock(self.folder):
                self._write(sorted(change(self.read()), key=lambda one: (one.origin != HOME, one.origin, one.name)))
        except OSError as error:
            raise ConfigError(
                f"{self.path}: it cannot be written: {error.strerror}; check the permissions of the folder"
            ) from None

    def _write(self, approvals: Sequence[Approval]) -> None:
        plain = {"approved": [msgspec.to_builtins(approval) for approval in approvals]}
        handle, temporary = tempfile.mkstemp(dir=self.folder, prefix=f".{FILE}.")  # private to this user
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(_HEADER + yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=1000))
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(self.path)
        except BaseException:
            with suppress(OSError):
                Path(temporary).unlink()
            raise


@contextmanager
def _lock(folder: Path) -> Generator[None]:
    """Hold a lock on the file, so that concurrent approvals do not overwrite each other."""
    with open_folder(folder) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def _remove(known: Sequence[Approval], name: str, origin: str) -> tuple[Approval, ...]:
    return tuple(one for one in known if (one.name, one.origin) != (name, origin))


def _describe_error(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
