"""What every page of the dashboard has: an empty state that says what to do, a focus that can be seen, and text of
models without the marks of Markdown."""

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
    find_overflow,
    needs_assets,
    needs_browser,
    open_browser,
)

pytestmark = [needs_browser, needs_assets]
expect.set_options(timeout=WAIT_MS)
EMPTY = {
    "/runs": ("No runs yet", "Start one in the chat"),
    "/runs?status=failed": ("No run matches", ""),
    "/chat": ("No sessions yet", "Write a message"),
    "/inbox": ("Nothing waits for you", "appear here"),
    "/usage": ("No usage in this period", "Start a run"),
    "/memory": ("No memories", "You can add some"),
    "/mcp-servers": ("No MCP servers yet", "treadle mcp add"),
    "/schedules": ("No schedules yet", "Create one"),
    "/inbound-webhooks": ("No inbound webhooks yet", "Create one"),
    "/webhooks": ("No webhooks yet", "Create one"),
    "/vault": ("No secrets yet", "Add a key"),
    "/search?text=nothing-has-this": ("Nothing found", "other words"),
    "/compare": ("", "Runs"),
    "/agents": ("No agents yet", "treadle agents create"),
}
"""The heading, and what the page says to do. Models, skills and tokens are never empty here: a server has some of
each."""
FIND_RING = """() => {
    const focused = document.activeElement;
    if (!focused || focused === document.body || focused.id === 'main') return null;
    const label = focused.closest('label.button');
    const rings = [focused, ...(label ? [label] : [])].map((each) => getComputedStyle(each));
    const box = (label ?? focused).getBoundingClientRect();
    const isSeen = rings.some((ring) => ring.outlineStyle !== 'none' && parseFloat(ring.outlineWidth) >= 2
        && ring.outlineColor !== 'rgba(0, 0, 0, 0)') && box.width > 0 && box.height > 0;
    return isSeen ? '' : focused.outerHTML.slice(0, 160);
}"""
TABS = 12
"""How often Tab is pressed on a page."""


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Generator[Board]:
    opened = Board(tmp_path_factory.mktemp("board"))
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def visitor(browser: Browser, board: Board) -> Generator[Visitor]:
    found = Visitor(browser.new_context(viewport={"width": 1280, "height": 800}), board)
    found.sign_in()
    yield found
    assert found.complaints == []
    found.context.close()


def test_empty_pages_say_what_to_do(visitor: Visitor, board: Board) -> None:
    for path, (heading, advice) in EMPTY.items():
        if path == "/agents":
            for name in ("default", "reviewer"):
                board.call("DELETE", f"/v1/agents/{name}")
        empty = visitor.see(path).locator("#main .empty").first
        expect(empty.get_by_role("heading")).to_contain_text(heading)
        expect(empty).to_contain_text(advice)
    expect(visitor.see("/system").locator("#main")).to_contain_text("Configure one under `channels:`")


def test_keyboard_focus_can_be_seen_on_every_page(visitor: Visitor) -> None:
    faults: dict[str, set[str]] = {}
    for name, path in PAGES.items():
        page = visitor.see(path)
        seen = 0
        page.locator("#main").focus()
        for _ in range(TABS):
            page.keyboard.press("Tab")
            ring = page.evaluate(FIND_RING)
            seen += ring is not None
            if ring:
                faults.setdefault(name, set()).add(ring)
        if not seen:
            faults[name] = {"nothing can be focused"}
    assert faults == {}


def test_memories_are_rendered_and_excerpts_have_no_markdown(visitor: Visitor, board: Board) -> None:
    if "default" not in [each["agent"]["name"] for each in board.call("GET", "/v1/agents")["items"]]:
        board.call("POST", "/v1/agents", {"name": "default", "model": "fake/m"})
    memory = "The team prefers **short** answers.\n\n- no `emoji`\n- see the [guide](https://example.com/guide)"
    board.call("POST", "/v1/memory", {"agent": "default", "text": memory})
    board.run("Summarise the modules")
    for width in (1280, 360):
        visitor.page.set_viewport_size({"width": width, "height": 800})
        page = visitor.see("/memory?agent=default")
        shown = page.locator(".markdown", has_text="The team prefers")
        expect(shown.locator("strong")).to_have_text("short")
        expect(shown.locator("li code")).to_have_text("emoji")
        expect(shown.get_by_role("link")).to_have_attribute("rel", "noopener noreferrer nofollow")
        remembered = page.locator("#main td", has_text="Asked: Summarise the modules")
        expect(remembered).to_contain_text("The longest module is decide.py.")
        expect(remembered).not_to_contain_text("**")
        assert find_overflow(page) == []
        assert not AXE.exists() or axe_violations(page) == []
    page = visitor.see("/search?text=longest")
    excerpt = page.locator("#main li p").first
    expect(excerpt).to_contain_text("The longest module is decide.py. See the guide for why.")
    for mark in ("**", "##", "|--", "```", "]("):
        expect(excerpt).not_to_contain_text(mark)


def test_the_agent_editor_describes_every_setting(visitor: Visitor) -> None:
    page = visitor.see("/agents/new")
    known = page.locator("aside.known")
    expect(known).to_contain_text("The first part of the system prompt.")
    page.get_by_text("Keys of limits").click()
    expect(known).to_contain_text("Maximum steps. A step is one model call with its tool calls.")
    undescribed = known.locator("dl dd").evaluate_all(
        "(all) => all.filter((each) => !each.textContent.trim()).length"
    )
    assert undescribed == 0
    assert not AXE.exists() or axe_violations(page) == []
