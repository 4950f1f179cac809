"""Chat channels on SQLite."""

from collections.abc import Sequence

from treadle.stores.channels import ChannelTables, Rows, Statement
from treadle.stores.sqlite.connection import SQL
from treadle.stores.sqlite.transaction import Transaction
from treadle.stores.sqlite.writer import SqliteWriter

READ_ONLY = frozenset(
    (
        "channel_codes",
        "channel_people",
        "channel_conversation",
        "channel_cursor",
        "channel_inbox",
        "channel_received",
        "channel_outbox",
        "channel_output",
        "channel_counts",
        "channel_states",
        "channel_latest_conversations",
        "channel_conversations_after",
    )
)
"""Statements that need no transaction of the writer when they are alone."""


class SqliteChannels(ChannelTables):
    def __init__(self, writer: SqliteWriter) -> None:
        self._writer = writer

    async def perform(self, *statements: Statement) -> Sequence[Rows]:
        if len(statements) == 1 and statements[0][0] in READ_ONLY:
            name, values = statements[0]
            return [await self._writer.read(lambda db: db.execute(SQL[name], values).fetchall())]

        def work(transaction: Transaction) -> Sequence[Rows]:
            return [transaction.db.execute(SQL[name], values).fetchall() for name, values in statements]

        return await self._writer.write(work, _do_nothing, patient=True)


def _do_nothing(_: object) -> None:
    """Do nothing after the commit."""
