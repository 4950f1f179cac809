"""The model of a session: chosen once, used by its next runs."""

from pathlib import Path

from tests.surfaces.http.served_home import ServedHome, serve_home


async def model_of_next_run(web: ServedHome, session: str, agent: str = "one", **body: object) -> str:
    """Run a message in a session; return the model that the endpoint was asked for."""
    run_id = await web.begin(agent, session_id=session, **body)
    await web.until(run_id, "completed")
    return web.endpoint.requests[-1].json["model"]


async def test_the_next_runs_of_a_session_use_its_model(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as web:
        assert await model_of_next_run(web, "ses_1") == "m"
        chosen = await web.ask("PUT", "/v1/sessions/ses_1/model", {"model": "fake/other"})
        assert (chosen.status, chosen.json["model"]) == (200, "fake/other")
        assert await model_of_next_run(web, "ses_1") == "other"
        assert await model_of_next_run(web, "ses_1", overrides={"model": "fake/third"}) == "third"
        assert await model_of_next_run(web, "ses_1", agent="two") == "m", "it is a choice for the agent"
        assert await model_of_next_run(web, "ses_2") == "m"
        assert (await web.ask("GET", "/v1/sessions/ses_1")).json["model"] == "fake/other"
        assert (await web.ask("PUT", "/v1/sessions/ses_1/model", {"model": None})).json["model"] is None
        assert await model_of_next_run(web, "ses_1") == "m"


async def test_a_model_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as web:
        await model_of_next_run(web, "ses_1")
        path = "/v1/sessions/ses_1/model"
        for wrong in ({}, {"model": 1}, {"model": "x" * 1000}, {"model": ""}, {"model": "nowhere/m"}):
            assert (await web.ask("PUT", path, wrong)).status in (400, 413, 422), wrong
        missing = await web.ask("PUT", "/v1/sessions/ses_none/model", {"model": "fake/m"})
        assert missing.problem == "UnknownSession"
        runner, limited = await web.mint("read", "run"), await web.mint("run")
        refused = await web.ask("PUT", path, {"model": "fake/expensive"}, token=runner)
        assert (refused.status, refused.problem) == (403, "ModelNotAllowed")
        assert (await web.ask("PUT", path, {"model": "fake/m"}, token=limited)).problem == "UnknownSession"
        assert (await web.ask("PUT", path, {"model": "fake/m"}, token=runner)).status == 200
