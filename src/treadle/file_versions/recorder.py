"""Records what a tool that names its files changes: their content is stored before it is replaced."""

import logging
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from treadle.domain.file_versions import FOLDER_MARK, MAX_STORED_BYTES, ChangingCall, FileVersion, RecordedChange
from treadle.domain.private_paths import find_private_place
from treadle.file_versions.contents import PRIVATE, TOO_LARGE, ContentStore, describe_data, describe_open_file
from treadle.file_versions.folder_record import FolderRecord
from treadle.file_versions.run_index import RunIndex

_USUAL_UMASK = 0o022
logger = logging.getLogger(__name__)


class CallRecorder:
    """Implements `ports.tool.FileRecorder`."""

    def __init__(
        self,
        call: ChangingCall,
        contents: ContentStore,
        index: RunIndex,
        folder: FolderRecord,
        hold: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._call = call
        self._contents = contents
        self._index = index
        self._folder = folder
        self._hold = hold

    def record_write(self, path: str, descriptor: int | None, data: bytes | None, mode: int) -> None:
        full = os.path.join(self._call.folder, path)
        try:
            with self._hold():
                before = None
                if descriptor is not None:
                    before = describe_open_file(descriptor, full, self._contents, durable=True)
                self._record(path, before, None if data is None else _describe_new(data, mode, full))
        except OSError as error:  # the tool may change the file all the same
            logger.warning("a change of %s was not recorded, so it cannot be undone: %s", full, error)

    def record_folder(self, path: str) -> None:
        try:
            with self._hold():
                self._record(path + FOLDER_MARK, None, FileVersion("folder", mode=0o777 & ~_read_umask()))
        except OSError as error:
            logger.warning("that %s was created was not recorded: %s", path, error)

    def _record(self, path: str, before: FileVersion | None, after: FileVersion | None) -> None:
        call = self._call
        change = RecordedChange(
            run_id=call.run_id,
            call_id=call.call_id,
            at=call.at,
            folder=call.folder,
            path=path,
            before=before,
            after=after,
        )
        self._index.add(call.root_id, [change])
        self._folder.announce(path, after)


def _read_umask() -> int:
    """Return the permissions that new folders do not get. `os.umask` would change them for other threads."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return _USUAL_UMASK
    found = next((line for line in status.splitlines() if line.startswith("Umask:")), None)
    return _USUAL_UMASK if found is None else int(found.split()[1], 8)


def _describe_new(data: bytes, mode: int, path: str) -> FileVersion:
    version = describe_data(data, mode)
    if len(data) > MAX_STORED_BYTES or find_private_place(path) is not None:
        reason = TOO_LARGE if len(data) > MAX_STORED_BYTES else PRIVATE
        return FileVersion("file", version.digest, version.size, version.mode, reason)
    return version
