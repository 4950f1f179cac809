"""The dashboard in a window of 360 px, with long names and messages: nothing is wider than the window."""

from collections.abc import Generator

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.dashboard import (
    AXE,
    PAGES,
    WAIT_MS,
    Board,
    Visitor,
    axe_violations,
    fill,
    find_overflow,
    needs_assets,
    needs_browser,
    open_browser,
)

pytestmark = [needs_browser, needs_assets]
expect.set_options(timeout=WAIT_MS)
WORD = "W" * 180
SENTENCE = "Please look at the internationalisation of the settings page and fix it"


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Generator[Board]:
    opened = Board(tmp_path_factory.mktemp("n" * 80))
    try:
        yield opened
    finally:
        opened.close()


def fill_with_long_names(board: Board) -> dict[str, str]:
    """Put long names and words without spaces on every page. Return the paths of all pages."""
    pages = {**PAGES, **fill(board), "search": f"/search?text={WORD}"}
    board.call("POST", "/v1/tokens", {"name": WORD[:80], "scopes": ["read"]})
    board.call("POST", "/v1/memory", {"agent": "default", "text": WORD})
    board.call("PUT", f"/v1/vault/{'A' * 60}", {"value": "x" * 30})
    board.call("POST", "/v1/schedules", {"agent": "default", "message": WORD, "every": "1d"})
    board.call("POST", "/v1/webhooks", {"url": f"https://example.com/{'a' * 300}", "events": ["run_end"]})
    board.call("POST", "/v1/hooks", {"name": "h" * 60, "agent": "default", "message": WORD})
    board.call("POST", "/v1/agents", {"name": "a" * 60, "model": f"fake/{'m' * 80}", "persona": WORD})
    for name, message in (("word", WORD), ("sentence", SENTENCE)):
        run = board.run(message)
        pages[f"run of a {name}"] = f"/runs/{run['run_id']}"
        pages[f"chat of a {name}"] = f"/chat/{run['session_id']}"
        for tab in ("timeline", "steps", "events", "tree"):
            pages[f"{tab} of a {name}"] = f"/runs/{run['run_id']}?tab={tab}"
    return pages


def test_nothing_is_wider_than_a_narrow_window(browser: Browser, board: Board) -> None:
    pages = fill_with_long_names(board)
    visitor = Visitor(browser.new_context(viewport={"width": 360, "height": 740}), board)
    visitor.sign_in()
    faults: dict[str, list[str]] = {}
    for name, path in pages.items():
        page = visitor.see(path)
        found = [*find_overflow(page), *(axe_violations(page) if AXE.exists() else [])]
        if found:
            faults[name] = found
    assert faults == {}
    assert visitor.complaints == []
    visitor.context.close()


def test_a_narrow_list_of_runs_shows_message_agent_and_time(browser: Browser, board: Board) -> None:
    run = board.run(SENTENCE)["run_id"]
    visitor = Visitor(browser.new_context(viewport={"width": 360, "height": 740}), board)
    visitor.sign_in()
    page = visitor.see("/runs")
    row = page.get_by_role("row").filter(has=page.locator(f"a[href='/runs/{run}']"))
    message = row.get_by_role("link", name=SENTENCE)
    box = message.bounding_box()
    assert box is not None
    assert box["width"] > 200
    expect(row.get_by_role("link", name="default", exact=True)).to_be_visible()
    expect(row.locator("time")).to_be_visible()
    visitor.context.close()
