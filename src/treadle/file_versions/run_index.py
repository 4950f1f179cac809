"""What is recorded of each run at the top of a tree: a file of lines in the home."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from treadle.domain.file_versions import RecordedChange, RecordingGap
from treadle.domain.ids import RunId
from treadle.file_versions.line_file import append_lines, decode_lines

_SUFFIX = ".jsonl"
_DECODER = msgspec.json.Decoder(RecordedChange | RecordingGap)


class RunIndex:
    """Its methods block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, root_id: RunId, records: Iterable[RecordedChange | RecordingGap]) -> None:
        """Append records. They are durable when this returns."""
        append_lines(self._place(root_id), records, durable=True)

    def read(self, root_id: RunId) -> list[RecordedChange | RecordingGap]:
        try:
            data = self._place(root_id).read_bytes()
        except OSError:
            return []
        return list(decode_lines(data, _DECODER))

    def list_runs(self) -> list[RunId]:
        """Return the runs that something is recorded of."""
        try:
            return [RunId(path.stem) for path in self._folder.iterdir() if path.suffix == _SUFFIX]
        except OSError:
            return []

    def delete(self, root_id: RunId) -> None:
        self._place(root_id).unlink(missing_ok=True)

    def _place(self, root_id: RunId) -> Path:
        name = str(root_id)
        if not name.replace("_", "").replace("-", "").isalnum():
            raise ValueError(f"not the id of a run: {name}")
        return self._folder / f"{name}{_SUFFIX}"
