"""Protocol of what a process knows about itself, its home and its store, with the values that it returns."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, Protocol

from msgspec import Struct

from treadle.domain.ids import Instant
from treadle.ports.overview import WorkerFields

ProcessState = Literal["starting", "ready", "leaving"]


class ProcessView(Struct, frozen=True):
    """A process of the server."""

    number: int
    """From 1. A process and its replacement have the same number."""
    process_id: int
    started_at: datetime
    state: ProcessState
    """leaving: it accepts no connections and finishes what it has begun."""
    restarts: int
    """How often the process with this number has ended unexpectedly."""


class SystemInfo(Struct, frozen=True):
    """The server and the store that it works on."""

    version: str
    python: str
    store: Literal["sqlite", "postgres"]
    home: str
    process_id: int
    started_at: datetime
    processes: tuple[ProcessView, ...] = ()
    """All processes behind the port. Only an administrator sees them. Empty: it is one process."""


FindingState = Literal["ok", "set", "note", "wrong"]
FindingBasis = Literal["probed", "recorded", "setting"]


class DoctorFinding(Struct, frozen=True):
    """One finding of the self-check."""

    about: str
    state: FindingState
    """ok: it was tried and works, or was recorded to work. set: it is configured and was not tried. note: something
    optional is missing. wrong: something does not work."""
    found: str
    advice: str = ""
    basis: FindingBasis = "probed"
    """probed: it was tried or read just now. recorded: another process has stored it. setting: it is configured."""

    def __post_init__(self) -> None:
        if self.basis == "setting" and self.state == "ok":
            raise ValueError(f"{self.about}: a setting that was not tried is not `ok`")
        if self.basis == "probed" and self.state == "set":
            raise ValueError(f"{self.about}: what was probed is not only `set`")


class WorkerView(WorkerFields[datetime], frozen=True):
    """A worker that is connected or owns runs now."""


ModelKind = Literal["alias", "configured", "listed"]
"""listed: the provider offers it."""


class ModelView(Struct, frozen=True):
    """A model that agents can use, or an alias."""

    name: str
    """`provider/model`, or the alias."""
    kind: ModelKind
    resolved: str = ""
    """The `provider/model` that answers now; empty if none can."""
    context_window: int | None = None
    window_source: str = ""
    """Where the size of the window is known from. `assumed`: nothing is known about this model."""
    input_price: float | None = None
    """Dollars per million tokens; null if unknown."""
    output_price: float | None = None
    local: bool = False
    """It runs on this machine, at no cost."""
    is_default: bool = False
    problem: str = ""
    """Why it cannot be used."""


class BackupView(Struct, frozen=True):
    """A backup of the home, in the folder `backups` of the home. `treadle restore FILE` restores it."""

    name: str
    path: str
    """The file on the machine of the server."""
    made_at: datetime
    bytes: int


class Backups(Protocol):
    """The backups in the folder of a home."""

    async def make(self, now: Instant) -> BackupView: ...

    async def list(self) -> Sequence[BackupView]:
        """Return the backups, the newest first."""
        ...

    async def remove(self, name: str) -> None: ...


class SystemFacts(Protocol):
    """What a process knows about itself, its home and its store."""

    @property
    def backups(self) -> Backups: ...

    def info(self) -> SystemInfo: ...

    async def examine(self, *, offline: bool) -> Sequence[DoctorFinding]: ...

    async def workers(self) -> Sequence[WorkerView]: ...

    async def models(self, *, probe: bool) -> Sequence[ModelView]: ...
