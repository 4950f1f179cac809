"""The chat of the dashboard: questions, models, drafts, and a sign-in that expires while someone types."""

import re
from collections.abc import Generator

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.dashboard import WAIT_MS, Board, Visitor, needs_assets, needs_browser, open_browser

pytestmark = [needs_browser, needs_assets]
expect.set_options(timeout=WAIT_MS)
WEEK = 7 * 24 * 3600


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Generator[Board]:
    opened = Board(tmp_path_factory.mktemp("chat"))
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def visitor(browser: Browser, board: Board) -> Generator[Visitor]:
    found = Visitor(browser.new_context(), board)
    found.sign_in()
    yield found
    found.context.close()


def test_an_agent_asks_the_person_who_signed_in(visitor: Visitor, board: Board) -> None:
    """The agent has no `via: api`: it can ask because a person writes."""
    page = visitor.see("/chat?agent=default")
    page.get_by_label("Message", exact=True).fill("ask me first")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text("Which branch should I use?", exact=True)).to_be_visible()
    with page.expect_response(re.compile(r"/v1/runs/[^/]+/answers/")) as answered:
        page.get_by_placeholder("Your answer").fill("the release branch")
        page.get_by_role("button", name="Answer", exact=True).click()
    assert answered.value.status == 202
    expect(page.get_by_text("Completed")).to_be_visible()
    assert "the release branch" in str(board.model.endpoint.requests[-1].json["messages"][-1])
    assert "the user writes in the dashboard" in str(board.model.endpoint.requests[-1].json["messages"])


def test_a_model_and_a_mode_are_chosen_for_a_session(visitor: Visitor, board: Board) -> None:
    page = visitor.see("/chat?agent=default")
    picker = page.get_by_label("Model", exact=True)
    picker.select_option("fake/n")
    page.get_by_label("Message", exact=True).fill("hello")
    page.get_by_role("button", name="Send").click()
    page.wait_for_url(re.compile(r"/chat/ses_"))
    expect(page.get_by_text("Completed")).to_be_visible()
    assert board.model.endpoint.requests[-1].json["model"] == "n"
    page.reload()
    expect(picker).to_have_value("fake/n")
    with page.expect_response(re.compile(r"/v1/sessions/[^/]+/model$")):
        picker.select_option("")
    page.get_by_label("Message", exact=True).fill("hello again")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text("Completed")).to_have_count(2)
    assert board.model.endpoint.requests[-1].json["model"] == "m"
    with page.expect_response(re.compile(r"/v1/sessions/[^/]+/mode$")) as chosen:
        page.locator("label.mode select").select_option("plan")
    assert chosen.value.ok
    page.reload()
    expect(page.locator("label.mode select")).to_have_value("plan")


def test_drafts_stay_with_their_sessions_until_they_are_sent(visitor: Visitor, board: Board) -> None:
    first, second = (board.run(f"hello {number}")["session_id"] for number in (1, 2))
    for path, text in ((f"/chat/{first}", "for the first"), (f"/chat/{second}", "for the second"), ("/chat", "?")):
        visitor.see(path).get_by_label("Message", exact=True).fill(text)
    page = visitor.see(f"/chat/{first}")
    box = page.get_by_label("Message", exact=True)
    expect(box).to_have_value("for the first")
    page.reload()
    expect(box).to_have_value("for the first")
    page.get_by_role("button", name="Send").click()
    expect(box).to_have_value("")
    page.reload()
    page.get_by_text("Completed").nth(1).wait_for()
    expect(box).to_have_value("")
    expect(visitor.see(f"/chat/{second}").get_by_label("Message", exact=True)).to_have_value("for the second")
    page.get_by_role("button", name="Sign out", exact=True).click()
    page.get_by_label("Access token").wait_for()
    assert page.evaluate("Object.keys(localStorage).filter((key) => key.startsWith('draft:'))") == []


def test_an_expired_sign_in_loses_no_text(browser: Browser, board: Board) -> None:
    made = board.call("POST", "/v1/tokens", {"name": "typist", "scopes": ["read", "run"]})
    visitor = Visitor(browser.new_context(), board)
    visitor.sign_in(made["token"])
    session = board.run("hello")["session_id"]
    page = visitor.see(f"/chat/{session}")
    page.get_by_label("Message", exact=True).fill("half a mess")
    page.get_by_role("button", name="Rename").click()
    page.get_by_role("dialog").get_by_label("Title").fill("A better title")
    board.change_store("UPDATE sign_ins SET created_at = created_at - ? WHERE token_id = ?", WEEK, made["token_id"])
    token = page.get_by_label("Access token")
    expect(token).to_be_visible()
    expect(page.get_by_text("what you typed is still there")).to_be_visible()
    expect(page.get_by_label("Title")).not_to_be_visible()
    token.fill(made["token"])
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("dialog").get_by_label("Title")).to_have_value("A better title")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="A better title", level=1)).to_be_visible()
    expect(page.get_by_label("Message", exact=True)).to_have_value("half a mess")
    visitor.context.close()


def test_a_user_with_other_rights_does_not_get_the_pages_of_another(browser: Browser, board: Board) -> None:
    made = board.call("POST", "/v1/tokens", {"name": "reader", "scopes": ["read"]})
    visitor = Visitor(browser.new_context(), board)
    visitor.sign_in()
    page = visitor.see("/schedules")
    page.get_by_role("button", name="New schedule").first.click()
    page.get_by_role("dialog").get_by_label("Message").fill("of the administrator")
    board.change_store("UPDATE sign_ins SET created_at = created_at - ?", WEEK)
    page.get_by_label("Access token").fill(made["token"])
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Not allowed")).to_be_visible()
    expect(page.get_by_role("link", name="Vault")).to_have_count(0)
    expect(page.get_by_role("dialog")).to_have_count(0)
    visitor.context.close()


def test_recalled_notes_open_as_plain_text_and_sessions_show_their_folder(visitor: Visitor, board: Board) -> None:
    board.call("POST", "/v1/agents", {"name": "keen", "model": "fake/m", "memory": {"embedder": "none"}})
    board.call(
        "POST", "/v1/memory", {"agent": "keen", "text": "The train <b>leaves</b> at ![ten](http://127.0.0.1/x)."}
    )
    page = visitor.see("/chat?agent=keen")
    page.get_by_label("Message", exact=True).fill("when does the train leave?")
    page.get_by_role("button", name="Send").click()
    page.wait_for_url(re.compile(r"/chat/ses_"))
    line = page.get_by_text("Recalled 1 note", exact=True)
    expect(line).to_be_visible()
    text = page.get_by_text("The train <b>leaves</b> at ![ten](http://127.0.0.1/x).")
    expect(text).to_be_hidden()
    line.click()
    expect(text).to_be_visible()
    expect(page.get_by_label("Sessions", exact=True).get_by_text("/workspaces/keen").first).to_be_visible()
