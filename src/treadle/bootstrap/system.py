"""What a process knows about itself and its home: version, self-check, workers, models and skills."""

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.config.database_url import is_postgres
from treadle.config.home import Home
from treadle.domain.errors import UsageError
from treadle.domain.ids import Instant
from treadle.domain.version import VERSION
from treadle.operations.schemas import maybe, moment
from treadle.operations.skill_approvals import SkillDetail, SkillView
from treadle.operations.system_facts import DoctorFinding, ModelView, SystemInfo, WorkerView
from treadle.ports.overview import Overview

if TYPE_CHECKING:
    from treadle.models.registry import ModelRegistry
    from treadle.skills.inventory import SkillInventory


class HomeSystem:
    """Implements `operations.system_facts.SystemFacts`."""

    def __init__(
        self, home: Home, database: str, overview: Overview, models: "ModelRegistry", now: Instant
    ) -> None:
        self._home = home
        self._database = database
        self._overview = overview
        self._models = models
        self._started_at = now

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
        from treadle.doctor.examination import examine

        return await examine(self._home, offline=offline)

    async def workers(self) -> Sequence[WorkerView]:
        found = await self._overview.workers()
        return [WorkerView(each.worker, each.runs, maybe(each.lease_until)) for each in found]

    async def models(self, *, probe: bool) -> Sequence[ModelView]:
        from treadle.doctor.model_list import list_models

        return await list_models(self._home, self._models, probe=probe)


class HomeSkills:
    """Implements `operations.skill_approvals.SkillApprovals`."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def list(self) -> Sequence[SkillView]:
        from treadle.bootstrap.skill_views import make_skill_view

        found = self._inventory.survey(self._home).found
        return [make_skill_view(each) for each in found if each.origin != "workspace"]

    def show(self, name: str) -> SkillDetail:
        from treadle.bootstrap.skill_views import make_skill_detail

        return make_skill_detail(*self._inventory.find(name))

    def approve(self, name: str, sha256: str) -> SkillView:
        from treadle.bootstrap.skill_views import make_skill_view

        found, content = self._inventory.find(name)
        if content is None or found.state == "broken":
            raise UsageError(f"The skill `{name}` cannot be approved: {found.reason}. Fix it first.")
        if content.sha256 != sha256:
            raise UsageError(
                f"The skill `{name}` has changed since it was read: its content has the sha256 {content.sha256}. "
                "Nothing was approved. Read it again."
            )
        return make_skill_view(self._inventory.approve(found, content))

    def revoke(self, name: str) -> None:
        if not self._inventory.revoke(name):
            raise UsageError(f"The skill {name!a} is not approved. Nothing was changed.")

    @property
    def _inventory(self) -> "SkillInventory":
        from treadle.skills.inventory import SkillInventory

        return SkillInventory(self._home)
