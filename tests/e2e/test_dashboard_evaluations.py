"""Evaluations in the dashboard: a case of a run, the matrix of results, and two transcripts side by side."""

import json
from collections.abc import Generator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.e2e.dashboard import (
    AXE,
    WAIT_MS,
    BackgroundLoop,
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


@pytest.fixture
def board(tmp_path: Path) -> Generator[Board]:
    opened = Board(tmp_path)
    try:
        yield opened
    finally:
        opened.close()


def evaluate(board: Board, suite: str, *options: str) -> None:
    """Run a suite as a user of the command line does, while the server has the home."""
    path = board.shell.home / "evals" / f"{suite}.yaml"
    background = BackgroundLoop()
    try:
        done = background.do(board.shell("eval", "run", str(path), "--name", suite, "--fail-below", "0", *options))
    finally:
        background.close()
    assert done.code == 0, done.err


def test_a_run_becomes_a_case_and_its_results_are_compared(board: Board) -> None:
    run = board.run("Which module is the longest? use a tool")["run_id"]
    with open_browser() as browser:
        visitor = Visitor(browser.new_context(viewport={"width": 1280, "height": 800}), board)
        visitor.sign_in()
        page = visitor.see(f"/runs/{run}")
        page.locator("summary", has_text="Add to suite").click()
        page.get_by_label("New suite").fill("modules")
        page.get_by_role("button", name="Add", exact=True).click()
        expect(page.get_by_text("The case which-module-is-the-longest-use-a-tool was added to")).to_be_visible()
        page.get_by_role("link", name="modules").click()
        expect(page.get_by_text("1 case", exact=True)).to_be_visible()
        file = board.shell.home / "evals" / "modules.yaml"
        targets = [{"agent": "default", "model": "fake/m"}, {"agent": "default", "model": "fake/n"}]
        file.write_text(file.read_text() + f"targets: {json.dumps(targets)}\n")
        evaluate(board, "modules", "--repeat", "2")
        evaluate(board, "modules")
        page = visitor.see("/evaluations")
        expect(page.get_by_role("heading", name="Passed over time")).to_be_visible()
        page.locator("#main").get_by_role("link", name="modules").last.click()
        expect(page.get_by_text("1 case", exact=True)).to_be_visible()
        page.locator("#main ul.body").first.get_by_role("link").last.click()
        expect(page.get_by_role("heading", name="Cases by targets")).to_be_visible()
        expect(page.locator("tbody .badge", has_text="2 / 2")).to_have_count(2)
        page.get_by_role("link", name="which-module-is-the-longest-use-a-tool").click()
        expect(page.locator(".sides .transcript")).to_have_count(2)
        for side in page.locator(".sides section").all():
            expect(side).to_contain_text("bash")
            expect(side).to_contain_text("Passed")
        expect(page.get_by_label("Result 1")).not_to_have_value(page.get_by_label("Result 2").input_value())
        page.get_by_role("checkbox", name="Only where targets differ").check()
        expect(page.get_by_text("No case to show")).to_be_visible()
        page.get_by_role("checkbox", name="Only where targets differ").uncheck()
        for path in (page.url.removeprefix(board.url), "/evaluations", "/suites/modules"):
            visitor.see(path)
            if AXE.exists():
                assert axe_violations(page) == []
            page.set_viewport_size({"width": 360, "height": 740})
            assert find_overflow(page) == []
            page.set_viewport_size({"width": 1280, "height": 800})
        assert visitor.complaints == []


def test_evaluations_say_why_a_token_of_one_user_may_not_see_them(board: Board) -> None:
    token = board.call("POST", "/v1/tokens", {"name": "Ann", "scopes": ["read", "run"], "visibility": "own"})
    run = board.run("Summarise the notes")["run_id"]
    with open_browser() as browser:
        visitor = Visitor(browser.new_context(), board)
        page = visitor.sign_in(token["token"])
        visitor.see("/evaluations")
        expect(page.get_by_text("Evaluations are for tokens that see all runs.")).to_be_visible()
        assert run
        visitor.see("/suites/none")
        expect(page.get_by_text("Evaluations are for tokens that see all runs.").first).to_be_visible()
