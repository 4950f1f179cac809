"""Calls over a link to a home whose owner changes."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from treadle.config.home import Home
from treadle.domain.errors import StoreError, UsageError
from treadle.domain.ids import RunId
from treadle.operations import runs
from treadle.operations.operation import Operation
from treadle.operations.run_control import CANCEL, StopRun
from treadle.remote.connection import ServerGone
from treadle.surfaces.home_access import home_link
from treadle.surfaces.home_access.connection import HomeAccess
from treadle.surfaces.home_access.home_link import HomeLink

HOME = Home(Path("/nowhere"))
READ, STOP = runs.ShowRun(RunId("run_1")), StopRun(RunId("run_1"))


class Owner:
    """A process that owns the home. It answers, or it fails."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.leaves: HomeLink | None = None
        """The link that loses this owner during the call."""
        self.may_open = asyncio.Event()
        self.calls: list[tuple[str, str | None]] = []
        self.access = HomeAccess(self, HOME)  # pyright: ignore[reportArgumentType] -- only calls are made

    async def call(self, operation: Operation[Any, Any], request: Any, *, key: str | None = None) -> str:
        self.calls.append((operation.name, key))
        if self.leaves is not None:
            self.access.released.set()
            await until_left(self.leaves, self)
        if self.failure is not None:
            raise self.failure
        return "done"


async def until_left(link: HomeLink, owner: Owner) -> None:
    while link.access is owner.access:  # noqa: ASYNC110 -- no event says it
        await asyncio.sleep(0)


class Owners:
    """The processes that own the home, one after another."""

    def __init__(self, *owners: Owner) -> None:
        self.left = list(owners)

    @asynccontextmanager
    async def open(self, engine: Any, home: Home, tell: Any) -> AsyncGenerator[HomeAccess]:
        owner = self.left.pop(0)
        await owner.may_open.wait()
        yield owner.access


async def open_link(monkeypatch: pytest.MonkeyPatch, *owners: Owner) -> HomeLink:
    monkeypatch.setattr(home_link, "open_home", Owners(*owners).open)
    monkeypatch.setattr(home_link, "RETRY_SECONDS", (0.0,))
    link = HomeLink(HOME, lambda: None)  # pyright: ignore[reportArgumentType, reportReturnType]
    owners[0].may_open.set()
    await link.open()
    return link


async def test_a_call_waits_until_the_home_is_open_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Owner(), Owner()
    link = await open_link(monkeypatch, first, second)
    first.access.released.set()
    await until_left(link, first)
    call = asyncio.create_task(link.call(CANCEL, STOP))
    second.may_open.set()
    assert await call == "done"
    assert (first.calls, second.calls) == ([], [("runs.cancel", None)])
    await link.close()


@pytest.mark.parametrize("failure", [ServerGone("gone"), StoreError("closed")])
async def test_a_call_with_a_key_is_repeated_with_it(monkeypatch: pytest.MonkeyPatch, failure: Exception) -> None:
    first, second = Owner(failure), Owner()
    link = await open_link(monkeypatch, first, second)
    second.may_open.set()
    first.leaves, key = link, link.make_key()
    assert await link.call(CANCEL, STOP, key=key) == "done"
    assert first.calls == second.calls == [("runs.cancel", key)]
    await link.close()


async def test_a_call_that_may_have_had_its_effect_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Owner(ServerGone("gone")), Owner()
    link = await open_link(monkeypatch, first, second)
    with pytest.raises(ServerGone):
        await link.call(CANCEL, STOP)
    second.may_open.set()
    assert second.calls == []
    assert await link.call(runs.SHOW, READ) == "done"  # the next call waits for the next owner
    await link.close()


async def test_an_error_of_the_home_itself_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = Owner(StoreError("the disk is full"))
    link = await open_link(monkeypatch, owner)
    with pytest.raises(StoreError, match="disk is full"):
        await link.call(runs.SHOW, READ)
    await link.close()


async def test_a_home_that_stays_closed_is_reported_with_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = Owner()
    link = await open_link(monkeypatch, owner)

    def fail(engine: Any, home: Home, tell: Any) -> Any:
        raise UsageError("config.yaml is broken.")

    monkeypatch.setattr(home_link, "open_home", fail)
    monkeypatch.setattr(home_link, "REOPEN_SECONDS", 0.2)
    owner.access.released.set()
    await until_left(link, owner)
    with pytest.raises(StoreError, match=r"not open: config\.yaml is broken\. Try again"):
        await link.call(runs.SHOW, READ)
    await link.close()
