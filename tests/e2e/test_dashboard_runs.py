"""Runs in the dashboard: the tree of sub-agents and the timeline while they grow, and pages of the list."""

import json
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.e2e.dashboard import (
    FORGETFUL,
    WAIT_MS,
    Board,
    Visitor,
    needs_assets,
    needs_browser,
    open_browser,
    reply,
)
from tests.fake_endpoint import Behaviour, Request, calls, fragment

pytestmark = [needs_browser, needs_assets]
expect.set_options(timeout=WAIT_MS)
PAGE_RUNS = 50


def delegate(request: Request) -> Behaviour:
    """Start a sub-agent if the message says so, with one `delegate` less."""
    messages: list[dict[str, Any]] = request.json.get("messages", [])
    text = str(messages[-1]["content"]) if messages else ""
    if messages and messages[-1]["role"] == "user" and "delegate" in text:
        arguments = json.dumps({"message": "slow " + "delegate " * (text.count("delegate") - 1)})
        return calls(fragment(0, f"call_{len(messages)}", "agent_spawn", arguments))
    return reply(request)


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.fixture
def board(tmp_path: Path) -> Generator[Board]:
    opened = Board(tmp_path, delegate)
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


def rows(page: Page) -> Locator:
    """Return the runs of a tree, without the total."""
    return page.locator("#main tbody tr.link")


def test_the_tree_of_sub_agents_grows_and_ends_while_it_is_shown(visitor: Visitor, board: Board) -> None:
    leader = {"name": "leader", "model": "fake/m", "tools": ["agent_spawn"], "memory": FORGETFUL}
    board.call("POST", "/v1/agents", {**leader, "approvals": {"default": "ask", "via": "api"}})
    run = board.run("slow delegate delegate", "leader", wait=0)["run_id"]
    page = visitor.see(f"/runs/{run}?tab=tree")
    for number in (1, 2):  # each sub-agent starts the next one after an approval
        expect(rows(page)).to_have_count(number)
        expect(rows(page).last).to_contain_text("Waits for approval")
        [approval] = board.call("GET", "/v1/approvals")["items"]
        board.call("POST", f"/v1/approvals/{approval['approval_id']}", {"decision": "approve"})
    expect(rows(page)).to_have_count(3)
    expect(rows(page).last).to_contain_text("Running")
    board.model.go_on()
    for number in range(3):
        expect(rows(page).nth(number)).to_contain_text("Completed")
    rows(page).last.get_by_role("link").click()
    expect(page.locator("nav[aria-label=Views], nav.tabs").first).to_be_visible()
    assert run not in page.url


def test_the_timeline_shows_steps_calls_and_what_is_in_progress(visitor: Visitor, board: Board) -> None:
    run = board.run("Which module is the longest? use a tool")["run_id"]
    page = visitor.see(f"/runs/{run}?tab=timeline")
    spans = page.locator(".fall button.span")
    expect(spans).to_have_count(5)
    names = [each.strip() for each in spans.locator(".name").all_inner_texts()]
    assert names == ["Step 1", "m", "bash", "Step 2", "m"]
    boxes = [each.bounding_box() for each in spans.locator(".bar").all()]
    tracks = [each.bounding_box() for each in spans.locator(".track").all()]
    for box, track in zip(boxes, tracks, strict=True):
        assert box is not None
        assert track is not None
        assert track["x"] - 1 <= box["x"] <= box["x"] + box["width"] <= track["x"] + track["width"] + 3
    starts = [box["x"] for box in boxes if box is not None]
    assert starts == sorted(starts), "in the order of their starts"
    spans.nth(2).click()
    detail = page.get_by_role("complementary", name="Tool call")
    expect(detail).to_contain_text("echo counted 14 modules")
    page.get_by_role("button", name="Zoom to it").click()
    expect(spans).to_have_count(2)  # the step and its call: nothing else is in that part of the time
    page.get_by_role("button", name="All", exact=True).click()
    expect(spans).to_have_count(5)
    spans.nth(1).click()
    expect(page.get_by_role("complementary", name="Model call")).to_contain_text("From cache")
    page.get_by_role("link", name="Open step 1").click()
    expect(page).to_have_url(re.compile("tab=steps"))
    slow = board.run("slow please", wait=0)["run_id"]
    page = visitor.see(f"/runs/{slow}?tab=timeline")
    expect(spans.last).to_contain_text("in progress")
    board.model.go_on()
    expect(spans.filter(has_text="in progress")).to_have_count(0)


def test_the_timeline_nests_child_runs(visitor: Visitor, board: Board) -> None:
    """The spans of child runs are below the call that started them, while they happen too."""
    leader = {"name": "leader", "model": "fake/m", "tools": ["agent_spawn"], "memory": FORGETFUL}
    board.call("POST", "/v1/agents", leader)
    run = board.run("slow delegate", "leader", wait=0)["run_id"]
    page = visitor.see(f"/runs/{run}?tab=timeline")
    names = page.locator(".fall button.span .name")
    in_child = names.filter(has_text=re.compile(r"^\s*m\s*$"))
    expect(in_child).to_have_count(2)
    expect(page.locator(".fall .time").filter(has_text="in progress")).not_to_have_count(0)
    board.model.go_on()
    expect(in_child).to_have_count(3)
    expect(page.locator(".fall .time").filter(has_text="in progress")).to_have_count(0)
    everything = names.count()
    page.get_by_role("checkbox", name="Only the critical path").check()
    expect(names).to_have_count(4)  # two calls of the leader, the child run and its call
    page.get_by_role("checkbox", name="Only the critical path").uncheck()
    page.get_by_role("button", name="Spans of leader").click()
    expect(names).to_have_count(everything - 2)


def test_a_run_is_searched_linked_to_and_downloaded(visitor: Visitor, board: Board) -> None:
    run = board.run("Which module is the longest? use a tool")["run_id"]
    page = visitor.see(f"/runs/{run}")
    search = page.get_by_role("searchbox", name="Search in this run")
    search.fill("COUNTED 14")
    expect(page.get_by_text("1 item contains it.")).to_be_visible()
    page.locator("main ol.panel").get_by_role("link").click()
    expect(page.locator("li.linked")).to_contain_text("counted 14 modules")
    expect(page).to_have_url(re.compile(r"item=\d+\.\d+"))
    linked = page.url
    page.go_back()
    expect(page.get_by_text("1 item contains it.")).to_be_visible()
    search.fill("no such words")
    expect(page.get_by_text("Nothing found")).to_be_visible()
    page = visitor.see(linked.removeprefix(board.url))
    expect(page.locator("li.linked").get_by_label("Result")).to_contain_text("counted 14 modules")
    for kind, ending in (("As Markdown", ".md"), ("As JSON", ".json")):
        page.locator("summary", has_text="Download").click()
        with page.expect_download() as waited:
            page.get_by_role("button", name=kind).click()
        assert waited.value.suggested_filename == run + ending
        text = waited.value.path().read_text()
        if ending == ".md":
            assert text.startswith("# Which module is the longest?")
            assert "echo counted 14 modules" in text
        else:
            assert [item["kind"] for item in json.loads(text)["items"]] == ["message", "call", "answer", "end"]
        page.keyboard.press("Escape")


def test_lines_of_answers_have_at_most_75_characters(visitor: Visitor, board: Board) -> None:
    sentence = "The internationalisation of the settings page needs a small change in its layout. "
    run = board.run(sentence * 8)["run_id"]
    page = visitor.see(f"/runs/{run}")
    said = page.locator("p.said").first
    widest = said.evaluate(
        """(element) => {
            const range = document.createRange();
            const text = element.firstChild;
            const lines = new Map();
            for (let at = 0; at < text.length; at++) {
                range.setStart(text, at);
                range.setEnd(text, at + 1);
                const top = Math.round(range.getBoundingClientRect().top);
                lines.set(top, (lines.get(top) ?? 0) + 1);
            }
            return Math.max(...lines.values());
        }"""
    )
    assert 60 <= widest <= 75


def test_pages_of_runs_are_turned_back(visitor: Visitor, board: Board) -> None:
    for number in range(PAGE_RUNS + 5):
        board.run(f"Question {number}", wait=0)
    page = visitor.see("/runs")
    older, newer = page.get_by_role("button", name="Older"), page.get_by_role("button", name="Newer")
    expect(rows(page)).to_have_count(PAGE_RUNS)
    expect(newer).to_have_count(0)
    first = rows(page).first.locator(".message").inner_text()
    older.click()
    expect(rows(page)).to_have_count(5)
    expect(rows(page).last).to_contain_text("Question 0")
    expect(older).to_have_count(0)
    newer.click()
    expect(rows(page)).to_have_count(PAGE_RUNS)
    expect(rows(page).first).to_contain_text(first)
    expect(newer).to_have_count(0)
    older.click()
    expect(rows(page)).to_have_count(5)
    page.reload()  # a link to a later page has no page before it in the history
    expect(rows(page)).to_have_count(5)
    newer.click()
    expect(rows(page)).to_have_count(PAGE_RUNS)
    assert "cursor" not in page.url


def test_runs_are_filtered_by_tag_metadata_and_user(visitor: Visitor, board: Board) -> None:
    """A label of a run leads to the runs that have it, and a filter can be typed and removed."""
    owner = board.run("nightly one", tags=["nightly"], metadata={"ticket": "<b>42</b>"})["owner"]
    board.run("other one", tags=["other"])
    page = visitor.see("/runs")
    expect(rows(page)).to_have_count(2)
    page.get_by_role("link", name="nightly", exact=True).click()
    expect(rows(page)).to_have_count(1)
    expect(rows(page)).to_contain_text("nightly one")
    page.get_by_role("button", name="Tag: nightly").click()
    expect(rows(page)).to_have_count(2)
    page.get_by_label("Tag or metadata").fill("ticket=<b>42</b>")
    page.get_by_label("Tag or metadata").press("Enter")
    expect(rows(page)).to_have_count(1)
    rows(page).get_by_role("link").first.click()
    facts = page.locator("dl.facts")
    expect(facts).to_contain_text("ticket: <b>42</b>")
    facts.get_by_role("link", name=owner).click()
    expect(page).to_have_url(re.compile(f"user={owner}"))
    expect(rows(page)).to_have_count(2)


def test_usage_is_filtered_by_user_and_tag(visitor: Visitor, board: Board) -> None:
    """Each run counts once in the sums, even with two tags. A tag can be chosen in the list, typed and removed."""
    owner = board.run("nightly one", tags=["nightly", "slow"])["owner"]
    board.run("other one", tags=["other"])
    page = visitor.see("/usage?by=tag")
    facts, lines = page.locator("dl.facts"), page.locator("tbody tr")
    expect(lines).to_have_count(3)
    expect(facts).to_contain_text("Runs 2")
    lines.get_by_role("button", name="nightly").click()
    expect(facts).to_contain_text("Runs 1")
    expect(page.get_by_label("Tag", exact=True)).to_have_value("nightly")
    expect(lines).to_contain_text("default")
    page.get_by_label("Tag", exact=True).fill("")
    expect(facts).to_contain_text("Runs 2")
    page.get_by_label("User", exact=True).fill("nobody-has-this")
    page.get_by_label("User", exact=True).press("Enter")
    expect(page.get_by_role("heading", name="No usage in this period")).to_be_visible()
    page.get_by_label("User", exact=True).fill(owner)
    page.get_by_label("User", exact=True).press("Enter")
    expect(facts).to_contain_text("Runs 2")
    page.get_by_label("Group by").select_option("User")
    expect(lines.get_by_role("button", name=owner)).to_be_visible()


def test_the_files_that_a_run_changed_are_shown_and_restored(visitor: Visitor, board: Board) -> None:
    run = board.run("write a file")["run_id"]
    page = visitor.see(f"/runs/{run}?tab=files")
    changed = page.locator("details").filter(has_text="made.txt")
    changed.locator("summary").click()
    expect(changed.locator("pre")).to_contain_text("+made")
    page.get_by_role("button", name="Undo the changes").click()
    expect(page.get_by_text("No file differs from what it was before the run.")).to_be_visible()
