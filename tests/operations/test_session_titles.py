"""The title of a session: given or from its first message, over HTTP."""

from pathlib import Path

from tests.surfaces.http.served_home import serve_home


async def test_a_session_has_a_title_and_can_be_renamed_over_http(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as web:
        run_id = await web.begin(message="Plan the\ntrip to Rome. " * 20)
        session = (await web.ask("GET", f"/v1/runs/{run_id}")).json["session_id"]
        path = f"/v1/sessions/{session}"
        title = (await web.ask("GET", path)).json["title"]
        assert (title[:22], len(title)) == ("Plan the trip to Rome.", 80)
        renamed = await web.ask("PATCH", path, {"title": " Rome,\n 2027 "})
        assert (renamed.status, renamed.json["title"]) == (200, "Rome, 2027")
        listed = (await web.ask("GET", "/v1/sessions")).json["items"]
        assert [each["title"] for each in listed] == ["Rome, 2027"]
        for wrong in ({}, {"title": ""}, {"title": "\u0007"}, {"title": 1}):
            assert (await web.ask("PATCH", path, wrong)).status == 400, wrong
        assert (await web.ask("PATCH", path, {"title": "x" * 81})).problem == "SizeLimitExceeded"
        assert (await web.ask("PATCH", "/v1/sessions/ses_none", {"title": "x"})).problem == "UnknownSession"


async def test_a_token_that_may_not_read_cannot_learn_a_title_by_renaming(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as web:
        run_id = await web.begin(message="A secret plan.")
        session = (await web.ask("GET", f"/v1/runs/{run_id}")).json["session_id"]
        runner = await web.mint("run")
        refused = await web.ask("PATCH", f"/v1/sessions/{session}", {"title": "x"}, token=runner)
        assert (refused.status, refused.problem) == (404, "UnknownSession")
        reader = await web.mint("read")
        refused = await web.ask("PATCH", f"/v1/sessions/{session}", {"title": "x"}, token=reader)
        assert (refused.status, refused.problem) == (403, "Forbidden")
