"""The file that a backup is: a plain tar with a manifest first, which names every part with its size and hash.

An archive comes from anywhere. It is taken only if it is exactly what its manifest says, and the manifest says
nothing but what a backup has: plain files at a few known places."""

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
FOLDERS = ("agents", "skills")
MOST_MANIFEST_BYTES = 32_000_000
CHUNK = 1 << 20


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    """One file of a backup."""

    name: str
    size: int
    sha256: str
    executable: bool = False


class BackupManifest(Struct, frozen=True):
    treadle_backup: int
    """The format of the archive."""
    treadle: str
    """The version that made it."""
    made_at: str
    parts: tuple[Part, ...]
    database: DatabaseFacts | None = None
    vault: int | None = None
    """The format of the vault's database."""
    vault_key: str | None = None
    """Where its key was when the backup was made. The key itself is not in the archive."""


# ── Names ──


def is_known_place(name: str) -> bool:
    """Whether a part may lie there: a known file, or anything plainly named inside a known folder."""
    if name in (DATABASE, VAULT, CONFIG):
        return True
    first, *rest = name.split("/")
    return first in FOLDERS and bool(rest) and all(map(_is_plain, rest))


def _is_plain(piece: str) -> bool:
    return piece not in ("", ".", "..") and "\\" not in piece and piece.isprintable()


# ── Writing ──


def part_of(name: str, file: Path) -> Part:
    """What the manifest says of a file."""
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    found = file.stat()
    return Part(name, found.st_size, digest, bool(found.st_mode & 0o100))


def write_archive(path: Path, manifest: BackupManifest, folder: Path) -> None:
    """Write an archive of the parts, which lie in a folder, to a new file for its owner alone."""
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


# ── Reading ──


def check_archive(path: Path) -> BackupManifest:
    """Read an archive to its end and compare it with its manifest. Raises UsageError for what is no backup,
    StoreDamaged for one that is not whole, StoreNewer for one of a later version."""
    return _read(path, lambda part, content: _hash_of(content))


def unpack(path: Path, folder: Path) -> BackupManifest:
    """The same, and put the parts into a folder."""

    def keep(part: Part, content: IO[bytes]) -> str:
        target = folder / part.name
        for above in reversed(Path(part.name).parents):
            (folder / above).mkdir(mode=0o700, exist_ok=True)
        mode = 0o700 if part.executable else 0o600
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        with os.fdopen(handle, "wb") as file:
            digest = _hash_of(content, file)
            file.flush()
            os.fsync(handle)
        return digest

    return _read(path, keep)


def _read(path: Path, take: Callable[[Part, IO[bytes]], str]) -> BackupManifest:
    try:
        with path.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as archive:
            members = _members(archive, path)
            manifest = _manifest(next(members, None), path)
            expected = {part.name: part for part in manifest.parts}
            for member, content in members:
                part = expected.pop(member.name, None)
                if part is None or member.size != part.size:
                    raise _damaged(path, f"`{member.name}` is not as its manifest says")
                if take(part, content) != part.sha256:
                    raise _damaged(path, f"the content of `{part.name}` is not what was saved")
    except (tarfile.TarError, EOFError, UnicodeError, ValueError, OverflowError) as error:
        raise _not_ours(path, str(error)) from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}. Nothing was changed.") from None
    if expected:
        raise _damaged(path, f"`{next(iter(expected))}` is missing")
    return manifest


def _members(archive: tarfile.TarFile, path: Path) -> Iterator[tuple[tarfile.TarInfo, IO[bytes]]]:
    """The files of an archive in their order. What is no plain file at a known place is refused: links, devices,
    ways out of the folder."""
    for member in archive:
        is_plain = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse()
        content = archive.extractfile(member) if is_plain else None
        if content is None or not (member.name == MANIFEST or is_known_place(member.name)):
            raise UsageError(
                f"{path} is no backup of Treadle: {member.name!a} does not belong into one. Nothing was changed."
            )
        yield member, content


def _manifest(first: tuple[tarfile.TarInfo, IO[bytes]] | None, path: Path) -> BackupManifest:
    if first is None or first[0].name != MANIFEST or first[0].size > MOST_MANIFEST_BYTES:
        raise _not_ours(path, f"it does not begin with {MANIFEST}")
    content = first[1].read()
    with suppress(msgspec.DecodeError):
        if (found := msgspec.json.decode(content, type=_Format).treadle_backup) > FORMAT:
            raise StoreNewer(
                f"{path} was made by a newer Treadle (format {found}; this one knows {FORMAT}). Install that "
                "version, then try again. Nothing was changed."
            )
    try:
        manifest = msgspec.json.decode(content, type=BackupManifest)
    except msgspec.DecodeError as error:
        raise _not_ours(path, f"its {MANIFEST}: {error}") from None
    names = [part.name for part in manifest.parts]
    if len(set(names)) != len(names) or not all(map(is_known_place, names)):
        raise _not_ours(path, "its manifest names what does not belong into one")
    return manifest


class _Format(Struct):
    treadle_backup: int


def _hash_of(content: IO[bytes], copy: IO[bytes] | None = None) -> str:
    digest = hashlib.sha256()
    while chunk := content.read(CHUNK):
        digest.update(chunk)
        if copy is not None:
            copy.write(chunk)
    return digest.hexdigest()


def _not_ours(path: Path, why: str) -> UsageError:
    return UsageError(f"{path} is no backup of Treadle, or not a whole one ({why}). Nothing was changed.")


def _damaged(path: Path, why: str) -> StoreDamaged:
    return StoreDamaged(f"The backup {path} is damaged: {why}. Nothing was changed. Use another backup.")


def refuse_other_counts(manifest: BackupManifest, found: DatabaseFacts | None, path: Path) -> None:
    """Raise where a database does not hold what the manifest says."""
    if manifest.database != found:
        raise _damaged(path, "its database does not hold what its manifest says")
