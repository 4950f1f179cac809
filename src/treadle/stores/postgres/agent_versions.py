"""Versions of agents and shared skills on PostgreSQL."""

from collections.abc import Sequence

import msgspec

from treadle.domain.agent_versions import AgentLabel, AgentVersion
from treadle.ports.agent_versions import SharedSkill
from treadle.stores.postgres.connection import unescape_nul
from treadle.stores.postgres.database import PostgresDatabase
from treadle.stores.postgres.driver import PostgresRow

LAST = 2**31 - 1


class PostgresAgentVersions:
    """Implements `ports.agent_versions.AgentVersions` and `SharedSkills`. A change notifies all processes."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def append(self, version: AgentVersion) -> bool:
        values = msgspec.structs.astuple(version)
        return await self._database.row("append_agent_version", *values) is not None

    async def find(self, agent: str, number: int) -> AgentVersion | None:
        return _to_version(await self._database.row("agent_version", agent, number))

    async def latest(self, agent: str) -> AgentVersion | None:
        return _to_version(await self._database.row("latest_agent_version", agent))

    async def latest_of_all(self) -> Sequence[AgentVersion]:
        return [_read_version(row) for row in await self._database.rows("latest_agent_versions")]

    async def history(self, agent: str, before: int | None, limit: int) -> Sequence[AgentVersion]:
        rows = await self._database.rows("agent_versions", agent, LAST if before is None else before, limit)
        return [_read_version(row) for row in rows]

    async def labels(self, agent: str) -> Sequence[AgentLabel]:
        return [AgentLabel(*row) for row in await self._database.rows("agent_labels", agent)]

    async def set_label(self, label: AgentLabel) -> None:
        await self._database.rows("set_agent_label", *msgspec.structs.astuple(label))

    async def remove_label(self, agent: str, label: str) -> bool:
        return await self._database.row("remove_agent_label", agent, label) is not None

    async def skills(self) -> Sequence[SharedSkill]:
        return [SharedSkill(*row) for row in await self._database.rows("shared_skills")]

    async def put_skill(self, skill: SharedSkill) -> None:
        await self._database.rows("put_shared_skill", *msgspec.structs.astuple(skill))


def _to_version(row: PostgresRow | None) -> AgentVersion | None:
    return None if row is None else _read_version(row)


def _read_version(row: PostgresRow) -> AgentVersion:
    agent, number, text, *others = row
    return AgentVersion(agent, number, unescape_nul(text), *others)
