"""Checks for implementers of `ports.sessions.SessionCatalog`: the titles and models of sessions, and the summaries
of runs."""

from typing import Final

from msgspec.structs import replace

from treadle.domain.agents import AgentSpec
from treadle.domain.events import (
    LlmRequest,
    LlmResponse,
    ModelResolved,
    RunEnd,
    RunForked,
    RunQueued,
    UserMessage,
)
from treadle.domain.ids import RunId, SessionId
from treadle.domain.messages import Image, Text, user
from treadle.domain.runs import Metrics, RunFacts, Usage
from treadle.domain.users import LOCAL_USER
from treadle.ports.journal import Release, RunFilter, RunOrder, RunSums
from treadle.testing.conformance.store_harness import (
    FullStoreCheck,
    FullStoreHarness,
    FullStoreProcess,
    open_full_store,
    open_full_store_twice,
)

SESSION = SessionId("ses_1")


async def _submit_message(desk: FullStoreProcess, text: str, session: str = SESSION) -> RunId:
    """Submit a run with a message and an image that is longer than the part from which a title is read."""
    message = user(text, Image("image/png", "A" * 5000))
    queued = RunQueued(AgentSpec("conformance", "none"))
    return await desk.store.submit(desk.origin(session), (desk.draft(queued), desk.draft(UserMessage(message))))


async def _fork(desk: FullStoreProcess, run_id: RunId, session: str) -> None:
    queued, forked = RunQueued(AgentSpec("conformance", "none")), RunForked(run_id, 1, "the old question")
    await desk.store.submit(desk.origin(session), (desk.draft(queued), desk.draft(forked)))


async def _title(desk: FullStoreProcess, session: str = SESSION) -> str:
    found = await desk.kept.sessions.find(SessionId(session))
    assert found is not None
    [listed] = [each for each in await desk.kept.sessions.newest() if each.session_id == session]
    assert listed.title == found.title
    return found.title


async def a_title_is_the_start_of_the_first_message(harness: FullStoreHarness) -> None:
    """One line of at most 80 printable characters, whatever the message is. Later messages do not change it."""
    async with open_full_store(harness) as desk:
        await _submit_message(desk, 'Say "hi",\n\n\tthen\x1b[31m \\ and 🦭 \u2028 stop')
        await _submit_message(desk, "Something else.")
        assert await _title(desk) == 'Say "hi", then [31m \\ and 🦭 stop'
        await _submit_message(desk, "é" * 3000, "ses_long")
        assert await _title(desk, "ses_long") == "é" * 79 + "…"
        await _submit_message(desk, "\x1b", "ses_empty")
        assert await _title(desk, "ses_empty") == ""


async def a_session_can_be_renamed(harness: FullStoreHarness) -> None:
    """Every process sees the new title. Renaming does not create a session."""
    async with open_full_store_twice(harness) as (desk, other):
        await _submit_message(desk, "hello")
        await _submit_message(desk, "hello again")
        await other.kept.sessions.rename(SESSION, "Plans — für Ada")
        assert await _title(desk) == await _title(other) == "Plans — für Ada"
        await desk.kept.sessions.rename(SessionId("ses_none"), "Nothing")
        assert await desk.kept.sessions.find(SessionId("ses_none")) is None


async def a_session_has_a_model(harness: FullStoreHarness) -> None:
    """Every process sees the choice, a fork keeps it, and null takes it back. It does not create a session."""
    async with open_full_store_twice(harness) as (desk, other):
        await _submit_message(desk, "hello")
        later = await _submit_message(desk, "hello again")
        await other.kept.sessions.set_model(SESSION, "openai/größe")
        await _fork(desk, later, "ses_fork")
        await other.kept.sessions.set_model(SESSION, None)
        for session, model in ((SESSION, None), (SessionId("ses_fork"), "openai/größe")):
            found, basics = await desk.kept.sessions.find(session), await desk.kept.sessions.basics(session)
            assert found is not None
            assert basics is not None
            assert (found.model, basics.model, basics.agent) == (model, model, found.agent or "")
        await desk.kept.sessions.set_model(SessionId("ses_none"), "openai/x")
        assert await desk.kept.sessions.basics(SessionId("ses_none")) is None


async def a_session_has_a_mode(harness: FullStoreHarness) -> None:
    """It is that of its first run until another one is chosen, which every process sees."""
    async with open_full_store_twice(harness) as (desk, other):
        agent = AgentSpec("conformance", "none")
        await desk.store.submit(desk.origin(SESSION), (desk.draft(RunQueued(agent, mode="plan")),))
        await desk.store.submit(desk.origin(SESSION), (desk.draft(RunQueued(agent, mode="ask")),))
        for mode in ("plan", "accept_edits", None):
            if mode != "plan":
                await other.kept.sessions.set_mode(SESSION, mode)
            found, basics = await desk.kept.sessions.find(SESSION), await desk.kept.sessions.basics(SESSION)
            assert found is not None
            assert basics is not None
            assert (found.mode, basics.mode) == (mode, mode)
        await desk.kept.sessions.set_mode(SessionId("ses_none"), "auto")
        assert await desk.kept.sessions.basics(SessionId("ses_none")) is None


async def a_fork_keeps_the_title_of_its_source(harness: FullStoreHarness) -> None:
    """An explicit title is copied. Without one, the title is the message that the fork continues from."""
    async with open_full_store(harness) as desk:
        await _submit_message(desk, "hello")
        later = await _submit_message(desk, "hello again")
        await _fork(desk, later, "ses_before")
        assert await _title(desk, "ses_before") == "the old question"
        await desk.kept.sessions.rename(SESSION, "Plans")
        await _fork(desk, later, "ses_fork")
        assert (await _title(desk, "ses_fork"), await _title(desk, "ses_before")) == ("Plans", "the old question")
        await desk.kept.sessions.rename(SessionId("ses_fork"), "Other plans")
        assert await _title(desk) == "Plans"


async def sessions_are_listed_without_those_of_sub_agents(harness: FullStoreHarness) -> None:
    """A session that a parent run began is listed only on request, for every owner and in pages too."""
    async with open_full_store(harness) as desk:
        parent = await _submit_message(desk, "hello")
        queued = RunQueued(AgentSpec("conformance", "none"))
        await desk.store.submit(desk.origin("ses_child", parent), (desk.draft(queued),))
        await _submit_message(desk, "later", "ses_2")
        catalog = desk.kept.sessions
        for owner in (None, LOCAL_USER):
            everything = [each.session_id for each in await catalog.newest(owner=owner)]
            assert everything == ["ses_2", "ses_child", SESSION]
            shown = [each.session_id for each in await catalog.newest(1, owner=owner, children=False)]
            rest = await catalog.newest(1, SessionId("ses_2"), owner=owner, children=False)
            assert [*shown, *(each.session_id for each in rest)] == ["ses_2", SESSION]
        assert await catalog.find(SessionId("ses_child")) is not None


async def runs_are_found_by_their_message_and_cost(harness: FullStoreHarness) -> None:
    """The beginning of the message is found in any case. A cost is known once the run has ended."""
    async with open_full_store(harness) as desk:
        first = await _submit_message(desk, "Count the\nMODULES please")
        await _submit_message(desk, "Write a poem", "ses_2")
        found = await desk.store.find(RunFilter(text="the modules"))
        assert [(record.origin.run_id, record.message, record.cost) for record in found] == [
            (first, "Count the MODULES please", None)
        ]
        for found_by in (RunFilter(id_suffix=first[-6:]), RunFilter(id_suffix=first[-6:], owners=(LOCAL_USER,))):
            assert [record.origin.run_id for record in await desk.store.find(found_by)] == [first]
        assert await desk.store.find(RunFilter(text="100%")) == []
        assert await desk.store.find(RunFilter(min_cost=0.0)) == []
        claim = await desk.claim(first)
        await desk.end(claim, 2, "done")
        [ended] = await desk.store.find(RunFilter(text="count", min_cost=0.0))
        assert (ended.cost, ended.tokens, ended.steps) == (0.0, 0, 0)
        assert [record.message for record in await desk.store.find(RunFilter(until=0.0))] == []
        assert len(await desk.store.find(RunFilter(since=0.0))) == 2


async def runs_are_sorted_and_summed_up(harness: FullStoreHarness) -> None:
    """Sums of a run are listed while it is in progress. Lists are sorted by them, in pages, within a filter."""
    async with open_full_store(harness) as desk:
        runs = [await _submit_message(desk, f"number {number}", f"ses_{number}") for number in range(4)]
        for number, run_id in enumerate(runs[:3]):
            claim = await desk.claim(run_id)
            reply = LlmResponse(
                step=number + 1,
                attempt=1,
                parts=(Text("hello"),),
                stop="end_turn",
                usage=Usage(10, 2),
                duration_ms=5,
                cost=float(number or 9),
            )
            said = (ModelResolved("acme", "m", "chat", "chosen"), LlmRequest(number + 1, 1, "acme", "m", 1), reply)
            if number < 2:
                metrics = Metrics(steps=number + 1, cost=float(number or 9), input_tokens=12, actions=3)
                end = RunEnd("failed", "stuck", metrics, reason="It went\nround.", score=number / 2)
                await desk.advance(claim, 2, intents=[*said, end], release=Release())
            else:
                await desk.advance(claim, 2, intents=said, release=Release("interrupted"))
        failed, _, waiting, fresh = [await desk.store.record(run_id) for run_id in runs]
        assert failed.facts == RunFacts(
            model="acme/m", credits=0.0, tool_calls=3, score=0.0, reason="It went round."
        )
        assert (waiting.cost, waiting.tokens, waiting.steps, waiting.facts.model) == (2.0, 12, 3, "acme/m")
        assert (fresh.cost, fresh.facts) == (None, RunFacts())
        orders: tuple[tuple[RunOrder, list[int]], ...] = (
            ("cost", [0, 2, 1, 3]),
            ("steps", [2, 1, 0, 3]),
            ("score", [1, 0, 3, 2]),
        )
        for order, wanted in orders:
            for ascending in (False, True):
                every = RunFilter(order=order, ascending=ascending)
                found = [run.origin.run_id for run in await desk.store.find(every)]
                assert found == [runs[number] for number in (reversed(wanted) if ascending else wanted)], order
                rest = await desk.store.find(replace(every, before=found[1], owners=(LOCAL_USER,)), 1)
                assert [run.origin.run_id for run in rest] == found[2:3], order
        [dearest] = await desk.store.find(RunFilter(order="cost", text="number", status="waiting"))
        assert dearest.origin.run_id == runs[2]
        assert await desk.store.sum() == RunSums(4, 2, 12.0, 36)
        assert await desk.store.sum(RunFilter(status="failed", min_cost=2.0)) == RunSums(1, 1, 9.0, 12)
        assert await desk.store.sum(RunFilter(owners=("alice",))) == RunSums()


CHECKS: Final[tuple[FullStoreCheck, ...]] = (
    runs_are_found_by_their_message_and_cost,
    runs_are_sorted_and_summed_up,
    a_title_is_the_start_of_the_first_message,
    a_session_can_be_renamed,
    a_session_has_a_model,
    a_session_has_a_mode,
    a_fork_keeps_the_title_of_its_source,
    sessions_are_listed_without_those_of_sub_agents,
)
