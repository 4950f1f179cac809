"""The state of the files that a call changes, at the time when the call was shown."""

from msgspec import Struct


class FileFingerprint(Struct, frozen=True, omit_defaults=True):
    """A file and what it contained. A call that changes the file runs only while it still contains that."""

    path: str
    """Relative to the workspace, without links."""
    state: str | None = None
    """A digest of its content, or, for private and large files, of its status. Null: there was no file."""
