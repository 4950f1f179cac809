"""Evaluations from programs: on an engine, on a server, and as tests of pytest."""

import asyncio
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.fake_endpoint import FakeEndpoint, says
from tests.sandbox.conftest import needs_bubblewrap
from tests.surfaces.http.served_home import serve_home, write_home
from treadle.domain.errors import UsageError
from treadle.testing import FunctionModel, say

GREETING: dict[str, Any] = {
    "agent": "one",
    "cases": [
        {"name": "good", "message": "How are you?", "checks": [{"check": "contains", "text": "done"}]},
        {"name": "bad", "message": "Who are you?", "checks": [{"check": "contains", "text": "a seal"}]},
    ],
}
GREETING["cases"][0]["checks"][0]["ignore_case"] = True
FILES: dict[str, Any] = {
    "agent": "one",
    "cases": [
        {
            "name": "files",
            "message": "Look.",
            "files": {"note.txt": "hello"},
            "checks": [
                {"check": "file", "path": "note.txt", "contains": "hello"},
                {"check": "command", "run": "grep -q hello note.txt"},
                {"check": "python", "function": "rules.py:is_short"},
            ],
        }
    ],
}


def test_an_agent_of_a_program_is_evaluated(tmp_path: Path) -> None:
    engine = treadle.Engine(f"sqlite:///{tmp_path / 'treadle.db'}", home=tmp_path / "home")
    engine.add_model("fake", FunctionModel(lambda request: say("Done, says " + request.preamble.system)))
    vague = treadle.Agent("one", model="fake/m", instructions="a whale")
    told: list[str] = []
    found = treadle.evaluate(GREETING, engine=engine, agent=vague, on_result=lambda each: told.append(each.case))
    assert (found.rate, sorted(told)) == (0.5, ["bad", "good"])
    assert "bad: contains: the answer lacks `a seal`" in found.explain()

    async def compare() -> treadle.Evaluation:
        async with engine:
            with pytest.raises(UsageError, match="has no case `worst`"):
                await engine.evaluate(GREETING, cases=["worst"])
            seal = treadle.Agent("one", model="fake/m", instructions="a seal")
            return await engine.evaluate(GREETING, agent=seal, baseline="suite")

    again = asyncio.run(compare())
    assert (again.rate, again.comparisons[0].better, again.failures) == (1.0, 1, ())


async def test_both_clients_evaluate_on_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.py").write_text(
        "from words import LIMIT\n\n\ndef is_short(run):\n    return len(run.answer) < LIMIT\n"
    )
    (tmp_path / "words.py").write_text("LIMIT = 20\n")
    async with serve_home(tmp_path) as server:
        async with treadle.AsyncClient(server.url, token=server.token) as client:
            found = await client.evaluate(FILES)
            assert found.rate == 1, found.explain()
            reader = await server.mint("read", "run")
        async with treadle.AsyncClient(server.url, token=reader) as client:
            with pytest.raises(UsageError, match="lacks the scope `admin`"):
                await client.evaluate(GREETING)

        def work() -> treadle.Evaluation:
            with treadle.Client(server.url, token=server.token) as client:
                return client.evaluate(FILES, GREETING, parallel=2)

        found = await asyncio.to_thread(work)
        assert [each.state for each in found.results] == ["passed", "passed", "failed"], found.explain()
        assert (await server.ask("GET", "/v1/evaluations")).json["items"][0]["name"] == "suite"


@needs_bubblewrap
async def test_commands_and_functions_of_checks_are_confined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SECRET_API_KEY", "sk-canary")
    outside = Path("/usr/written-by-a-check")
    (tmp_path / "rules.py").write_text(
        "import os\n\n\ndef escape(run):\n    try:\n"
        f"        open({str(outside)!r}, 'w').write('x')\n        return False, 'it wrote'\n"
        "    except OSError:\n        return 'SECRET_API_KEY' not in os.environ, 'the key is visible'\n"
    )
    checks = [
        {"check": "command", "run": f"touch {outside}", "exit_code": 1},
        {"check": "command", "run": 'test -z "$SECRET_API_KEY"'},
        {"check": "command", "run": "sleep 60", "timeout": 0.2},
        {"check": "python", "function": "rules.py:escape"},
    ]
    case = {"name": "confined", "message": "Look.", "checks": checks}
    async with serve_home(tmp_path) as server, treadle.AsyncClient(server.url, token=server.token) as client:
        [result] = (await client.evaluate({"agent": "one", "cases": [case]})).results
    assert [each.passed for each in result.grades] == [True, True, False, True], result.problem
    assert "did not end within 0.2 s" in result.problem
    assert not outside.exists()


PLUGIN = "treadle.testing.pytest_plugin"
TEST_FILE = """
def test_the_agent_greets(evaluate):
    found = evaluate({suite!r}, cases=["good"])
    assert found.rate == 1


def test_the_agent_says_who_it_is(evaluate):
    evaluate({suite!r})


def test_half_is_enough(evaluate):
    evaluate({suite!r}, minimum=0.5)
"""
SUITE_FILE = """
agent: one
cases:
- name: good
  message: How are you?
  tags: [quick]
  checks: [{check: contains, text: Done}]
- name: bad
  message: Who are you?
  checks: [{check: contains, text: a seal}]
"""


async def test_cases_are_tests_of_pytest(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "evals").mkdir(parents=True)
    (project / "evals" / "greeting.yaml").write_text(SUITE_FILE)
    (project / "test_agent.py").write_text(TEST_FILE.format(suite=GREETING))

    async with FakeEndpoint(policy=lambda _: says("Done.")) as endpoint:
        write_home(tmp_path / "home", endpoint.url)

        async def run(*arguments: str) -> str:
            done = await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "-m", "pytest", "-p", PLUGIN, "-p", "no:cacheprovider", "-q", "-rA", *arguments],
                cwd=project,
                env=os.environ | {"TREADLE_HOME": str(tmp_path / "home"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
                capture_output=True,
                text=True,
                check=False,
            )
            return done.stdout

        output = await run("test_agent.py", "evals/greeting.yaml")
        assert "2 failed, 3 passed" in output, output
        assert "suite, bad (one, run_" in output, "the reason is readable"
        assert output.count("the answer lacks `a seal`: `Done.`") >= 2
        assert "Traceback" not in output
        assert "PASSED evals/greeting.yaml::good" in output
        (project / "evals" / "wrong.yaml").write_text(SUITE_FILE.replace("contains", "contain"))
        output = await run("--evals", "--continue-on-collection-errors", "-k", "quick")
        assert "1 passed" in output, output
        assert "did you mean `contains`?" in output
        assert len(endpoint.requests) == 2, "a case that ran before is not paid again"


def test_pytest_finds_the_plugin() -> None:
    assert PLUGIN in {each.value for each in entry_points(group="pytest11")}
