"""The skills that a run can load: those that a person approved, with the approved content."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import cycle
from pathlib import Path
from threading import Event

import pytest

from tests.skills.written import BODY, approve, looked_at, of_home, of_workspace, skill
from treadle.domain.errors import ConfigError
from treadle.ports.skills import Skill, Skills
from treadle.skills.inventory import SkillInventory
from treadle.skills.run_skills import FolderSkills


def names(skills: Skills, workspace: Path, *wanted: str) -> list[str]:
    return [skill.name for skill in skills.list_offered(wanted or ("*",), workspace)]


def test_an_empty_home_offers_no_skills_and_is_not_changed(home: Path, workspace: Path) -> None:
    skills: Skills = FolderSkills(home)
    assert skills.list_offered(("*",), workspace) == ()
    assert not home.exists()


def test_a_skill_counts_when_it_is_approved_and_until_it_is_changed(home: Path, workspace: Path) -> None:
    folder = skill(of_home(home), "one", "allowed-tools: read_file grep\n")
    skills = FolderSkills(home)
    assert names(skills, workspace) == []
    approve(home, "one")
    assert skills.list_offered(("one",), workspace) == (Skill("one", "Does it.", "home", ("read_file", "grep")),)
    (folder / "notes.md").write_text("more\n")
    assert names(skills, workspace) == []
    with pytest.raises(LookupError, match="`one` is no longer as a person approved it"):
        skills.load("one", ("*",), workspace)
    assert looked_at(home, workspace)["home", "one"].state == "changed"
    approve(home, "one")
    assert names(skills, workspace) == ["one"]
    assert SkillInventory(home).revoke("one")
    assert names(skills, workspace) == []


def test_an_edit_that_leaves_size_and_times_as_they_were_is_seen(home: Path, workspace: Path) -> None:
    path = skill(of_home(home), "one") / "SKILL.md"
    approve(home, "one")
    skills = FolderSkills(home)
    assert names(skills, workspace) == ["one"]
    before = path.stat()
    with path.open("r+b") as file:
        file.write(path.read_bytes().replace(b"then that", b"then THAT"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_ino) == (before.st_size, before.st_ino)
    assert names(skills, workspace) == []


def test_a_skill_of_the_workspace_grants_no_tools(home: Path, workspace: Path) -> None:
    skill(of_workspace(workspace), "one", "allowed-tools: bash\n")
    approved = approve(home, "one", workspace)
    assert (approved.tools, approved.asks_for) == ((), ("bash",))
    assert FolderSkills(home).list_offered(("*",), workspace) == (Skill("one", "Does it.", "workspace"),)


def test_an_approval_is_for_one_workspace(home: Path, workspace: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for place in (workspace, other):
        skill(of_workspace(place), "one")
    approve(home, "one", workspace)
    link = tmp_path / "link"
    link.symlink_to(workspace)
    skills = FolderSkills(home)
    assert names(skills, workspace) == names(skills, link) == ["one"]
    assert names(skills, other) == []
    assert names(skills, tmp_path / "nowhere") == []


def test_a_skill_of_the_home_hides_one_of_the_workspace(home: Path, workspace: Path) -> None:
    skill(of_workspace(workspace), "one", body="theirs")
    skill(of_home(home), "one", body="mine")
    skill(of_workspace(workspace), "another")
    for place in (None, workspace):
        approve(home, "one", place)
    approve(home, "another", workspace)
    skills = FolderSkills(home)
    found = skills.list_offered(("*",), workspace)
    assert [(each.name, each.origin) for each in found] == [("another", "workspace"), ("one", "home")]
    assert skills.load("one", ("*",), workspace) == "mine"


def test_only_skills_that_the_agent_selects_are_offered(home: Path, workspace: Path) -> None:
    for name in ("pdf-read", "pdf-write", "summarise"):
        skill(of_home(home), name)
        approve(home, name)
    skills = FolderSkills(home)
    assert names(skills, workspace, "pdf-*") == ["pdf-read", "pdf-write"]
    assert names(skills, workspace, "summarise", "nothing") == ["summarise"]
    assert skills.list_offered((), workspace) == ()
    with pytest.raises(LookupError, match=r"no skill 'pdf-reed'\. Did you mean `pdf-read`\?"):
        skills.load("pdf-reed", ("*",), workspace)
    with pytest.raises(LookupError, match=r"no skill 'summarise'\. Offered are: pdf-read, pdf-write\."):
        skills.load("summarise", ("pdf-*",), workspace)
    with pytest.raises(LookupError, match="no skills are offered here"):
        skills.load("pdf-read", (), workspace)


def test_a_loaded_skill_has_its_instructions_and_its_files(home: Path, workspace: Path) -> None:
    skill(of_home(home), "plain")
    rich = skill(of_workspace(workspace), "rich")
    for name, content in {"references/a.md": b"# A\n", "scripts/go.sh": b"true\n", "logo.png": b"\x89PNG"}.items():
        (rich / name).parent.mkdir(exist_ok=True)
        (rich / name).write_bytes(content)
    (rich / "scripts" / "go.sh").chmod(0o755)
    approve(home, "plain")
    approve(home, "rich", workspace)
    skills = FolderSkills(home)
    assert skills.load("plain", ("*",), workspace) == BODY
    assert skills.load("rich", ("*",), workspace) == (
        f'{BODY}\n\nFiles of this skill; load_skill(name="rich", file="…") reads one, as it was approved. '
        "They lie in .agents/skills/rich of the workspace.\n- logo.png (4 bytes)\n- references/a.md (4 bytes)\n"
        "- scripts/go.sh (5 bytes, a program)"
    )
    assert skills.load("rich", ("*",), workspace, "references/a.md") == "# A\n"
    assert skills.load("rich", ("*",), workspace, "./SKILL.md").startswith("---\nname: rich\n")
    with pytest.raises(LookupError, match=r"Did you mean references/a\.md\?"):
        skills.load("rich", ("*",), workspace, "reference/a.md")
    with pytest.raises(LookupError, match="is not text"):
        skills.load("rich", ("*",), workspace, "logo.png")
    for outside in ("../plain/SKILL.md", "/etc/passwd", "references", "\0"):
        with pytest.raises(LookupError, match="has no file"):
            skills.load("rich", ("*",), workspace, outside)


def test_the_approvals_file_is_private_and_documented_and_may_be_damaged(home: Path, workspace: Path) -> None:
    skill(of_home(home), "one")
    approve(home, "one")
    path = of_home(home) / "approved.yaml"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text().startswith("# The skills that you have read and approved")
    assert sorted(os.listdir(of_home(home))) == ["approved.yaml", "one"]
    for damage in ("approved: [", "approved: 1\n", "approved: [{name: one}]\n", "\0", "[" * 5000):
        path.write_text(damage)
        with pytest.raises(ConfigError, match=r"approved\.yaml: the file is damaged"):
            FolderSkills(home).list_offered(("*",), workspace)


def test_an_approval_cannot_name_a_skill_outside_its_folder(home: Path, workspace: Path) -> None:
    outside = skill(home, "outside")
    approved = SkillInventory(home)
    skill(of_home(home), "one")
    approve(home, "one")
    path = of_home(home) / "approved.yaml"
    path.write_text(path.read_text().replace("name: one", "name: ../outside"))
    assert FolderSkills(home).list_offered(("*",), workspace) == ()
    assert outside.exists()
    assert not approved.revoke("one")


def test_a_shipped_skill_is_copied_when_it_is_approved(home: Path, workspace: Path) -> None:
    available = {one.name: one for one in SkillInventory(home).survey(workspace).found}["summarise"]
    assert (available.origin, available.state) == ("shipped", "available")
    approved = approve(home, "summarise")
    assert (approved.origin, approved.state) == ("home", "approved")
    assert home.stat().st_mode & 0o777 == 0o700
    assert names(FolderSkills(home), workspace) == ["summarise"]
    found = SkillInventory(home).survey(workspace).found
    assert [(one.origin, one.state) for one in found] == [("home", "approved")]
    assert FolderSkills(home).load("summarise", ("*",), workspace).startswith("# Summarise faithfully")


def test_a_skill_that_changes_while_it_is_read_is_not_loaded(home: Path, workspace: Path) -> None:
    folder = skill(of_workspace(workspace), "one", body="approved")
    approve(home, "one", workspace)
    good, evil, live = home / "good", home / "evil", folder / "SKILL.md"
    good.write_bytes(live.read_bytes())
    evil.write_bytes(live.read_bytes().replace(b"approved", b"hostile!"))
    skills, loaded, done = FolderSkills(home), set[str](), Event()

    def swap() -> None:
        for made in cycle((evil, good)):
            shutil.copyfile(made, home / "next")
            (home / "next").replace(live)
            if done.is_set() and made is good:
                return

    with ThreadPoolExecutor(1) as other:
        swapping = other.submit(swap)
        for _ in range(500):
            with suppress(LookupError):
                loaded.add(skills.load("one", ("*",), workspace))
        done.set()
        swapping.result()
    assert loaded <= {"approved"}
    assert skills.load("one", ("*",), workspace) == "approved"


def test_concurrent_approvals_are_all_kept(home: Path, workspace: Path) -> None:
    wanted = [f"s{number}" for number in range(24)]
    for name in wanted:
        skill(of_home(home), name)
    with ThreadPoolExecutor(8) as people:
        list(people.map(partial(approve, home), wanted))
    assert names(FolderSkills(home), workspace) == sorted(wanted)


def test_a_missing_approved_skill_is_reported(home: Path, workspace: Path) -> None:
    folder = skill(of_home(home), "one")
    approve(home, "one")
    folder.rename(home / "elsewhere")
    assert looked_at(home, workspace)["home", "one"].state == "missing"
    assert names(FolderSkills(home), workspace) == []
