"""Batches of appends in one round trip. An append that cannot be batched is executed separately."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tests.stores.postgres.harness import opened
from tests.stores.postgres.servers import tell
from treadle.domain.errors import Fenced, UnknownRun
from treadle.domain.events import MessageSteered, UserMessage
from treadle.domain.messages import user
from treadle.ports.journal import Advanced, Claim
from treadle.stores.postgres.writer import PostgresWriter
from treadle.testing.conformance.store import OPENING, Recorder, StoreProcess, make_step
from treadle.testing.time import CountingIds, FakeClock


@asynccontextmanager
async def process_on(url: str) -> AsyncGenerator[tuple[StoreProcess, PostgresWriter], None]:
    clock, told = FakeClock(), Recorder()
    async with opened(url, told, clock) as (journal, _, writer):
        yield StoreProcess(journal, told, clock, CountingIds(), "one"), writer


def batches(writer: PostgresWriter) -> int:
    return writer._number  # pyright: ignore[reportPrivateUsage] -- how often it has asked the server


async def test_a_refused_append_does_not_affect_others_in_its_batch(url: str) -> None:
    async with process_on(url) as (process, writer):
        fine, late, waiting, fenced, gone = claims = [await process.claimed() for _ in range(5)]
        steered = process.draft(MessageSteered(user("stop"), "steer"))
        await process.store.deliver(late.origin.run_id, steered, "key")
        for claim, changed in (
            (waiting, "status = 'waiting'"),
            (fenced, "epoch = 7"),
            (gone, "run_id = 'run_other', id = DEFAULT"),
        ):
            run_id = claim.origin.run_id
            await tell(url, f"UPDATE treadle.runs SET {changed} WHERE run_id = '{run_id}'")  # noqa: S608 -- all ours
        before = batches(writer)
        found = await asyncio.gather(
            *(
                process.advance(claim, 2, [make_step(1)], [make_step(2), make_step(3)])
                for claim in reversed(claims)
            ),
            return_exceptions=True,
        )
        assert batches(writer) == before + 1
        assert isinstance(found[0], UnknownRun)
        assert isinstance(found[1], Fenced)
        assert "epoch 7, not 1" in str(found[1])
        assert found[2] == found[4] == Advanced(True, (), 5)
        late_one = found[3]
        assert isinstance(late_one, Advanced)
        assert (late_one.accepted, late_one.sequence) == (False, 4)
        assert [event.type for event in late_one.delivered] == ["message_steered"]
        steps = ["step_start"] * 3
        assert await process.types(fine.origin.run_id) == [*OPENING, *steps]
        assert await process.types(waiting.origin.run_id) == [*OPENING, *steps]
        assert await process.types(late.origin.run_id) == [*OPENING, "message_steered", "step_start"]
        assert await process.types(fenced.origin.run_id) == OPENING
        assert (await process.store.record(waiting.origin.run_id)).status == "running"


async def test_two_advances_of_one_run_are_applied_in_order(url: str) -> None:
    async with process_on(url) as (process, writer):
        claim, other = await process.claimed(), await process.claimed()
        before = batches(writer)

        async def advance(of: Claim, seen: int) -> Advanced:
            return await process.advance(of, seen, (), [make_step(seen)])

        found = await asyncio.gather(advance(claim, 2), advance(other, 2), advance(claim, 3), advance(claim, 9))
        assert batches(writer) == before + 1
        assert [each.sequence for each in found] == [3, 3, 4, 5]
        assert all(each.accepted for each in found)
        assert len(await process.types(claim.origin.run_id)) == 5


async def test_a_claim_returns_all_stored_events_of_the_run(url: str) -> None:
    """What it begins with comes with the answer; what is long, or told to it by the very same batch, is read."""

    async with process_on(url) as (process, writer):
        texts = ("short, with a NUL: \x00, and déjà vu", "long " * 2000)
        for text in texts:
            opening = (process.opening()[0], process.draft(UserMessage(user(text))))
            run_id = await process.store.submit(process.origin(), opening)
            claim = await process.claim(run_id)
            assert [event.raw for event in claim.events] == [made.raw for made in opening]
            assert [event.timestamp for event in claim.events] == [made.timestamp for made in opening]
            assert list(claim.events) == list(await process.store.read(run_id))
        run_id, before = await process.submit(), batches(writer)
        steered = process.draft(MessageSteered(user("stop"), "steer"))
        _, claim = await asyncio.gather(process.store.deliver(run_id, steered, "key"), process.claim(run_id))
        assert batches(writer) == before + 1
        assert [event.type for event in claim.events] == [*OPENING, "message_steered"]
