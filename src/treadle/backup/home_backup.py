"""Backup and restore of a home, and access to its database for retention, agent states and tokens."""

import fcntl
import glob
import os
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from treadle.backup.archive import (
    CONFIG,
    DATABASE,
    FOLDERS,
    FORMAT,
    VAULT,
    BackupManifest,
    check_archive,
    check_database_facts,
    describe_part,
    is_known_place,
    unpack,
    write_archive,
)
from treadle.backup.event_export import EventExportFile
from treadle.backup.restore import ReversibleMoves
from treadle.bootstrap.databases import open_stores_exclusively
from treadle.bootstrap.offline_service import make_lazy_file_versions
from treadle.bootstrap.sqlite import database_path, lock_database
from treadle.config.database_marker import forget_database
from treadle.config.home import Home
from treadle.domain.errors import StoreNewer, UsageError
from treadle.domain.version import VERSION
from treadle.operations.archive import SessionArchiver
from treadle.operations.retention import RetentionService, make_file_sweep
from treadle.stores.sqlite.backup import check_database, check_integrity, copy_database, require_own
from treadle.system.clock import SystemClock
from treadle.vault.database import APPLICATION_ID as VAULT_ID
from treadle.vault.database import FORMAT as VAULT_FORMAT
from treadle.vault.store import VaultStore

BACKUP_PREFIX, RESTORE_PREFIX = ".treadle-backup-", ".restoring-"
"""Beginnings of the names of temporary folders."""
STARTING_SECONDS = 60.0
"""How long a temporary folder without content may be one that is about to be locked."""
DATABASE_SUFFIXES = ("", "-wal", "-shm", "-journal")


# ── Retention ──


@asynccontextmanager
async def open_archiving_retention(home: Home, file: EventExportFile) -> AsyncGenerator[RetentionService, None]:
    """Delete sessions of a home. What is pruned is written to a file first. Raises StoreOwned while another process
    owns the database."""
    async with open_stores_exclusively(home, "Nothing was deleted.") as stores:
        keep = SessionArchiver(stores.sessions, stores.journal, file).keep
        with closing(file):
            clock = SystemClock()
            files = make_lazy_file_versions(home, home.database_url, clock)
            yield RetentionService(stores.deletions, clock, keep, make_file_sweep(files, stores.runs))


# ── Backing up ──


class BackupReport(Struct, frozen=True):
    """A backup that was written and checked."""

    path: str
    manifest: BackupManifest
    left_out: tuple[str, ...]
    """What was skipped in the folders because it is not a plain file with a plain name."""


def back_up(home: Home, target: Path, replace: bool) -> BackupReport:
    """Write a backup of a home to a file, and check it, while other processes continue."""
    target = target.expanduser().absolute()
    database = database_path(home)
    _check_target(home, target, replace)
    if home.database is not None and not database.exists():
        raise UsageError(f"There is no database {database}. Is TREADLE_DATABASE_URL right? Nothing was saved.")
    with _make_staging_folder(target.parent, BACKUP_PREFIX) as folder:
        parts = folder / "parts"
        left_out = tuple(_copy_files(home.path, parts))
        facts = None
        if database.exists():
            require_own(str(database))
            copy_database(str(database), str(parts / DATABASE))
            facts = check_database(str(parts / DATABASE))
        vault = _copy_vault(home, parts)
        names = sorted(str(file.relative_to(parts)) for file in parts.rglob("*") if file.is_file())
        if not names:
            raise UsageError(f"There is nothing to back up in {home.path}. Is TREADLE_HOME the right folder?")
        manifest = BackupManifest(
            FORMAT,
            VERSION,
            datetime.now(UTC).isoformat(timespec="seconds"),
            tuple(describe_part(name, parts / name) for name in names),
            facts,
            *vault,
        )
        temporary = folder / "archive"
        write_archive(temporary, manifest, parts)
        check_archive(temporary)
        temporary.replace(target)
    return BackupReport(str(target), manifest, left_out)


def _check_target(home: Home, target: Path, replace: bool) -> None:
    for folder in (home.path / name for name in FOLDERS):
        if target.resolve().is_relative_to(folder.resolve()):
            raise UsageError(f"{target} would be part of the backup. Name a file outside of {folder}.")
    if target.is_dir():
        raise UsageError(f"{target} is a folder. Name a file for the backup.")
    if not target.parent.is_dir():
        raise UsageError(f"There is no folder {target.parent}. Create it, or name another file.")
    if target.exists() and not replace:
        raise UsageError(f"{target} exists already. Name another file, or replace it with --force.")


@contextmanager
def _make_staging_folder(folder: Path, prefix: str) -> Generator[Path, None, None]:
    """Yield a private temporary folder, and delete it afterwards. Delete what killed commands have left, too."""
    _remove_leftovers(folder, prefix)
    try:
        temporary = Path(tempfile.mkdtemp(dir=folder, prefix=prefix))
        lock = os.open(temporary, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
        (temporary / "parts").mkdir(mode=0o700)
    except OSError as error:
        raise UsageError(f"Nothing can be written to {folder}: {error.strerror}. Check its permissions.") from None
    try:
        yield temporary
    except OSError as error:
        raise UsageError(
            f"{error.filename or folder}: {error.strerror or error}. Nothing was changed; fix that and try again."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        os.close(lock)


def _remove_leftovers(folder: Path, prefix: str) -> None:
    """Delete the temporary folders of this user that no process has locked: their commands were killed."""
    with suppress(OSError):
        for found in folder.glob(f"{glob.escape(prefix)}*"):
            with suppress(OSError):
                lock = os.open(found, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    is_ours = os.fstat(lock).st_uid == os.geteuid()
                    is_old = time.time() - os.fstat(lock).st_mtime > STARTING_SECONDS or (found / "parts").is_dir()
                    if is_ours and is_old:
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        shutil.rmtree(found, ignore_errors=True)
                finally:
                    os.close(lock)


def _copy_files(home: Path, parts: Path) -> Iterator[str]:
    """Copy the settings, the agents and the skills with their approvals. Yield the names of what was skipped."""
    for file in _find_files(home):
        name = file.relative_to(home).as_posix()
        if file.is_symlink() or not file.is_file() or not is_known_place(name):
            yield name
            continue
        copied = parts / name
        copied.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copy(file, copied)


def _find_files(home: Path) -> Iterator[Path]:
    if os.path.lexists(home / CONFIG):
        yield home / CONFIG
    for folder in FOLDERS:
        for path, folders, files in os.walk(home / folder):
            links = [name for name in folders if (Path(path) / name).is_symlink()]
            yield from (Path(path) / name for name in sorted([*files, *links]))


def _copy_vault(home: Home, parts: Path) -> tuple[int | None, str | None]:
    """Copy the vault as it is, encrypted. Return its format and the location of its key."""
    if not home.vault.exists():
        return None, None
    copy_database(str(home.vault), str(parts / VAULT))
    _, version = check_integrity(str(parts / VAULT))
    with closing(VaultStore(home.path, os.environ)) as store:
        return version, store.key_place()


# ── Restoring ──


class RestoreReport(Struct, frozen=True):
    """A restored backup."""

    home: str
    database: str
    manifest: BackupManifest
    moved_to: tuple[str, ...]
    """The folders with what was there before."""


def restore(home: Home, source: Path, replace: bool) -> RestoreReport:
    """Restore a backup into an empty home or, with `replace`, into any home. What is there is moved aside."""
    source, database = source.expanduser().absolute(), database_path(home)
    check_archive(source)
    home.ensure()
    with lock_database(home, "Nothing was changed."), _make_staging_folder(home.path, RESTORE_PREFIX) as folder:
        parts = folder / "parts"
        manifest = unpack(source, parts)
        _check_parts(manifest, parts, source)
        existing = _find_existing(home.path, database)
        if existing and not replace:
            names = ", ".join(path.name for path in existing)
            raise UsageError(
                f"{home.path} is not empty ({names}). Restore into another folder (TREADLE_HOME), or add --force: "
                "then what is there is moved aside first. Nothing was changed."
            )
        aside = _choose_backup_folders(home.path, database)
        with ReversibleMoves() as moves:
            for path in existing:
                moves.move(path, aside[path.parent] / path.name)
            for name in (CONFIG, *FOLDERS, VAULT):
                if (parts / name).exists():
                    moves.move(parts / name, home.path / name)
            if (parts / DATABASE).exists():
                moves.move(parts / DATABASE, database)
            else:
                forget_database(home)
    moved = dict.fromkeys(str(aside[path.parent]) for path in existing)
    return RestoreReport(str(home.path), str(database), manifest, tuple(moved))


def _check_parts(manifest: BackupManifest, parts: Path, source: Path) -> None:
    database, vault = parts / DATABASE, parts / VAULT
    check_database_facts(manifest, check_database(str(database)) if database.exists() else None, source)
    if not vault.exists():
        return
    application, version = check_integrity(str(vault))
    if application != VAULT_ID:
        raise UsageError(f"{source} is not a Treadle backup: its vault is invalid. Nothing was changed.")
    if version > VAULT_FORMAT:
        raise StoreNewer(
            f"The vault in {source} was written by a newer Treadle (format {version}; this one knows "
            f"{VAULT_FORMAT}). Install that version, then try again. Nothing was changed."
        )


def _find_existing(home: Path, database: Path) -> list[Path]:
    """Return what a restored home would replace."""
    database_files = [Path(f"{path}{suffix}") for path in (database, home / VAULT) for suffix in DATABASE_SUFFIXES]
    folders = [home / name for name in FOLDERS]
    found = [path for path in (home / CONFIG, *database_files) if os.path.lexists(path)]
    return [*found, *(path for path in folders if path.is_symlink() or (path.is_dir() and any(path.iterdir())))]


def _choose_backup_folders(home: Path, database: Path) -> dict[Path, Path]:
    """Return where to move what is in each folder: to a name that is not used yet."""
    stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    aside, attempt = _make_backup_folders(home, database, stamp), 1
    while any(map(os.path.lexists, aside.values())):
        attempt += 1
        aside = _make_backup_folders(home, database, f"{stamp}-{attempt}")
    return aside


def _make_backup_folders(home: Path, database: Path, stamp: str) -> dict[Path, Path]:
    return {database.parent: Path(f"{database}.replaced-{stamp}"), home: home / f"replaced-{stamp}"}
