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
    expect(visitor.page.get_by_role("heading", name="Runs", level=1)).to_be_visible()
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
    expect(run_page.get_by_text("Beginning… finished.")).to_be_visible()
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
        expect(page.get_by_text("Beginning… finished.")).to_have_count(1)
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
    page.get_by_role("button", name="Fork").click()
    page.get_by_role("dialog").get_by_label("From step").fill("2")
    page.get_by_role("dialog").get_by_role("button", name="Fork").click()
    page.wait_for_url(lambda url: "/runs/run_" in url and not url.endswith(pages["run"]))
    expect(page.locator(".facts")).to_contain_text("Completed")
    page = visitor.see(pages["comparison"])
    expect(page.get_by_text(re.compile("They differ (after|from)"))).to_be_visible()
    assert visitor.complaints == []
    visitor.context.close()


# ── Decisions and chat ──


def test_an_approval_is_edited_and_the_run_continues(browser: Browser, board: Board) -> None:
    visitor = visit(browser, board)
    page = visitor.sign_in()
    started = board.run("approve a count", "reviewer", wait=0)
    page.get_by_role("link", name=re.compile("Approvals")).click()
    page.get_by_role("button", name="Edit").click()
    box = page.get_by_label("Arguments of bash")
    box.fill("{")
    expect(page.get_by_role("button", name="Approve as edited")).to_be_disabled()
    box.fill('{"command": "echo edited by a reviewer"}')
    page.get_by_role("button", name="Approve as edited").click()
    expect(page.get_by_role("heading", name="Nothing waits for a decision")).to_be_visible()
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
    page = visitor.see("/system")
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
    for keys, heading in (("ga", "Approvals"), ("gg", "Agents"), ("gr", "Runs")):
        for key in keys:
            page.keyboard.press(key)
        expect(page.get_by_role("heading", name=heading, level=1)).to_be_visible()
    visitor.context.close()
