"""Channels in the dashboard: people are paired, approved and revoked, against a fake platform."""

import re
from contextlib import AsyncExitStack
from pathlib import Path

from playwright.sync_api import expect

from tests.channels.fake_telegram import TOKEN, FakeTelegram, serve_fake_telegram
from tests.e2e.dashboard import (
    WAIT_MS,
    BackgroundLoop,
    Board,
    Visitor,
    axe_violations,
    needs_assets,
    needs_browser,
    open_browser,
)

pytestmark = [needs_browser, needs_assets]
expect.set_options(timeout=WAIT_MS)
ANNA = 5


def test_a_channel_is_tested_and_people_are_approved_and_revoked(tmp_path: Path) -> None:
    background, stack, fake = BackgroundLoop(), AsyncExitStack(), FakeTelegram()
    background.do(stack.enter_async_context(serve_fake_telegram(fake)))
    settings = {"token": "{{vault:TELEGRAM_TOKEN}}", "url": fake.url}
    channel = {"platform": "telegram", "agent": "default", "settings": settings}
    board = Board(tmp_path, channels={"telegram": channel}, secrets={"TELEGRAM_TOKEN": TOKEN})
    try:
        with open_browser() as browser:
            visitor = Visitor(browser.new_context(), board)
            visitor.sign_in()
            background.do(fake.write(ANNA, "hello"))
            said = background.do(fake.wait_for(lambda: fake.texts(ANNA)))
            code = said[-1].split("pairing code is ")[1][:8]
            page = visitor.see("/system")
            row = page.get_by_role("row").filter(has_text="telegram · default")
            expect(row).to_contain_text("1 waiting for approval")
            row.get_by_role("button", name="Test").click()
            expect(page.get_by_text("telegram works")).to_be_visible()
            page.get_by_label("Pairing code").fill(code)
            page.get_by_role("button", name="Approve").click()
            expect(page.get_by_text("may write on telegram now")).to_be_visible()
            assert axe_violations(page) == []
            row.get_by_role("button", name="Revoke").click()
            page.get_by_role("dialog").locator("button.primary").click()
            expect(row.get_by_role("button", name="Revoke")).to_have_count(0)
            row.get_by_role("button", name="Create a code").click()
            expect(page.get_by_text(re.compile(r"Send \w{8} to the bot"))).to_be_visible()
            assert visitor.complaints == []
            visitor.context.close()
    finally:
        board.close()
        background.do(stack.aclose())
        background.close()
