"""What a process knows about itself and its home: version, self-check, workers and models."""

import os
import platform
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from treadle.config.database_url import is_postgres
from treadle.config.home import Home
from treadle.domain.ids import Instant
from treadle.domain.version import VERSION
from treadle.operations.schemas import make_view, moment
from treadle.operations.system_facts import Backups, DoctorFinding, ModelView, SystemInfo, WorkerView
from treadle.ports.overview import Overview

if TYPE_CHECKING:
    from treadle.models.registry import ModelRegistry


Examination = Callable[[Home, bool], Awaitable[Sequence[DoctorFinding]]]
"""The self-check of a home. The second argument says whether no provider is asked."""


class HomeTasks(NamedTuple):
    """Work on a whole home that an engine does when it is asked for."""

    examine: Examination
    back_up: Callable[[Home, Path], None]
    """Writes a backup of a home to a file, and verifies it. Blocks."""


class HomeSystem:
    """Implements `operations.system_facts.SystemFacts`."""

    def __init__(
        self,
        home: Home,
        database: str,
        overview: Overview,
        models: "ModelRegistry",
        tasks: HomeTasks,
        now: Instant,
    ) -> None:
        self._home = home
        self._database = database
        self._overview = overview
        self._models = models
        self._examine = tasks.examine
        self._back_up = tasks.back_up
        self._backups: Backups | None = None
        self._started_at = now

    @property
    def backups(self) -> Backups:
        if self._backups is None:
            from treadle.home.backup_folder import BackupFolder  # seldom used

            self._backups = BackupFolder(self._home, self._back_up)
        return self._backups

    def info(self) -> SystemInfo:
        store = "postgres" if is_postgres(self._database) else "sqlite"
        python = platform.python_version()
        return SystemInfo(
            version=VERSION,
            python=python,
            store=store,
            home=str(self._home.path),
            process_id=os.getpid(),
            started_at=moment(self._started_at),
        )

    async def examine(self, *, offline: bool) -> Sequence[DoctorFinding]:
        return await self._examine(self._home, offline)

    async def workers(self) -> Sequence[WorkerView]:
        found = [make_view(WorkerView, each) for each in await self._overview.workers()]
        if is_postgres(self._database):
            return found
        here = found or [WorkerView(f"{os.uname().nodename}:{os.getpid()}", 0, None)]
        return [replace(each, version=VERSION, connected_at=moment(self._started_at)) for each in here]

    async def models(self, *, probe: bool) -> Sequence[ModelView]:
        from treadle.home.model_list import list_models

        return await list_models(self._home, self._models, probe=probe)
