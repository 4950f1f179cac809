"""Evaluations and feedback on PostgreSQL."""

from collections.abc import Sequence

import msgspec

from treadle.domain.evaluations import Evaluation
from treadle.domain.ids import Instant, RunId
from treadle.ports.evaluations import Feedback
from treadle.stores.postgres.connection import unescape_nul
from treadle.stores.postgres.database import PostgresDatabase
from treadle.stores.postgres.driver import PostgresRow

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Evaluation).decode
END_OF_TIME = 1e18


class PostgresEvaluations:
    """Implements `ports.evaluations.Evaluations`."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def put(self, evaluation: Evaluation) -> None:
        summary = msgspec.structs.replace(evaluation, results=())
        await self._write(
            "put_evaluation",
            evaluation.evaluation_id,
            evaluation.name,
            evaluation.ended_at,
            _encode(summary).decode(),
            _encode(evaluation),
        )

    async def find(self, evaluation_id: str) -> Evaluation | None:
        found = await self._read("evaluation", evaluation_id)
        return _decode(found[0][0]) if found else None

    async def latest(self, name: str) -> Evaluation | None:
        found = await self._read("latest_evaluation", name)
        return _decode(found[0][0]) if found else None

    async def recent(self, before: Instant | None, limit: int, name: str | None = None) -> Sequence[Evaluation]:
        rows = await self._read("evaluations", END_OF_TIME if before is None else before, limit, name)
        return [_decode(row[0]) for row in rows]

    async def put_feedback(self, feedback: Feedback) -> None:
        await self._write("put_feedback", *msgspec.structs.astuple(feedback))

    async def feedback_of_run(self, run_id: RunId) -> Sequence[Feedback]:
        return [_read_feedback(row) for row in await self._read("feedback_of_run", run_id)]

    async def feedback(
        self, before: Instant | None, most: float | None, least: float | None, limit: int
    ) -> Sequence[Feedback]:
        rows = await self._read("feedback", END_OF_TIME if before is None else before, most, least, limit)
        return [_read_feedback(row) for row in rows]

    async def _read(self, statement: str, *values: object) -> Sequence[PostgresRow]:
        return await self._database.rows(statement, *values)

    async def _write(self, statement: str, *values: object) -> None:
        await self._database.rows(statement, *values)


def _read_feedback(row: PostgresRow) -> Feedback:
    feedback_id, run_id, author, score, note, at = row
    return Feedback(
        feedback_id=feedback_id, run_id=run_id, author=author, score=score, note=unescape_nul(note), at=at
    )
