"""The dashboard in a browser, against a real server with a scripted model."""

import json
import re
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

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


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def filled_board(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Board, dict[str, str]]]:
    board = Board(tmp_path_factory.mktemp("filled_board"))
    try:
        yield board, {**PAGES, **fill(board)}
    finally:
        board.close()


@pytest.fixture
def board(tmp_path: Path) -> Generator[Board]:
    opened = Board(tmp_path)
    try:
        yield opened
    finally:
        opened.close()


def visit(browser: Browser, board: Board, width: int = 1280, scheme: str = "light") -> Visitor:
    dark = scheme == "dark"
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme="dark" if dark else "light"
    )
    return Visitor(context, board)


# ── Every page ──


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (360, "light")])
def test_every_page_is_accessible_and_fits_without_console_errors(
    browser: Browser, filled_board: tuple[Board, dict[str, str]], width: int, scheme: str
) -> None:
    board, pages = filled_board
    visitor = visit(browser, board, width, scheme)
    visitor.page.goto(board.url)
    visitor.page.get_by_label("Access token").wait_for()
    faults = {"sign-in": axe_violations(visitor.page)} if AXE.exists() else {}
    visitor.sign_in()
    for name, path in pages.items():
        page = visitor.see(path)
        faults[name] = [*find_overflow(page), *(axe_violations(page) if AXE.exists() else [])]
        expect(page.locator(".notice.bad[role=alert]")).to_have_count(0)
    assert {name: found for name, found in faults.items() if found} == {}
    assert visitor.complaints == []
    assert visitor.foreign_requests() == []
    visitor.context.close()


# ── Signing in ──


def test_a_link_signs_in_once_and_leaves_no_code_behind(browser: Browser, board: Board) -> None:
    process = board.shell.start("open", "--json")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    url = json.loads(out)["url"]
    visitor = visit(browser, board)
    visitor.page.goto(url)
    expect(visitor.page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    assert "code" not in visitor.page.url
    expect(visitor.page.get_by_text("Owner of the home")).to_be_visible()
    other = visit(browser, board)
    other.page.goto(url)
    expect(other.page.get_by_role("alert")).to_contain_text("treadle open")
    visitor.page.get_by_role("button", name="Sign out everywhere").click()
    expect(visitor.page.get_by_label("Access token")).to_be_visible()
    visitor.context.close()
    other.context.close()


def test_a_token_sees_only_its_own_data_and_its_revocation_ends_the_page(browser: Browser, board: Board) -> None:
    made = board.call("POST", "/v1/tokens", {"name": "guest", "scopes": ["read"]})
    visitor = visit(browser, board)
    page = visitor.sign_in(made["token"])
    pages = page.get_by_role("navigation", name="Pages")
    expect(pages.get_by_role("link", name="Runs")).to_be_visible()
    for hidden in ("Chat", "Vault", "Tokens", "Webhooks"):
        expect(pages.get_by_role("link", name=hidden, exact=True)).to_have_count(0)
    expect(page.get_by_role("link", name="New run")).to_have_count(0)
    board.call("DELETE", f"/v1/tokens/{made['token_id']}")
    expect(page.get_by_label("Access token")).to_be_visible(timeout=10_000)
    wrong = page.get_by_label("Access token")
    wrong.fill("trd_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("not valid")
    expect(wrong).to_have_value("trd_wrong")
    visitor.context.close()


# ── Runs ──


def test_runs_appear_and_change_without_loading(browser: Browser, board: Board) -> None:
    visitor = visit(browser, board)
    page = visitor.sign_in()
    started = board.run("a slow one", wait=0)
    row = page.get_by_role("row").filter(has_text="a slow one")
    expect(row).to_contain_text("Running")
    run_page = visitor.see(f"/runs/{started['run_id']}", visitor.open())
    expect(run_page.locator("[data-live]")).to_contain_text("Beginning…")
    board.model.go_on()
    expect(row).to_contain_text("Completed")
    expect(run_page.locator(".transcript").get_by_text("Beginning… finished.")).to_be_visible()
    page.get_by_placeholder("Search messages").fill("nothing like it")
    expect(page.get_by_role("heading", name="No run matches")).to_be_visible()
    assert "text=nothing" in page.url
    page.get_by_role("button", name="Clear").click()
    page.locator("select:has(option[value=waiting])").select_option("completed")
    expect(row).to_be_visible()
    assert "status=completed" in page.url
    visitor.context.close()


@pytest.mark.parametrize("decision", ["Approve", "Deny"])
def test_a_decision_changes_the_card_in_every_window(browser: Browser, board: Board, decision: str) -> None:
    visitor = visit(browser, board)
    own = visitor.sign_in()
    started = board.run("approve a count", "reviewer", wait=0)
    own = visitor.see(f"/runs/{started['run_id']}")
    expect(own.get_by_role("button", name="Approve", exact=True)).to_be_visible()
    other = visitor.see(f"/runs/{started['run_id']}", visitor.open())
    chat = visitor.see(f"/chat/{started['session_id']}", visitor.open())
    stranger = visit(browser, board)
    stranger.sign_in()
    third = stranger.see(f"/runs/{started['run_id']}")
    pages = (own, other, chat, third)
    for page in pages:
        expect(page.get_by_role("button", name=re.compile("^bash"))).to_contain_text("waits for a decision")
        expect(page.get_by_role("button", name="Deny", exact=True)).to_be_visible()
    own.get_by_label("Note").fill("counted twice")
    own.get_by_role("button", name=decision, exact=True).click()
    said = "bash was approved by" if decision == "Approve" else "bash was denied by"
    for page in pages:
        expect(page.get_by_text(re.compile(said + ".*: counted twice"))).to_be_visible()
        expect(page.get_by_role("button", name="Deny", exact=True)).to_have_count(0)
        expect(page.get_by_role("button", name=re.compile("^bash"))).not_to_contain_text("waits")
        expect(page.locator("div.end")).to_contain_text("Completed")
    visitor.context.close()
    stranger.context.close()


def test_a_run_that_is_opened_while_it_writes_shows_all_of_its_text(browser: Browser, board: Board) -> None:
    visitor = visit(browser, board)
    visitor.sign_in()
    started = board.run("a slow one", wait=0)
    first = visitor.see(f"/runs/{started['run_id']}")
    expect(first.locator("[data-live]")).to_contain_text("Beginning…")
    late = visitor.see(f"/chat/{started['session_id']}", visitor.open())
    expect(late.locator("[data-live]")).to_contain_text("Beginning…")
    expect(late.locator("[data-live]")).not_to_contain_text("……")
    board.model.go_on()
    for page in (first, late):
        expect(page.locator(".transcript").get_by_text("Beginning… finished.")).to_have_count(1)
        expect(page.get_by_role("status").get_by_text("Beginning… finished.")).to_have_count(1)
        expect(page.locator("[data-live]")).to_have_count(0)
        expect(page.locator("div.end")).to_contain_text("Completed")
        shown = [each.get_attribute("datetime") or "" for each in page.locator(".transcript time").all()]
        ages = [(datetime.now(UTC) - datetime.fromisoformat(each)).total_seconds() for each in shown]
        assert len(ages) == 3
        assert all(0 <= age < 120 for age in ages)
    visitor.context.close()


def test_a_run_is_steered_interrupted_resumed_and_cancelled(browser: Browser, board: Board) -> None:
    visitor = visit(browser, board)
    visitor.sign_in()
    started = board.run("another slow one", wait=0)
    page = visitor.see(f"/runs/{started['run_id']}")
    expect(page.locator("[data-live]")).to_be_visible()
    log = visitor.see(f"/runs/{started['run_id']}?tab=events", visitor.open())
    steps = visitor.see(f"/runs/{started['run_id']}?tab=steps", visitor.open())
    page.get_by_label("Send", exact=True).fill("stay slow")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text("Steering message")).to_be_visible()
    expect(log.get_by_role("link", name=re.compile("stay slow"))).to_be_visible()
    page.get_by_role("button", name="Interrupt", exact=True).click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Interrupt", exact=True)).to_be_visible()
    expect(steps.get_by_role("button", name=re.compile("Step 2"))).to_be_visible()
    page.get_by_role("button", name="Cancel run").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel run").click()
    expect(page.locator(".facts")).to_contain_text("Cancelled")
    visitor.context.close()


def test_a_run_is_examined_forked_replayed_and_compared(
    browser: Browser, filled_board: tuple[Board, dict[str, str]]
) -> None:
    board, pages = filled_board
    visitor = visit(browser, board)
    visitor.sign_in()
    page = visitor.see(pages["timeline"])
    expect(page.locator(".bar.tool")).to_have_count(1)
    page.get_by_role("link", name="Steps").click()
    page.get_by_role("button", name="Show prompt").click()
    expect(page.get_by_label("System prompt")).to_contain_text("You are a careful engineer.")
    visitor.requests.clear()
    page = visitor.see(pages["events"])
    asked = [url.removeprefix(board.url) for _, url in visitor.requests if f"/v1{pages['run']}" in url]
    paths = {url.partition("?")[0].removeprefix(f"/v1{pages['run']}") for url in asked}
    assert paths == {"", "/transcript", "/event-lines"}
    assert len(asked) == 3
    page.get_by_role("link", name=re.compile("run_end")).click()
    expect(page.get_by_role("dialog")).to_contain_text('"outcome": "completed"')
    page = visitor.see(pages["run"])
    page.get_by_role("button", name="Replay").click()
    expect(page.get_by_role("dialog")).to_contain_text("events are the same")
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Bad").click()
    page.get_by_label("What is wrong?").fill("Too long.")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text(re.compile(": Too long"))).to_be_visible()
    page.get_by_role("button", name="Fork").click()
    page.get_by_role("dialog").get_by_label("From step").fill("2")
    page.get_by_role("dialog").get_by_role("button", name="Fork").click()
    page.wait_for_url(lambda url: "/runs/run_" in url and not url.endswith(pages["run"]))
    expect(page.locator(".facts")).to_contain_text("Completed")
    page = visitor.see(pages["comparison"])
    expect(page.get_by_text(re.compile("steps? differs?, "))).to_be_visible()
    expect(page.get_by_role("heading", name="Input", exact=True)).to_be_visible()
    page.get_by_role("button", name="Choose: Other run").click()
    page.get_by_role("dialog").get_by_role("searchbox").fill(pages["run"].removeprefix("/runs/"))
    page.get_by_role("dialog").get_by_role("searchbox").press("Enter")
    found = page.get_by_role("dialog").get_by_role("list").get_by_role("button")
    expect(found).to_have_count(1)
    found.click()
    expect(page.get_by_text("The runs are equal: input, thinking,")).to_be_visible()
    assert visitor.complaints == []
    visitor.context.close()


# ── Decisions and chat ──


def test_an_approval_is_edited_and_the_run_continues(browser: Browser, board: Board) -> None:
    visitor = visit(browser, board)
    page = visitor.sign_in()
    started = board.run("approve a count", "reviewer", wait=0)
    page.get_by_role("link", name=re.compile("Inbox")).click()
    page.get_by_role("button", name="Edit").click()
    box = page.get_by_label("Arguments of bash")
    box.fill("{")
    expect(page.get_by_role("button", name="Approve as edited")).to_be_disabled()
    box.fill('{"command": "echo edited by a reviewer"}')
    page.get_by_role("button", name="Approve as edited").click()
    expect(page.get_by_role("heading", name="Nothing waits for you")).to_be_visible()
    page = visitor.see(f"/runs/{started['run_id']}")
    expect(page.locator(".facts")).to_contain_text("Completed")
    page.get_by_role("button", name=re.compile("bash")).click()
    expect(page.get_by_label("Result")).to_contain_text("edited by a reviewer")
    visitor.context.close()


def test_a_chat_streams_asks_and_continues_in_two_tabs(browser: Browser, board: Board) -> None:
    visitor = visit(browser, board)
    visitor.sign_in()
    page = visitor.see("/chat")
    page.get_by_label("Message", exact=True).fill("ask me first")
    page.get_by_role("button", name="Send").click()
    page.wait_for_url(re.compile(r"/chat/ses_"))
    expect(page.get_by_text("Which branch should I use?", exact=True)).to_be_visible()
    other = visitor.open()
    other.goto(page.url)
    other.get_by_role("button", name="develop", exact=True).click()
    for tab in (page, other):
        expect(tab.get_by_text("decide.py").first).to_be_visible()
        expect(tab.get_by_text("Completed")).to_be_visible()
    page.get_by_label("Message", exact=True).fill("thank you")
    page.get_by_label("Message", exact=True).press("Enter")
    expect(other.get_by_text("thank you")).to_be_visible()
    page.get_by_role("button", name="Rename").click()
    page.get_by_role("dialog").get_by_label("Title").fill("Branches")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="Branches", level=1)).to_be_visible()
    visitor.context.close()


def test_the_inbox_takes_keys_several_calls_and_questions(browser: Browser, board: Board) -> None:
    visitor = visit(browser, board)
    page = visitor.sign_in()
    started = [board.run(f"approve count {number}", "reviewer", wait=0)["run_id"] for number in range(3)]
    asked = board.run("ask me first", wait=0)["run_id"]
    page.get_by_role("link", name=re.compile("Inbox")).click()
    cards = page.get_by_role("region", name="Approval of bash")
    expect(cards).to_have_count(3)
    expect(page).to_have_title(re.compile(r"^\(4\) Inbox"))
    expect(cards.first).to_contain_text("approve count 0")
    expect(cards.first).to_contain_text("reviewer")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(cards.first).to_be_focused()
    page.keyboard.press("d")
    expect(cards).to_have_count(2)
    for box in cards.get_by_role("checkbox").all():
        box.check()
    page.get_by_role("button", name="Approve selected").click()
    page.get_by_role("dialog").get_by_role("button", name="Approve selected").click()
    expect(cards).to_have_count(0)
    question = page.get_by_role("region", name="Question")
    expect(question).to_contain_text("Which branch should I use?")
    question.get_by_role("button", name="develop").click()
    expect(page.get_by_role("heading", name="Nothing waits for you")).to_be_visible()
    expect(page).to_have_title("Inbox · Treadle")
    for run_id in (*started, asked):
        board.call("GET", f"/v1/runs/{run_id}?wait=30")
    visitor.context.close()


def test_the_dashboard_keeps_unsaved_changes_and_the_place_in_a_list(browser: Browser, board: Board) -> None:
    for number in range(40):
        board.run(f"run number {number}")
    visitor = visit(browser, board)
    page = visitor.sign_in()
    page = visitor.see("/runs")
    link = page.get_by_role("link", name="run number 3", exact=True)
    link.scroll_into_view_if_needed()
    top = page.locator("#main").evaluate("main => main.scrollTop")
    assert top > 100
    link.click()
    expect(page.locator(".facts")).to_contain_text("Completed")
    expect(page).to_have_title("run number 3 · Treadle")
    expect(page.locator("#main")).to_be_focused()
    page.go_back()
    expect(link).to_be_visible()
    page.wait_for_function(f"() => Math.abs(document.getElementById('main').scrollTop - {top}) < 3")
    page = visitor.see("/agents")
    page.get_by_role("link", name="reviewer", exact=True).click()
    box = page.get_by_label("Settings (JSON)")
    box.fill(box.input_value().replace("You review", "You always review"))
    for leave in (lambda: page.get_by_role("link", name="Models").click(), page.go_back):
        leave()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("Leave without saving?")
        dialog.get_by_role("button", name="Cancel").click()
        expect(box).to_have_value(re.compile("You always review"))
        assert page.url.endswith("/agents/reviewer")
    page.get_by_role("link", name="Models").click()
    page.get_by_role("dialog").get_by_role("button", name="Leave without saving").click()
    expect(page.get_by_role("heading", name="Models", level=1)).to_be_visible()
    page.goto(f"{board.url}/nonsense")
    expect(page.get_by_role("heading", name="Page not found")).to_be_visible()
    visitor.context.close()


SCOPES = ("read", "run", "approve", "admin")
OF_SCOPES = {
    "/overview": {"read"},
    "/runs": {"read"},
    "/inbox": {"read", "approve"},
    "/models": {"read"},
    "/evaluations": {"read"},
    "/schedules": set[str](),
    "/inbound-webhooks": set[str](),
    "/vault": set[str](),
    "/tokens": set[str](),
}
"""Pages, and the scopes of which each needs one. An administrator opens all."""


def test_the_overview_leads_to_the_runs_behind_its_numbers(browser: Browser, board: Board) -> None:
    board.run("hello")
    failed = board.run("please fail")
    board.run("approve a count", "reviewer", wait=0)
    visitor = visit(browser, board)
    visitor.sign_in()
    page = visitor.see("/")
    expect(page.get_by_role("link", name=re.compile("Wait for people"))).to_contain_text("1")
    page.get_by_role("link", name=re.compile("^Failed today")).click()
    expect(page.get_by_role("row").filter(has_text="no such model")).to_have_count(1)
    expect(page.get_by_text("1 runs")).to_be_visible()
    page.go_back()
    page.get_by_role("link", name="please fail", exact=True).first.click()
    assert page.url.endswith(failed["run_id"])
    page.go_back()
    page.get_by_role("link", name=re.compile("^Cost today")).click()
    expect(page.get_by_role("columnheader", name="Cost")).to_have_attribute("aria-sort", "descending")
    visitor.context.close()


def test_runs_are_sorted_selected_exported_and_kept_as_a_view(browser: Browser, board: Board) -> None:
    board.run("cheap")
    board.run("dear: use a tool")
    slow = [board.run(f"slow number {number}", wait=0)["run_id"] for number in range(2)]
    visitor = visit(browser, board)
    page = visitor.sign_in()
    page.get_by_role("button", name="Cost").click()
    rows = page.locator("tbody tr")
    expect(rows.first).to_contain_text("dear")
    page.get_by_role("button", name="Cost").click()
    expect(rows.last).to_contain_text("dear")
    page.get_by_text("Columns", exact=True).click()
    page.get_by_role("checkbox", name="Model", exact=True).check()
    expect(page.get_by_role("columnheader", name="Model")).to_be_visible()
    page.get_by_text("Views", exact=True).click()
    page.get_by_placeholder("Name of the view").fill("Cheapest")
    page.get_by_role("button", name="Save this view").click()
    page = visitor.see("/runs")
    expect(page.get_by_role("columnheader", name="Model")).to_be_visible()
    page.get_by_text("Views", exact=True).click()
    page.get_by_role("link", name="Cheapest").click()
    expect(page.get_by_role("columnheader", name="Cost")).to_have_attribute("aria-sort", "ascending")
    page = visitor.see("/runs")
    for number in range(2):
        page.get_by_role("checkbox", name=f"Select: slow number {number}").check()
    expect(page.get_by_role("link", name="Compare")).to_be_visible()
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("dialog").locator("button.primary").click()
    for run_id in slow:
        assert board.call("GET", f"/v1/runs/{run_id}?wait=30")["outcome"] == "cancelled"
    page.get_by_text("Export", exact=True).click()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Export as CSV").click()
    lines = Path(waiting.value.path()).read_text().splitlines()
    assert lines[0].startswith("run_id,")
    assert len(lines) == 5
    visitor.context.close()


def test_the_palette_goes_to_pages_agents_and_runs(browser: Browser, board: Board) -> None:
    run_id = board.run("find me later")["run_id"]
    board.run("approve a count", "reviewer", wait=0)
    visitor = visit(browser, board)
    page = visitor.sign_in()
    expect(page.locator("link[rel=icon]")).to_have_attribute("href", re.compile("^blob:"))
    for typed, kinds, address in (
        ("mem", ["page"], "/memory"),
        ("revie", ["agent"], "/agents/reviewer"),
        ("find me", ["session", "run"], run_id),
        (run_id[-8:], ["run"], run_id),
    ):
        page.keyboard.press("Control+k")
        page.get_by_role("combobox", name="Page, agent").fill(typed)
        expect(page.locator("#palette-places [role=option]")).to_contain_text(kinds)
        assert axe_violations(page) == [] or not AXE.exists()
        for _ in kinds[1:]:
            page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(re.escape(address) + "$"))
    page.keyboard.press("Control+k")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert visitor.complaints == []
    visitor.context.close()


def test_each_token_begins_on_a_page_that_works_and_sees_only_what_it_may(browser: Browser, board: Board) -> None:
    board.run("hello")
    for number in range(1, 16):
        scopes = [scope for at, scope in enumerate(SCOPES) if number & 1 << at]
        made = board.call("POST", "/v1/tokens", {"name": f"with {' '.join(scopes)}", "scopes": scopes})
        visitor = visit(browser, board)
        page = visitor.sign_in(made["token"])
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.get_by_role("alert")).to_have_count(0)
        menu = page.get_by_role("navigation", name="Pages")
        shown = {link.get_attribute("href") for link in menu.get_by_role("link").all()}
        for path, needed in OF_SCOPES.items():
            allowed = "admin" in scopes or bool(needed & set(scopes))
            assert (path in shown) == allowed, (scopes, path)
            page.goto(board.url + path)
            expect(page.get_by_role("heading", name="Not allowed")).to_have_count(0 if allowed else 1)
            expect(page.locator(".skeleton")).to_have_count(0)
            expect(page.get_by_role("alert")).to_have_count(0)
        for path in sorted(filter(None, shown - OF_SCOPES.keys())):
            page.goto(board.url + path)
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            expect(page.locator(".skeleton")).to_have_count(0)
            expect(page.get_by_role("alert")).to_have_count(0)
        if scopes == ["run"]:
            page.goto(board.url)
            page.get_by_label("Agent").fill("default")
            page.get_by_label("Message").fill("hello")
            page.get_by_role("button", name="Start a run").click()
            expect(page.get_by_role("main").get_by_text("decide.py").first).to_be_visible()
        assert visitor.complaints == [], scopes
        visitor.context.close()


# ── The server goes away ──


def test_a_killed_server_comes_back_without_gaps(browser: Browser, board: Board) -> None:
    visitor = visit(browser, board)
    page = visitor.sign_in()
    board.run("before the end")
    expect(page.get_by_role("link", name="before the end")).to_be_visible()
    tabs = [visitor.see("/runs", visitor.open()) for _ in range(9)]  # ten tabs, six connections
    board.server.kill()
    expect(page.get_by_text("The server does not answer")).to_be_visible()
    board.server.start()
    board.run("after the return")
    for tab in (page, *tabs):
        expect(tab.get_by_role("link", name="after the return")).to_be_visible()
        expect(tab.get_by_text("The server does not answer")).to_have_count(0)
    visitor.context.close()


# ── Administration ──


def add(page: Page, path: str, visitor: Visitor, button: str, **values: str) -> None:
    """Open a page and fill in the form behind a button."""
    visitor.see(path, page)
    page.get_by_role("button", name=button).first.click()
    dialog = page.get_by_role("dialog")
    for label, value in values.items():
        dialog.get_by_label(re.compile(f"^{label.replace('_', ' ')}")).fill(value)
    dialog.locator("form button.primary").click()
    expect(dialog).to_have_count(0)


def remove(page: Page, what: str) -> None:
    row = page.get_by_role("row").filter(has_text=what)
    row.get_by_role("button", name=re.compile("Delete|Revoke|Forget")).click()
    page.get_by_role("dialog").locator("button.primary").click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_schedules_webhooks_memories_secrets_and_tokens_are_administered(browser: Browser, board: Board) -> None:
    visitor = visit(browser, board)
    page = visitor.sign_in()
    add(page, "/schedules", visitor, "New schedule", Message="Good morning", When="1d")
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    remove(page, "Good morning")
    expect(page.get_by_role("heading", name="No schedules yet")).to_be_visible()
    add(page, "/inbound-webhooks", visitor, "New inbound webhook", Name="ci")
    expect(page.get_by_text("shown only this once")).to_be_visible()
    page.get_by_role("button", name="New secret").click()
    page.get_by_role("dialog").locator("button.primary").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    remove(page, "ci")
    add(page, "/webhooks", visitor, "New webhook", Address="https://example.com/hook")
    page.get_by_role("button", name="Dead letters").click()
    expect(page.get_by_role("heading", name="No dead letters")).to_be_visible()
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    remove(page, "example.com")
    add(page, "/memory", visitor, "Add memory", Memory="Tea, not coffee")
    page.get_by_role("button", name="Pin").click()
    expect(page.get_by_role("button", name="Unpin")).to_be_visible()
    add(page, "/memory", visitor, "Assign", To_user="alice")
    expect(page.get_by_text("1 memories moved.")).to_be_visible()
    remove(page, "Tea")
    add(
        page,
        "/vault",
        visitor,
        "Add secret",
        Name="DEPLOY_KEY",
        Value="kd93ls03kd93ls0d",
        Granted_to="default:bash",
    )
    expect(page.get_by_text("kd93ls03")).to_have_count(0)
    remove(page, "DEPLOY_KEY")
    add(page, "/tokens", visitor, "New token", Name="robot")
    expect(page.get_by_text(re.compile("trd_"))).to_be_visible()
    remove(page, "robot")
    expect(page.get_by_role("row").filter(has_text="robot")).to_contain_text("Revoked")
    page = visitor.see("/users")
    expect(page.get_by_role("row").filter(has_text="alice")).to_have_count(0)
    page = visitor.see("/system")
    expect(page.get_by_role("row").filter(has_text=board.call("GET", "/v1/system")["version"])).to_have_count(1)
    page.get_by_role("button", name="Back up now").click()
    remove(page, "treadle-")
    expect(page.get_by_text("No backups yet.")).to_be_visible()
    page.get_by_role("button", name="Delete old sessions").click()
    page.get_by_role("dialog").locator("button.primary").click()
    expect(page.get_by_text("0 sessions with 0 runs were deleted.")).to_be_visible()
    ended = board.run("hello")
    page = visitor.see(f"/chat/{ended['session_id']}")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").locator("button.primary").click()
    expect(page.get_by_role("heading", name="New chat", level=1)).to_be_visible()
    assert visitor.complaints == []
    page.get_by_role("button", name="Sign out", exact=True).click()
    expect(page.get_by_label("Access token")).to_be_visible()
    visitor.context.close()


def test_an_agent_is_created_checked_changed_and_deleted(browser: Browser, board: Board) -> None:
    visitor = visit(browser, board)
    visitor.sign_in()
    page = visitor.see("/agents/new")
    box = page.get_by_label("Settings (JSON)")
    box.fill('{"name": "writer", "tools": "bash", "colour": 1}')
    expect(page.get_by_text("must be an array")).to_be_visible()
    expect(page.get_by_text("is not a known setting")).to_be_visible()
    expect(page.get_by_role("button", name="New agent")).to_be_disabled()
    box.fill('{"name": "writer", "model": "fake/m", "persona": "Write."}')
    page.get_by_role("button", name="New agent").click()
    expect(page.get_by_role("heading", name="writer", level=1)).to_be_visible()
    expect(box).to_have_value(re.compile("Write."))
    box.fill(box.input_value().replace("Write.", "Write well."))
    page.get_by_role("button", name="Review changes").click()
    expect(page.locator(".diff .added")).to_contain_text("Write well.")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("button", name="Review changes")).to_be_disabled()
    assert board.call("GET", "/v1/agents/writer")["agent"]["persona"] == "Write well."
    form = page.get_by_role("region", name="Common settings")
    form.get_by_label("Model").select_option("fake/n")
    form.get_by_label("bash").check()
    form.get_by_label("Persona").fill("Write very well.")
    typed = json.loads(box.input_value())
    assert (typed["model"], typed["tools"], typed["persona"]) == ("fake/n", ["bash"], "Write very well.")
    trial = page.get_by_role("region", name="Try it")
    trial.get_by_label("Message").fill("Which module is the longest? use a tool")
    trial.get_by_role("button", name="Run the trial").click()
    expect(trial).to_contain_text("decide.py")
    [run] = board.call("GET", "/v1/runs?agent=writer")["items"]
    assert (run["tags"], run["resolved_model"]) == (["trial"], "fake/n")
    assert board.call("GET", f"/v1/runs/{run['run_id']}")["version"] is None
    assert board.call("GET", "/v1/agents/writer")["agent"]["persona"] == "Write well.", "nothing was saved"
    page.reload()
    page.get_by_role("button", name="Version 2", exact=True).click()
    expect(page.locator("pre", has_text="+persona: Write well.")).to_be_visible()
    page.get_by_label("Label").fill("candidate")
    page.get_by_role("button", name="Add label").click()
    page.get_by_role("button", name="Remove the label candidate").click()
    expect(page.get_by_role("button", name="Remove the label candidate")).to_have_count(0)
    page.get_by_role("button", name="Version 1", exact=True).click()
    page.get_by_role("button", name="Restore").click()
    page.get_by_role("dialog").locator("button.primary").click()
    expect(page.get_by_role("button", name="Version 3", exact=True)).to_be_visible()
    expect(box).not_to_have_value(re.compile("Write well."))
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").locator("button.primary").click()
    expect(page.get_by_role("heading", name="Agents", level=1)).to_be_visible()
    with page.expect_response(re.compile("/v1/agents/default/state$")):
        page.get_by_label("State of default").select_option("paused")
    expect(page.get_by_label("State of default")).to_have_value("paused")
    assert board.call("GET", "/v1/agents/default")["state"] == "paused"
    visitor.context.close()


def test_the_keyboard_reaches_the_pages(browser: Browser, board: Board) -> None:
    visitor = visit(browser, board)
    page = visitor.sign_in()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    page.keyboard.press("/")
    expect(page.get_by_placeholder("Search messages")).to_be_focused()
    page.get_by_placeholder("Search messages").blur()
    for keys, heading in (("ga", "Inbox"), ("gg", "Agents"), ("gr", "Runs")):
        for key in keys:
            page.keyboard.press(key)
        expect(page.get_by_role("heading", name=heading, level=1)).to_be_visible()
    visitor.context.close()
