"""`treadle eval`: from a recorded run to a verdict in three commands."""

from pathlib import Path

import pytest

from tests.fake_endpoint import FakeEndpoint, says
from tests.surfaces.shell import Shell
from tests.surfaces.test_cli import against


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path / "home")
    made.cwd = tmp_path / "project"
    made.cwd.mkdir()
    return made


def test_three_commands_lead_from_a_run_to_a_verdict(shell: Shell, tmp_path: Path) -> None:
    right, wrong = says("It is on Friday."), says("I do not know.")

    @against(shell, right, right, wrong)
    async def _(server: FakeEndpoint) -> None:
        await shell("run", "When is the release?")
        added = await shell("eval", "add", "last", "--contains", "Friday")
        assert added.code == 0, added
        assert (tmp_path / "project" / "evals" / "default.yaml").exists()
        first = await shell("eval", "run", "default", "--name", "main")
        assert first.code == 0, first
        assert "default: 1 of 1 passed, 100%" in first.out
        file = shell.home / "agents" / "default" / "config.yaml"
        file.write_text(f"{file.read_text()}persona: Be vague.\n")
        report = tmp_path / "report.xml"
        worse = await shell(
            "eval", "run", "default", "--baseline", "main", "--fail-below", "1", "--junit", str(report)
        )
        assert worse.code == 1, worse
        assert "not distinguishable from main" in worse.out
        assert 'failures="1"' in report.read_text()
        again = await shell("eval", "run", "default", "--fail-below", "0.5")
        assert again.code == 1, "the same run is graded again, and not paid again"
        assert len(server.requests) == 3
        shown = await shell("eval", "show", "main")
        assert "1 of 1 passed" in shown.out
        assert "main" in (await shell("eval", "list")).out
        assert (await shell("eval", "feedback", "last", "bad", "Too vague.")).code == 0
        from_people = await shell("eval", "add", "--feedback", "bad", "--suite", "disliked")
        assert from_people.code == 0, from_people
        lines = (await shell("eval", "export", "default", "--results", "main")).json
        assert lines[0]["item"]["expected"] == "Friday"
        assert lines[0]["sample"]["output_text"] == "It is on Friday."
        data = tmp_path / "data.jsonl"
        data.write_text('{"inputs": {"question": "When?"}, "outputs": {"answer": "Friday"}}\n')
        assert (await shell("eval", "import", str(data), "--suite", "imported")).code == 0
        assert "text: Friday" in (tmp_path / "project" / "evals" / "imported.yaml").read_text()
        broken = tmp_path / "project" / "evals" / "default.yaml"
        broken.write_text(broken.read_text().replace("check: contains", "check: contain"))
        refused = await shell("eval", "run", "default")
        assert refused.code == 2
        assert "did you mean `contains`?" in refused.complaint
