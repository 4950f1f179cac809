"""Checks for implementers of `ports.overview.Overview`: searches in what was said."""

from collections.abc import Sequence
from typing import Final

from treadle.domain.agents import AgentSpec
from treadle.domain.events import RunEnd, RunQueued, UserMessage
from treadle.domain.ids import RunId, SessionId
from treadle.domain.messages import user
from treadle.domain.runs import Metrics
from treadle.domain.said import read_said
from treadle.domain.users import UserId
from treadle.ports.journal import Release
from treadle.ports.overview import INDEXED_TEXTS, SearchQuery
from treadle.testing.conformance.store_harness import (
    FullStoreCheck,
    FullStoreHarness,
    FullStoreProcess,
    open_full_store,
    open_full_store_twice,
)

ADA, GRACE = UserId("ada"), UserId("grace")


async def _submit(desk: FullStoreProcess, text: str, owner: UserId = ADA, session: str = "") -> RunId:
    queued = RunQueued(AgentSpec("conformance", "none"), owner=owner)
    origin = desk.origin(session or f"ses_{owner}")
    return await desk.store.submit(origin, (desk.draft(queued), desk.draft(UserMessage(user(text)))))


async def _answer(desk: FullStoreProcess, run_id: RunId, text: str) -> None:
    claim = await desk.store.claim(run_id, "worker")
    end = RunEnd("completed", "completed", Metrics(), text)
    await desk.advance(claim, 2, intents=[end], release=Release(said=()))


async def _find(desk: FullStoreProcess, text: str, owner: UserId | None = None, limit: int = 50) -> list[str]:
    """Return what a search finds, page by page."""
    found, before = list[str](), None
    while True:
        page = await desk.kept.overview.search(SearchQuery(text, before, limit, None, owner))
        texts = [said[1] for each in page.events if (said := read_said(each.event.data)) is not None]
        found += [each for each in texts if text.lower() in each.lower()]
        if (before := page.next) is None:
            return found


async def _index_all(desk: FullStoreProcess) -> int:
    """Index everything. Return the number of transactions."""
    count = 1
    while await desk.kept.overview.index_texts():
        count += 1
    return count


async def what_was_said_is_found(harness: FullStoreHarness) -> None:
    """Messages and answers are found by a part of a word, in any case, the latest first: before they are in the
    index, with some of them in the index, and with all of them."""
    async with open_full_store(harness) as desk:
        assert await _find(desk, "parrot") == await _find(desk, "is") == []
        first = await _submit(desk, 'Where is the "Parrot"?')
        await _answer(desk, first, "The PARROT sleeps; 100% sure.")
        expected: Sequence[str] = ["The PARROT sleeps; 100% sure.", 'Where is the "Parrot"?']
        for is_late in (False, True):
            if is_late:
                await _index_all(desk)
            for text in ("parrot", "arro", '"Parrot"'):
                assert await _find(desk, text) == [each for each in expected if text.lower() in each.lower()]
                assert await _find(desk, text, limit=1) == await _find(desk, text)
            assert await _find(desk, "100%") == [expected[0]]
            assert await _find(desk, "is") == [expected[1]]
            assert await _find(desk, "parrots") == await _find(desk, "1000") == await _find(desk, "par%t") == []
        await _submit(desk, "Another parrot")
        assert await _find(desk, "parrot") == ["Another parrot", *expected]


async def letters_of_other_languages_are_found(harness: FullStoreHarness) -> None:
    """The index ignores the case of all letters. Emoji, words without spaces and long texts are found too."""
    texts = ("ÄPFEL und Öl", "明日は晴れるでしょう", "a seal 🦭🦭🦭 sings", "x" * 5000 + "needle" + "y" * 5000)
    async with open_full_store(harness) as desk:
        for text in texts:
            await _submit(desk, text)
        await _index_all(desk)
        for part, text in zip(("äpfel", "晴れる", "🦭🦭🦭", "xneedley"), texts, strict=True):
            assert await _find(desk, part) == [text]
        assert await _find(desk, texts[3]) == [texts[3]]


async def a_search_for_a_user_reads_only_their_texts(harness: FullStoreHarness) -> None:
    """Matches of other users are neither found nor counted."""
    async with open_full_store(harness) as desk:
        for number in range(20):
            await _submit(desk, f"heron {number}", GRACE, f"ses_{number}")
        await _submit(desk, "a heron", ADA)
        for _ in range(2):
            assert await _find(desk, "heron", ADA) == ["a heron"]
            assert len(await _find(desk, "heron", GRACE, limit=3)) == 20
            assert len(await _find(desk, "heron")) == 21
            await _index_all(desk)


async def a_deleted_text_is_not_found(harness: FullStoreHarness) -> None:
    """A deleted session leaves nothing in the index, and what is said later is found."""
    async with open_full_store_twice(harness) as (desk, other):
        for session in ("ses_gone", "ses_kept"):
            await _answer(desk, await _submit(desk, f"walrus of {session}", session=session), "I see.")
        await _index_all(desk)
        await desk.kept.deletions.delete(SessionId("ses_gone"), "a person")
        assert await _find(desk, "walrus") == ["walrus of ses_kept"]
        await _submit(other, "a new walrus", session="ses_new")
        await _index_all(other)
        assert await _find(desk, "walrus") == ["a new walrus", "walrus of ses_kept"]


async def the_index_is_filled_in_parts(harness: FullStoreHarness) -> None:
    """Each transaction adds a limited number of texts, and one that finds nothing changes nothing."""
    async with open_full_store(harness) as desk:
        for number in range(INDEXED_TEXTS + 1):
            await _submit(desk, f"text {number} of many", session=f"ses_{number}")
        assert await _index_all(desk) == 2
        assert await _index_all(desk) == 1
        assert len(await _find(desk, "of many")) == INDEXED_TEXTS + 1


CHECKS: Final[tuple[FullStoreCheck, ...]] = (
    what_was_said_is_found,
    letters_of_other_languages_are_found,
    a_search_for_a_user_reads_only_their_texts,
    a_deleted_text_is_not_found,
    the_index_is_filled_in_parts,
)
