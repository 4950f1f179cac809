"""Approved skills that all processes on a database share: this home follows the database, and the reverse."""

import logging
import shutil
from pathlib import Path

import msgspec

from treadle.config.live_config import compute_file_fingerprint
from treadle.domain.errors import TreadleError
from treadle.domain.users import LOCAL_USER
from treadle.ports.agent_versions import SharedSkill, SharedSkills
from treadle.ports.clock import Clock
from treadle.skills.approvals import HOME, ApprovedSkills
from treadle.skills.content import SkillFile
from treadle.skills.inventory import SkillInventory

logger = logging.getLogger(__name__)

REPLACED_SUFFIX = ".replaced"
"""A folder that the database replaces is kept under its name with a dot before and this after it."""
_decode = msgspec.msgpack.Decoder(tuple[SkillFile, ...]).decode


class SharedHomeSkills:
    """Keeps the approved skills of a home and those in the database the same. The latest approval wins."""

    def __init__(self, home: Path, store: SharedSkills, clock: Clock) -> None:
        self._inventory = SkillInventory(home)
        self._approved = ApprovedSkills(home)
        self._store = store
        self._clock = clock
        self._same: dict[str, str] | None = None
        """The hashes that both sides had at the last synchronization; None before the first one."""
        self._seen: object = None

    def has_changed(self) -> bool:
        return compute_file_fingerprint(self._approved.path) != self._seen

    async def synchronize(self) -> None:
        self._seen = compute_file_fingerprint(self._approved.path)
        local = {each.name: each.sha256 for each in self._approved.read() if each.origin == HOME}
        remote = {each.name: each for each in await self._store.skills()}
        same = {} if self._same is None else self._same
        for name in sorted({*local, *remote}):
            here, there = local.get(name, ""), remote.get(name)
            if there is not None and there.sha256 == here:
                continue
            was_changed_here = there is None or (self._same is not None and here != same.get(name, ""))
            try:
                if was_changed_here:
                    await self._store_skill(name, here)
                elif there is not None:
                    self._install(there)
            except TreadleError as error:
                logger.warning("the skill %s is not shared now: %s", name, error)
        self._same = {each.name: each.sha256 for each in self._approved.read() if each.origin == HOME}
        self._seen = compute_file_fingerprint(self._approved.path)

    async def _store_skill(self, name: str, sha256: str) -> None:
        files = b""
        if sha256:
            found, content = self._inventory.find(name)
            if content is None or content.sha256 != sha256 or found.state != "approved":
                return  # its files have changed since it was approved: it does not count
            files = msgspec.msgpack.encode(content.files)
        await self._store.put_skill(SharedSkill(name, sha256, files, self._clock.now(), LOCAL_USER))

    def _install(self, skill: SharedSkill) -> None:
        """Replace the folder of a skill with the shared content, and approve exactly that."""
        if not skill.sha256:
            self._approved.revoke(skill.name, HOME)
            return
        folder = self._approved.folder / skill.name
        kept = folder.with_name(f".{skill.name}{REPLACED_SUFFIX}")
        if folder.exists():
            shutil.rmtree(kept, ignore_errors=True)
            folder.rename(kept)
        self._inventory.write(skill.name, _decode(skill.files))
        found, content = self._inventory.find(skill.name)
        if content is None or content.sha256 != skill.sha256:
            logger.warning("the shared skill %s is damaged and is not approved here", skill.name)
            return
        self._inventory.approve(found, content)
