"""Every surface warns before a destructive call is decided, and offers to approve this call only."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.fake_endpoint import FakeEndpoint, says
from tests.surfaces.shell import Shell
from tests.surfaces.terminal import Terminal, against, wants
from tests.surfaces.tui.stage import open_app, read_screen, wait_for
from treadle.domain.ids import AgentId, ApprovalId, RunId, SessionId
from treadle.operations.approvals import ApprovalView
from treadle.surfaces.acp.permission_requests import make_options
from treadle.surfaces.tui.chat_state import PendingApproval

WARNING = "removes folders with everything in them"


def make_view() -> ApprovalView:
    at = datetime(2026, 11, 1, tzinfo=UTC)
    return ApprovalView(
        approval_id=ApprovalId("apr_1"),
        run_id=RunId("run_1"),
        session_id=SessionId("ses_1"),
        agent_id=AgentId("agt_1"),
        parent_run_id=None,
        call_id="c1",
        tool="bash",
        arguments='{"command": "rm -rf src"}',
        reason="`bash` is on ask by default",
        pattern=None,
        requested_at=at,
        expires_at=None,
        decision=None,
        destructive=f"`rm -rf src` {WARNING}",
    )


def test_the_prompt_and_the_list_of_approvals_warn(shell: Shell, folder: Path) -> None:
    (folder / "src").mkdir()

    @against(shell, wants("bash", command="rm -rf src"), says("Removed."))
    async def _(server: FakeEndpoint) -> None:
        async with Terminal(shell, "run", "Clean up.", folder=folder) as terminal:
            await terminal.shows("Run it?")
            assert "Warning: `rm -rf src`" in " ".join(terminal.screen.split())
            assert "[s]ession" not in terminal.screen
            assert "[a]lways" not in terminal.screen
            terminal.types("s\n")
            await terminal.shows("Run it?")
            terminal.types("l\n")
            assert await terminal.ends() == 4
            found = re.search(r"treadle approvals approve (apr_\S+)", terminal.screen)
        assert found is not None
        listed = json.loads((await shell("approvals", "list", "--json")).out)
        assert WARNING in listed["destructive"]
        assert WARNING in (await shell("approvals", "show", found[1])).out
        refused = await shell("approvals", "approve", found[1], "--session")
        assert refused.code == 2
        assert (folder / "src").exists()
        assert (await shell("approvals", "approve", found[1])).code == 0
        assert not (folder / "src").exists()


async def test_the_terminal_ui_warns(tmp_path: Path) -> None:
    async with open_app(tmp_path, size=(120, 40)) as (app, pilot):
        app.chat.pending = [PendingApproval("default", make_view())]
        app.review.show()
        await wait_for(pilot, lambda: WARNING in " ".join(read_screen(app).split()))
        assert "4 allow" not in read_screen(app)


def test_an_editor_offers_no_session() -> None:
    kinds: list[Any] = [option.kind for option in make_options(make_view())]
    assert kinds == ["allow_once", "reject_once"]
