"""The backup archive: a plain tar that starts with a manifest, which lists every part with its size and hash.

An archive may come from anywhere. It is accepted only if it is exactly what its manifest says, and the manifest
lists only what a backup contains: plain files at a few known places."""

import hashlib
import os
import tarfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Struct

from treadle.domain.errors import StoreDamaged, StoreNewer, UsageError
from treadle.ports.deletion import DatabaseFacts

FORMAT = 1
MANIFEST = "manifest.json"
DATABASE, VAULT, CONFIG = "treadle.db", "vault.db", "config.yaml"
FOLDERS = ("agents", "skills", "evals")
MAX_MANIFEST_BYTES = 32_000_000
CHUNK_BYTES = 1 << 20


class BackupPart(Struct, frozen=True, forbid_unknown_fields=True):
    """One file of a backup."""

    name: str
    size: int
    sha256: str
    executable: bool = False


class BackupManifest(Struct, frozen=True):
    treadle_backup: int
    """The format of the archive."""
    treadle: str
    """The version that created it."""
    made_at: str
    parts: tuple[BackupPart, ...]
    database: DatabaseFacts | None = None
    vault: int | None = None
    """The format of the vault's database."""
    vault_key: str | None = None
    """Where the key was stored when the backup was created. The key itself is not in the archive."""


# ── Names ──


def is_known_place(name: str) -> bool:
    """Return whether a part may have this name: a known file, or a plain name inside a known folder."""
    if name in (DATABASE, VAULT, CONFIG):
        return True
    first, *rest = name.split("/")
    return first in FOLDERS and bool(rest) and all(map(_is_plain, rest))


def _is_plain(piece: str) -> bool:
    return piece not in ("", ".", "..") and "\\" not in piece and piece.isprintable()


# ── Writes ──


def describe_part(name: str, file: Path) -> BackupPart:
    """Return the manifest entry of a file."""
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    found = file.stat()
    return BackupPart(name, found.st_size, digest, bool(found.st_mode & 0o100))


def write_archive(path: Path, manifest: BackupManifest, folder: Path) -> None:
    """Write an archive of the parts in a folder to a new file that only its owner can read."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
            content = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
            _add(archive, MANIFEST, len(content), BytesIO(content), False)
            for part in manifest.parts:
                with (folder / part.name).open("rb") as source:
                    _add(archive, part.name, part.size, source, part.executable)
        file.flush()
        os.fsync(handle)


def _add(archive: tarfile.TarFile, name: str, size: int, content: IO[bytes], executable: bool) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o700 if executable else 0o600
    archive.addfile(member, content)


# ── Reads ──


def check_archive(path: Path) -> BackupManifest:
    """Read an archive to its end and compare it with its manifest. Raise UsageError if it is not a backup,
    StoreDamaged if it is incomplete, and StoreNewer if a later version created it."""
    return _read(path, lambda part, content: _compute_hash(content))


def unpack(path: Path, folder: Path) -> BackupManifest:
    """Check an archive as `check_archive` does, and write its parts into a folder."""

    def write_part(part: BackupPart, content: IO[bytes]) -> str:
        target = folder / part.name
        for above in reversed(Path(part.name).parents):
            (folder / above).mkdir(mode=0o700, exist_ok=True)
        mode = 0o700 if part.executable else 0o600
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        with os.fdopen(handle, "wb") as file:
            digest = _compute_hash(content, file)
            file.flush()
            os.fsync(handle)
        return digest

    return _read(path, write_part)


def _read(path: Path, take: Callable[[BackupPart, IO[bytes]], str]) -> BackupManifest:
    try:
        with path.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as archive:
            members = _iterate_members(archive, path)
            manifest = _read_manifest(next(members, None), path)
            expected = {part.name: part for part in manifest.parts}
            for member, content in members:
                part = expected.pop(member.name, None)
                if part is None or member.size != part.size:
                    raise _explain_damaged(path, f"`{member.name}` does not match the manifest")
                if take(part, content) != part.sha256:
                    raise _explain_damaged(path, f"the content of `{part.name}` has changed")
    except (tarfile.TarError, EOFError, UnicodeError, ValueError, OverflowError) as error:
        raise _explain_foreign(path, str(error)) from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}. Nothing was changed.") from None
    if expected:
        raise _explain_damaged(path, f"`{next(iter(expected))}` is missing")
    return manifest


def _iterate_members(archive: tarfile.TarFile, path: Path) -> Iterator[tuple[tarfile.TarInfo, IO[bytes]]]:
    """Yield the files of an archive in order. Raise UsageError for anything but plain files at known places: links,
    devices, paths out of the folder."""
    for member in archive:
        is_plain = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse()
        content = archive.extractfile(member) if is_plain else None
        if content is None or not (member.name == MANIFEST or is_known_place(member.name)):
            raise UsageError(f"{path} is not a Treadle backup: it contains {member.name!a}. Nothing was changed.")
        yield member, content


def _read_manifest(first: tuple[tarfile.TarInfo, IO[bytes]] | None, path: Path) -> BackupManifest:
    if first is None or first[0].name != MANIFEST or first[0].size > MAX_MANIFEST_BYTES:
        raise _explain_foreign(path, f"it does not start with {MANIFEST}")
    content = first[1].read()
    with suppress(msgspec.DecodeError):
        if (found := msgspec.json.decode(content, type=_Format).treadle_backup) > FORMAT:
            raise StoreNewer(
                f"{path} was made by a newer Treadle (format {found}; this one supports {FORMAT}). Install that "
                "version, then try again. Nothing was changed."
            )
    try:
        manifest = msgspec.json.decode(content, type=BackupManifest)
    except msgspec.DecodeError as error:
        raise _explain_foreign(path, f"its {MANIFEST}: {error}") from None
    names = [part.name for part in manifest.parts]
    if len(set(names)) != len(names) or not all(map(is_known_place, names)):
        raise _explain_foreign(path, "its manifest lists files that do not belong in a backup")
    return manifest


class _Format(Struct):
    treadle_backup: int


def _compute_hash(content: IO[bytes], copy: IO[bytes] | None = None) -> str:
    digest = hashlib.sha256()
    while chunk := content.read(CHUNK_BYTES):
        digest.update(chunk)
        if copy is not None:
            copy.write(chunk)
    return digest.hexdigest()


def _explain_foreign(path: Path, why: str) -> UsageError:
    return UsageError(f"{path} is not a Treadle backup, or is incomplete ({why}). Nothing was changed.")


def _explain_damaged(path: Path, why: str) -> StoreDamaged:
    return StoreDamaged(f"The backup {path} is damaged: {why}. Nothing was changed. Use another backup.")


def check_database_facts(manifest: BackupManifest, found: DatabaseFacts | None, path: Path) -> None:
    """Raise StoreDamaged if a database does not contain what the manifest says."""
    if manifest.database != found:
        raise _explain_damaged(path, "its database does not match its manifest")
