"""Ten questions of an operator: each is answered within three clicks from the start page."""

import re
from collections.abc import Generator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.e2e.dashboard import WAIT_MS, Board, Visitor, needs_assets, needs_browser, open_browser

pytestmark = [needs_browser, needs_assets]
expect.set_options(timeout=WAIT_MS)
MOST_CLICKS = 3


class Operator:
    """Opens the start page for each question, and counts the clicks until the answer is seen."""

    def __init__(self, visitor: Visitor) -> None:
        self.visitor = visitor
        self.clicks = 0

    @property
    def page(self) -> Page:
        return self.visitor.page

    @property
    def main(self) -> Locator:
        return self.page.get_by_role("main")

    def begin(self) -> None:
        self.visitor.see("/")
        self.clicks = 0

    def click(self, target: Locator) -> None:
        self.clicks += 1
        assert self.clicks <= MOST_CLICKS
        target.click()

    def open_page(self, name: str) -> None:
        menu = self.page.get_by_role("navigation", name="Pages")
        self.click(menu.get_by_role("link", name=re.compile(f"^{name}")))


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


def test_ten_questions_are_answered_within_three_clicks(browser: Browser, board: Board) -> None:
    costly = board.run("Which module is the longest? use a tool")["run_id"]
    board.run("fail please, so that there is an error to see")
    board.run("approve this: count the modules", "reviewer", wait=0)
    persona = {**board.call("GET", "/v1/agents/reviewer")["agent"], "persona": "You review every change twice."}
    board.call("PUT", "/v1/agents/reviewer", persona)
    board.call(
        "POST", "/v1/schedules", {"agent": "default", "message": "Good morning: what is new?", "every": "1d"}
    )
    board.call("PUT", "/v1/vault/GITHUB_TOKEN", {"value": "ghp_3kd93kd9skd93kslw"})
    visitor = Visitor(browser.new_context(viewport={"width": 1280, "height": 800}), board)
    visitor.sign_in()
    operator = Operator(visitor)
    page, main = operator.page, operator.main

    operator.begin()  # 1. Which run spent most today, and why?
    dearest = main.locator("section", has=page.get_by_role("heading", name="Most expensive today"))
    operator.click(dearest.get_by_role("link").first)
    assert page.url.endswith(costly)
    operator.click(page.get_by_role("link", name="Steps", exact=True))
    expect(main.get_by_text("Input tokens")).to_be_visible()
    expect(main.get_by_role("button", name=re.compile(r"Step 2"))).to_contain_text("$")

    operator.begin()  # 2. What waits for me?
    operator.open_page("Inbox")
    expect(main).to_contain_text("count the modules")
    expect(main.get_by_role("button", name="Approve", exact=True)).to_be_visible()

    operator.begin()  # 3. Why did this fail?
    failures = main.locator("section", has=page.get_by_role("heading", name="Latest failures"))
    operator.click(failures.get_by_role("link").first)
    expect(main.get_by_role("status").filter(has_text="no such model")).to_be_visible()

    operator.begin()  # 4. What did the latest version of the reviewer change?
    operator.open_page("Agents")
    operator.click(main.get_by_role("link", name="reviewer"))
    operator.click(page.get_by_role("button", name="Version 2", exact=True))
    expect(main.locator("pre", has_text="You review every change twice.")).to_be_visible()

    operator.begin()  # 5. What is in progress, and what does it do?
    operator.open_page("Runs")
    operator.click(page.get_by_role("link", name=re.compile("approve this: count the modules")).first)
    expect(main.locator(".facts")).to_contain_text("Waits for approval")

    operator.begin()  # 6. What did a run spend its time on?
    slowest = main.locator("section", has=page.get_by_role("heading", name="Slowest today"))
    operator.click(slowest.get_by_role("link").first)
    operator.click(page.get_by_role("link", name="Timeline"))
    expect(main.get_by_text("Critical path:")).to_contain_text("model calls")

    operator.begin()  # 7. What exactly was the model asked?
    operator.click(dearest.get_by_role("link").first)
    operator.click(page.get_by_role("link", name="Steps", exact=True))
    operator.click(page.get_by_role("button", name="Show prompt"))
    expect(page.get_by_label("System prompt")).to_contain_text("You are a careful engineer.")

    operator.begin()  # 8. Which agent or model costs how much?
    operator.open_page("Usage")
    expect(main.get_by_role("row", name=re.compile("default"))).to_contain_text("$")

    operator.begin()  # 9. When does the next scheduled run start, and the four after it?
    operator.open_page("Schedules")
    operator.click(main.locator("td summary"))
    expect(main.get_by_label("Next ticks").get_by_role("listitem")).to_have_count(4)

    operator.begin()  # 10. Which secrets are there, and who may use them?
    operator.open_page("Vault")
    expect(main.get_by_role("row", name=re.compile("GITHUB_TOKEN"))).to_be_visible()
    assert visitor.complaints == []
    visitor.context.close()
