"""Views of a run: its state while it waits, silent completions, and usage."""

from pathlib import Path

from tests.fake_endpoint import says
from tests.surfaces.http.served_home import SETTINGS, ServedHome, serve_home, wants_a_file


async def test_a_wait_that_times_out_says_what_the_run_waits_for(tmp_path: Path) -> None:
    async with serve_home(tmp_path, policy=lambda _: wants_a_file()) as server:
        run_id = await server.begin("asking")
        await server.until(run_id, "waiting")
        told = await server.ask("GET", f"/v1/runs/{run_id}?wait=0.01")
        assert (told.json["status"], told.json["waiting_for"]) == ("waiting", "approval")


async def test_a_message_steers_a_run_in_progress(tmp_path: Path) -> None:
    async with serve_home(tmp_path, policy=lambda _: wants_a_file()) as server:
        run_id = await server.begin("asking")
        await server.until(run_id, "waiting")
        for body in ({}, {"mode": "steer"}):
            sent = await server.ask("POST", f"/v1/runs/{run_id}/messages", {"message": "Go on.", **body})
            assert sent.status == 202, sent
        journal = (await server.ask("GET", f"/v1/runs/{run_id}/journal")).json["items"]
        steered = [event["data"]["mode"] for event in journal if event["type"] == "message_steered"]
        assert steered == ["steer"] * 2
        refused = await server.ask("POST", f"/v1/runs/{run_id}/messages", {"message": "x", "mode": "queue"})
        assert refused.status == 400


async def test_a_message_after_the_current_run_is_a_separate_run_and_an_ended_run_can_be_continued(
    tmp_path: Path,
) -> None:
    async with serve_home(tmp_path, wants_a_file(), says("No."), says("Later."), says("More.")) as server:
        first = await server.begin("asking")
        session = (await server.until(first, "waiting"))["session_id"]
        assert await server.begin("asking", session_id=session) == first, "a run that waits gets the message"
        later = await server.begin("asking", session_id=session, after_current=True)
        assert (await server.ask("GET", f"/v1/runs/{later}")).json["status"] == "pending"
        early = {"message": "More.", "resumed_from": first}
        assert (await server.ask("POST", "/v1/agents/asking/runs", early)).problem == "InvalidState"
        [approval] = (await server.ask("GET", "/v1/approvals")).json["items"]
        await server.ask("POST", f"/v1/approvals/{approval['approval_id']}", {"decision": "deny"})
        assert (await server.until(later, "completed"))["result"]["text"] == "Later."
        more = await server.until(await server.begin("asking", resumed_from=first), "completed")
        assert (more["session_id"], more["result"]["text"]) == (session, "More.")
        journal = (await server.ask("GET", f"/v1/runs/{more['run_id']}/journal")).json["items"]
        assert journal[0]["data"]["resumed_from"] == first
        elsewhere = {"message": "More.", "resumed_from": first, "session_id": "ses_other"}
        assert (await server.ask("POST", "/v1/agents/asking/runs", elsewhere)).problem == "UsageError"
        limited = await server.mint("run", agents=("one",))
        hidden = await server.ask("POST", "/v1/agents/one/runs", early, token=limited)
        assert (hidden.status, hidden.problem) == (404, "UnknownRun")


async def test_a_submission_that_waits_answers_with_the_state_of_its_run(tmp_path: Path) -> None:
    async with serve_home(tmp_path, policy=lambda _: wants_a_file()) as server:
        seconds = 0.01
        while True:  # a longer wait, until the run has come so far within it
            reply = await server.ask("POST", f"/v1/agents/asking/runs?wait={seconds}", {"message": "Go."})
            assert reply.status == 202
            assert {"run_id", "session_id"} < set(reply.json)
            if reply.json["status"] == "waiting":
                break
            assert reply.json["status"] in ("pending", "running")
            seconds *= 2
        assert reply.json["waiting_for"] == "approval"
        assert reply.json["result"] is None


async def test_silent_runs_and_metrics_are_returned(tmp_path: Path) -> None:
    async with serve_home(tmp_path, says("NO_REPLY"), says("Hello.")) as server:
        silent = (await server.ask("POST", "/v1/agents/one/runs?wait=60", {"message": "Go."})).json
        assert (silent["outcome"], silent["result"]["text"], silent["result"]["silent"]) == ("silent", "", True)
        journal = (await server.ask("GET", f"/v1/runs/{silent['run_id']}/journal")).json["items"]
        assert journal[-1]["type"] == "run_end"
        assert journal[-1]["data"]["silent"] is True
        loud = (await server.ask("POST", "/v1/agents/one/runs?wait=60", {"message": "Go."})).json
        assert (loud["result"]["text"], loud["result"]["silent"]) == ("Hello.", False)
        assert loud["result"]["metrics"]["actions"] == 0
        assert (loud["provider"], loud["model"], loud["message"]) == ("fake", "m", "Go.")
        used = loud["result"]["metrics"]
        assert {"steps", "cost", "credits", "input_tokens", "first_token_ms"} < set(used)
        steps = (await server.ask("GET", f"/v1/runs/{loud['run_id']}/steps")).json
        assert (used["cache_hit_rate"], used["overhead_ms"]) == (steps["cache_hit_rate"], steps["overhead_ms"])


async def test_a_caller_that_may_approve_is_asked_and_another_one_is_not(tmp_path: Path) -> None:
    async def perform() -> None:
        async with serve_home(tmp_path, wants_a_file(), says("Done."), wants_a_file()) as server:
            folder = server.home.path / "agents" / "careful"
            folder.mkdir()
            (folder / "config.yaml").write_text(
                f"name: careful\nmodel: fake/m\n{SETTINGS}tools: [write_file]\napprovals: {{default: ask}}\n"
            )
            asked = await start(server, await server.mint("read", "run", "approve"))
            waiting = await server.until(asked, "waiting")
            assert waiting["waiting_for"] == "approval"
            [approval] = (await server.ask("GET", "/v1/approvals")).json["items"]
            decided = {"decision": "deny", "note": "Not this file."}
            await server.ask("POST", f"/v1/approvals/{approval['approval_id']}", decided)
            await server.until(asked, "completed")
            await server.until(await start(server, await server.mint("read", "run")), "completed")
            assert (await server.ask("GET", "/v1/approvals")).json["items"] == []

    async def start(server: ServedHome, token: str) -> str:
        reply = await server.ask("POST", "/v1/agents/careful/runs", {"message": "Go."}, token=token)
        return reply.json["run_id"]

    await perform()
