"""Suites over HTTP: a case is made of a run with one request, and every reader sees it."""

from pathlib import Path

from tests.surfaces.http.served_home import serve_home
from treadle.domain.evaluations import Evaluation
from treadle.operations import evaluations
from treadle.operations.operation import LocalCaller

RUNS = "/v1/agents/one/runs?wait=10"


async def test_a_run_becomes_a_case_of_a_suite_of_the_home(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        run_id = (await server.ask("POST", RUNS, {"message": "Hello there."})).json["run_id"]
        wanted = {"run_id": run_id, "contains": ["hello"]}
        added = await server.ask("POST", "/v1/suites/greetings/cases", wanted)
        assert (added.status, added.json) == (
            201,
            {"suite": "greetings", "case": "hello-there", "run_id": run_id},
        )
        second = (await server.ask("POST", "/v1/suites/greetings/cases", {"run_id": run_id, "case": "again"})).json
        assert second["case"] == "again"
        reader = await server.mint("read")
        [listed] = (await server.ask("GET", "/v1/suites", token=reader)).json["items"]
        assert (listed["name"], listed["cases"], listed["targets"]) == ("greetings", 2, ["one"])
        shown = (await server.ask("GET", "/v1/suites/greetings", token=reader)).json["suite"]
        assert shown["cases"][0]["source"] == run_id
        assert shown["cases"][0]["checks"] == [{"check": "contains", "text": "hello", "ignore_case": False}]
        own = await server.mint("read", "run", visibility="own")
        for token, expected in ((reader, 403), (own, 403)):
            assert (await server.ask("POST", "/v1/suites/greetings/cases", wanted, token)).status == expected
        assert (await server.ask("GET", "/v1/suites", token=own)).status == 403
        for name, body, status in (
            ("greetings", {"run_id": "run_none"}, 404),
            ("greetings", {"run_id": run_id, "step": 9}, 400),
            ("..", wanted, 404),
            (".hidden", wanted, 400),
        ):
            assert (await server.ask("POST", f"/v1/suites/{name}/cases", body)).status == status, (name, body)
        assert (await server.ask("GET", "/v1/suites/none")).status == 404
        file = server.home.path / "evals" / "greetings.yaml"
        file.write_text(file.read_text().replace("check: contains", "check: contain"))
        [broken] = (await server.ask("GET", "/v1/suites")).json["items"]
        assert "did you mean `contains`" in broken["error"]
        assert (await server.ask("POST", "/v1/suites/greetings/cases", wanted)).status == 400


async def test_evaluations_are_listed_by_name(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        caller = LocalCaller(server.engine.context)
        for number, name in enumerate(("main", "main", "other"), 1):
            made = Evaluation(f"eva_{number}", name, "candidate", 1.0, float(number), (), ())
            await caller.call(evaluations.RECORD, evaluations.RecordEvaluation(made))
        listed = (await server.ask("GET", "/v1/evaluations?name=main")).json["items"]
        assert [each["evaluation_id"] for each in listed] == ["eva_2", "eva_1"]
        page = (await server.ask("GET", "/v1/evaluations?limit=1")).json
        rest = (await server.ask("GET", f"/v1/evaluations?cursor={page['next']}")).json["items"]
        assert [each["evaluation_id"] for each in rest] == ["eva_2", "eva_1"]
