"""load_skill, over real skills in a home."""

from pathlib import Path

import pytest

from tests.skills.written import BODY, approve, of_home, skill
from treadle.domain.ids import RunId, SessionId
from treadle.ports.tool import InvalidArguments, ToolContext, ToolError
from treadle.skills.run_skills import FolderSkills
from treadle.tools.load_skill import load_skill


def context(home: Path | None) -> ToolContext:
    run, session = RunId("run_1"), SessionId("ses_1")
    if home is None:
        return ToolContext(run, session, "c1", "run_1/c1", lambda text: None)
    skills = FolderSkills(home)

    def load(name: str, file: str | None) -> str:
        return skills.load(name, ("*",), home, file)

    return ToolContext(run, session, "c1", "run_1/c1", lambda text: None, load_skill=load)


async def call(arguments: str, home: Path | None = None) -> str:
    return str(await load_skill.run(load_skill.parse(arguments), context(home)))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (skill(of_home(tmp_path), "pdf") / "form.md").write_text("The form.\n")
    approve(tmp_path, "pdf")
    return tmp_path


async def test_the_instructions_and_files_of_a_skill_are_returned(home: Path) -> None:
    assert (await call('{"name": "pdf"}', home)).startswith(
        f'{BODY}\n\nFiles of this skill; load_skill(name="pdf", file='
    )
    assert await call('{"name": "pdf", "file": "form.md"}', home) == "The form.\n"


async def test_a_skill_that_cannot_be_loaded_is_explained(home: Path) -> None:
    with pytest.raises(ToolError, match=r"There is no skill 'pdg'\. Did you mean `pdf`\?"):
        await call('{"name": "pdg"}', home)
    with pytest.raises(ToolError, match=r"`pdf` has no file 'from\.md'\. Did you mean form\.md\?"):
        await call('{"name": "pdf", "file": "from.md"}', home)
    with pytest.raises(ToolError, match=r"There are no skills\."):
        await call('{"name": "pdf"}')
    with pytest.raises(InvalidArguments):
        await call("{}")


def test_load_skill_declares_its_effect_and_parameters() -> None:
    spec = load_skill.spec
    assert (spec.name, spec.effect, spec.repeatable) == ("load_skill", "read", True)
    assert list(spec.schema["properties"]) == ["name", "file"]
    assert spec.schema["required"] == ["name"]
