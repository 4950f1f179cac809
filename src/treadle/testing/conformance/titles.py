"""Checks for implementers of `ports.sessions.SessionCatalog`: the titles of sessions."""

from typing import Final

from treadle.domain.agents import AgentSpec
from treadle.domain.events import RunForked, RunQueued, UserMessage
from treadle.domain.ids import RunId, SessionId
from treadle.domain.messages import Image, user
from treadle.testing.conformance.store_harness import Desk, KeptCheck, KeptHarness, one_desk, two_desks

SESSION = SessionId("ses_1")


async def _say(desk: Desk, text: str, session: str = SESSION) -> RunId:
    """Submit a run with a message and an image that is longer than what a title is read from."""
    message = user(text, Image("image/png", "A" * 5000))
    queued = RunQueued(AgentSpec("conformance", "none"))
    return await desk.store.submit(desk.origin(session), (desk.draft(queued), desk.draft(UserMessage(message))))


async def _fork(desk: Desk, run_id: RunId, session: str) -> None:
    queued, forked = RunQueued(AgentSpec("conformance", "none")), RunForked(run_id, 1, "the old question")
    await desk.store.submit(desk.origin(session), (desk.draft(queued), desk.draft(forked)))


async def _title(desk: Desk, session: str = SESSION) -> str:
    found = await desk.kept.sessions.find(SessionId(session))
    assert found is not None
    [listed] = [each for each in await desk.kept.sessions.newest() if each.session_id == session]
    assert listed.title == found.title
    return found.title


async def a_session_has_the_beginning_of_its_first_message_as_title(harness: KeptHarness) -> None:
    """One line of at most 80 printable characters, whatever the message is. Later messages do not change it."""
    async with one_desk(harness) as desk:
        await _say(desk, 'Say "hi",\n\n\tthen\x1b[31m \\ and 🦭 \u2028 stop')
        await _say(desk, "Something else.")
        assert await _title(desk) == 'Say "hi", then [31m \\ and 🦭 stop'
        await _say(desk, "é" * 3000, "ses_long")
        assert await _title(desk, "ses_long") == "é" * 79 + "…"
        await _say(desk, "\x1b", "ses_empty")
        assert await _title(desk, "ses_empty") == ""


async def a_session_can_be_renamed(harness: KeptHarness) -> None:
    """Every process sees the new title. A session that does not exist is not made by it."""
    async with two_desks(harness) as (desk, other):
        await _say(desk, "hello")
        await _say(desk, "hello again")
        await other.kept.sessions.rename(SESSION, "Plans — für Ada")
        assert await _title(desk) == await _title(other) == "Plans — für Ada"
        await desk.kept.sessions.rename(SessionId("ses_none"), "Nothing")
        assert await desk.kept.sessions.find(SessionId("ses_none")) is None


async def a_fork_has_the_title_of_the_session_that_it_comes_from(harness: KeptHarness) -> None:
    """A title that was given is copied. Without one, the fork has the message that it continues from."""
    async with one_desk(harness) as desk:
        await _say(desk, "hello")
        later = await _say(desk, "hello again")
        await _fork(desk, later, "ses_before")
        assert await _title(desk, "ses_before") == "the old question"
        await desk.kept.sessions.rename(SESSION, "Plans")
        await _fork(desk, later, "ses_fork")
        assert (await _title(desk, "ses_fork"), await _title(desk, "ses_before")) == ("Plans", "the old question")
        await desk.kept.sessions.rename(SessionId("ses_fork"), "Other plans")
        assert await _title(desk) == "Plans"


CHECKS: Final[tuple[KeptCheck, ...]] = (
    a_session_has_the_beginning_of_its_first_message_as_title,
    a_session_can_be_renamed,
    a_fork_has_the_title_of_the_session_that_it_comes_from,
)
