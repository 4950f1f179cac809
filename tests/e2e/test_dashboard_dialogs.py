"""Every dialog of the dashboard is accessible and fits the window."""

from collections.abc import Generator

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.dashboard import (
    AXE,
    WAIT_MS,
    Board,
    Visitor,
    axe_violations,
    fill,
    needs_assets,
    needs_browser,
    open_browser,
)

pytestmark = [needs_browser, needs_assets]
expect.set_options(timeout=WAIT_MS)
DIALOGS = {
    "/schedules": ("New schedule", "Delete"),
    "/inbound-webhooks": ("New inbound webhook", "New secret"),
    "/webhooks": ("New webhook", "Dead letters"),
    "/memory": ("Add memory", "Assign", "Forget"),
    "/vault": ("Add secret", "Delete"),
    "/tokens": ("New token", "Revoke"),
    "/system": ("Delete old sessions",),
}
"""The buttons of each page that open a dialog."""


@pytest.fixture(scope="module")
def filled_board(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Board, dict[str, str]]]:
    board = Board(tmp_path_factory.mktemp("dialogs"))
    try:
        yield board, fill(board)
    finally:
        board.close()


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.mark.skipif(not AXE.exists(), reason="axe is not installed: run `make web`")
@pytest.mark.parametrize(("width", "dark"), [(1280, True), (360, False)])
def test_every_dialog_is_accessible_and_fits(
    browser: Browser, filled_board: tuple[Board, dict[str, str]], width: int, dark: bool
) -> None:
    board, pages = filled_board
    context = browser.new_context(
        viewport={"width": width, "height": 740}, color_scheme="dark" if dark else "light"
    )
    visitor = Visitor(context, board)
    visitor.sign_in()
    dialogs = {
        **DIALOGS,
        pages["run"]: ("Fork", "Replay"),
        pages["session"]: ("Rename", "Delete"),
        pages["events"]: ("run_start",),
    }
    faults: dict[str, list[str]] = {}
    for path, buttons in dialogs.items():
        page = visitor.see(path)
        for name in buttons:
            main = page.locator("#main")
            main.get_by_role("button", name=name).or_(main.get_by_role("link", name=name)).first.click()
            dialog = page.get_by_role("dialog")
            expect(dialog).to_be_visible()
            expect(dialog.locator(".skeleton")).to_have_count(0)
            found = axe_violations(page)
            box = dialog.bounding_box()
            if box is None or box["x"] < 0 or box["x"] + box["width"] > width:
                found.append("it is wider than the window")
            if found:
                faults[f"{path}: {name}"] = found
            dialog.get_by_role("button", name="Close").click()
            expect(dialog).to_have_count(0)
    assert faults == {}
    assert visitor.complaints == []
    context.close()
