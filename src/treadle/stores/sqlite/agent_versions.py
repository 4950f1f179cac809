"""Versions of agents and shared skills on SQLite."""

from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.domain.agent_versions import AgentLabel, AgentVersion
from treadle.ports.agent_versions import SharedSkill
from treadle.stores.sqlite.connection import SQL, Value
from treadle.stores.sqlite.transaction import Transaction
from treadle.stores.sqlite.writer import SqliteWriter

LAST = 2**62


class SqliteAgentVersions:
    """Implements `ports.agent_versions.AgentVersions` and `SharedSkills`."""

    def __init__(self, writer: SqliteWriter) -> None:
        self._writer = writer

    async def append(self, version: AgentVersion) -> bool:
        return await self._write("append_agent_version", msgspec.structs.astuple(version))

    async def find(self, agent: str, number: int) -> AgentVersion | None:
        found = await self._read("agent_version", (agent, number))
        return AgentVersion(*found[0]) if found else None

    async def latest(self, agent: str) -> AgentVersion | None:
        found = await self._read("latest_agent_version", (agent,))
        return AgentVersion(*found[0]) if found else None

    async def latest_of_all(self) -> Sequence[AgentVersion]:
        return [AgentVersion(*row) for row in await self._read("latest_agent_versions", ())]

    async def history(self, agent: str, before: int | None, limit: int) -> Sequence[AgentVersion]:
        found = await self._read("agent_versions", (agent, LAST if before is None else before, limit))
        return [AgentVersion(*row) for row in found]

    async def labels(self, agent: str) -> Sequence[AgentLabel]:
        return [AgentLabel(*row) for row in await self._read("agent_labels", (agent,))]

    async def set_label(self, label: AgentLabel) -> None:
        await self._write("set_agent_label", msgspec.structs.astuple(label))

    async def remove_label(self, agent: str, label: str) -> bool:
        return await self._write("remove_agent_label", (agent, label))

    async def skills(self) -> Sequence[SharedSkill]:
        return [SharedSkill(*row) for row in await self._read("shared_skills", ())]

    async def put_skill(self, skill: SharedSkill) -> None:
        await self._write("put_shared_skill", msgspec.structs.astuple(skill))

    async def _read(self, statement: str, values: Sequence[Value]) -> list[tuple[Any, ...]]:
        return await self._writer.read(lambda db: db.execute(SQL[statement], values).fetchall())

    async def _write(self, statement: str, values: Sequence[Value]) -> bool:
        """Write a statement. Return whether it returned a row."""

        def work(transaction: Transaction) -> bool:
            return transaction.db.execute(SQL[statement], values).fetchone() is not None

        return await self._writer.write(work, _do_nothing, patient=False)


def _do_nothing(_: object) -> None:
    """Do nothing after the commit."""
