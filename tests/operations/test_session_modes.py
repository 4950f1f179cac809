"""The mode of a session over HTTP: who may widen it, and what it needs."""

from pathlib import Path

import pytest

from tests.fake_endpoint import Behaviour, calls, fragment, says
from tests.surfaces.http.served_home import serve_home
from treadle.ports.sandbox import Confinement
from treadle.sandbox.commands import ShellCommands


async def test_only_who_may_approve_can_widen_a_mode(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as web:
        path = "/v1/sessions/ses_1/mode"
        run_id = await web.begin("one", session_id="ses_1", mode="ask")
        await web.until(run_id, "completed")
        runner, reviewer = await web.mint("read", "run"), await web.mint("read", "run", "approve")
        for mode, token, status in (
            ("accept_edits", runner, 403),
            (None, runner, 403),
            ("plan", runner, 200),
            ("ask", runner, 403),
            ("ask", reviewer, 200),
            ("accept_edits", reviewer, 200),
            ("wild", reviewer, 422),
        ):
            found = await web.ask("PUT", path, {"mode": mode}, token=token)
            assert found.status in (status, 400 if status == 422 else status), (mode, found)
        assert (await web.ask("GET", "/v1/sessions/ses_1")).json["mode"] == "accept_edits"
        wider = {"message": "go", "session_id": "ses_2", "mode": "auto"}
        refused = await web.ask("POST", "/v1/agents/one/runs", wider, token=runner)
        assert (refused.status, refused.problem) == (403, "ModeNotAllowed")
        second = await web.mint("run")
        assert (await web.ask("PUT", path, {"mode": "plan"}, token=second)).problem == "UnknownSession"


async def test_auto_needs_a_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve_home(tmp_path) as web:
        run_id = await web.begin("one", session_id="ses_1")
        await web.until(run_id, "completed")

        async def none(self: ShellCommands) -> Confinement:
            return Confinement(sandbox=False, reason="bubblewrap is not installed: apt-get install bubblewrap")

        monkeypatch.setattr(ShellCommands, "confinement", none)
        refused = await web.ask("PUT", "/v1/sessions/ses_1/mode", {"mode": "auto"})
        assert refused.status == 409
        assert "apt-get install bubblewrap" in refused.json["detail"]
        fresh = await web.ask("POST", "/v1/agents/one/runs", {"message": "go", "mode": "auto"})
        assert fresh.status == 409


async def test_an_approval_can_change_the_mode(tmp_path: Path) -> None:
    def write(name: str) -> Behaviour:
        return calls(fragment(0, f"call_{name}", "write_file", f'{{"path": "{name}", "content": "x"}}'))

    async with serve_home(tmp_path, write("a"), write("b"), says("done")) as web:
        run_id = await web.begin("asking", session_id="ses_1")
        await web.until(run_id, "waiting")
        [approval] = (await web.ask("GET", "/v1/approvals")).json["items"]
        chosen = {"decision": "approve", "mode": "accept_edits"}
        assert (await web.ask("POST", f"/v1/approvals/{approval['approval_id']}", chosen)).status == 200
        await web.until(run_id, "completed")  # the second file was written without a question
        assert (await web.ask("GET", "/v1/sessions/ses_1")).json["mode"] == "accept_edits"
