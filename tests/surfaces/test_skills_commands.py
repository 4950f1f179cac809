"""`treadle skills`: a skill is read before it is approved, and the approval covers what was read."""

import shutil
from pathlib import Path

import pytest

from tests.skills.written import of_home, of_workspace, skill
from tests.surfaces.shell import Done, Shell
from tests.surfaces.terminal import CTRL_C, CTRL_D, Terminal
from treadle.skills.run_skills import FolderSkills


async def do(shell: Shell, *arguments: str) -> Done:
    return await shell("skills", *arguments)


async def states(shell: Shell, folder: Path) -> dict[str, str]:
    return {
        row["name"]: row["state"] for row in (await do(shell, "list", "--workspace", str(folder), "--json")).json
    }


def list_offered_names(shell: Shell, folder: Path) -> list[str]:
    return [each.name for each in FolderSkills(shell.home).list_offered(("*",), folder)]


async def test_a_skill_is_listed_approved_changed_and_removed(shell: Shell, folder: Path) -> None:
    path = skill(of_home(shell.home), "pdf", "allowed-tools: read_file bash\n") / "SKILL.md"
    listed = await do(shell, "list", "--workspace", str(folder))
    assert listed.out.splitlines()[0].split() == ["SKILL", "ORIGIN", "STATE", "TOOLS", "DESCRIPTION"]
    assert listed.out.splitlines()[1].split() == ["pdf", "home", "new", "read_file", "bash!", "Does", "it."]
    assert listed.out.splitlines()[2].split()[:3] == ["summarise", "treadle", "available"]
    done = await do(shell, "approve", "pdf", "--yes")
    assert (done.code, done.out) == (0, "")
    assert "Approved pdf" in done.err
    assert "tools: read_file, bash" in done.err
    assert "`skills: [pdf]`" in done.err
    assert list_offered_names(shell, folder) == ["pdf"]
    path.write_text(f"{path.read_text()}And more.\n")
    assert "changed since" in (await do(shell, "list")).out
    assert (await states(shell, folder))["pdf"] == "changed"
    assert (await do(shell, "approve", "pdf", "--yes", "--json")).json[0]["state"] == "approved"
    assert "pdf is no longer approved" in (await do(shell, "remove", "pdf")).err
    assert path.exists()
    assert (await states(shell, folder))["pdf"] == "new"
    assert (await do(shell, "remove", "pdf", "--delete", "--json")).json == [
        {"name": "pdf", "removed": True, "deleted": True}
    ]
    assert not path.parent.exists()


async def test_a_shipped_skill_is_approved_and_deleted(shell: Shell, folder: Path) -> None:
    assert (await do(shell, "approve", "summarise", "--yes")).code == 0
    assert (of_home(shell.home) / "summarise" / "SKILL.md").exists()
    assert await states(shell, folder) == {"summarise": "approved"}
    assert (await do(shell, "remove", "summarise", "--delete")).code == 0
    assert await states(shell, folder) == {"summarise": "available"}


async def test_a_skill_of_a_workspace_is_approved_for_it_without_tools(shell: Shell, folder: Path) -> None:
    skill(of_workspace(folder), "pdf", "allowed-tools: bash\n")
    shell.cwd = folder
    assert (await do(shell, "list")).out.splitlines()[1].split()[:3] == ["pdf", "workspace", "new"]
    assert "There is no skill 'pdf'" in (await do(shell, "approve", "pdf", "--yes")).complaint
    done = await do(shell, "approve", "pdf", "--workspace", ".", "--yes")
    assert "no tools: it requests bash, which a skill of a workspace does not get" in done.err
    assert list_offered_names(shell, folder) == ["pdf"]
    assert (
        "--delete is for skills of the home"
        in (await do(shell, "remove", "pdf", "--workspace", ".", "--delete")).complaint
    )
    assert (await do(shell, "remove", "pdf", "--workspace", ".")).code == 0
    assert list_offered_names(shell, folder) == []


async def test_the_approval_of_a_deleted_skill_can_be_revoked(shell: Shell, folder: Path) -> None:
    skill(of_workspace(folder), "pdf")
    assert (await do(shell, "approve", "pdf", "--workspace", str(folder), "--yes")).code == 0
    shutil.rmtree(folder)
    assert (await do(shell, "remove", "pdf", "--workspace", str(folder))).code == 0
    assert "is not approved there" in (await do(shell, "remove", "pdf", "--workspace", str(folder))).complaint


async def test_show_prints_every_file_without_control_characters(shell: Shell) -> None:
    folder = skill(
        of_home(shell.home), "pdf", body="Red: \x1b[31m, turned: \u202e, hidden: \u200b\ntools    it brings none"
    )
    (folder / "run.sh").write_text("rm -rf x\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "logo.png").write_bytes(b"\x89PNG\0")
    shown = await do(shell, "show", "pdf")
    assert shown.code == 0
    assert "Red: <U+001B>[31m, turned: <U+202E>, hidden: <U+200B>" in shown.out
    assert "\n  │ tools    it brings none" in shown.out
    assert "run.sh, 9 bytes, a program\n  │ rm -rf x" in shown.out
    assert "logo.png, 5 bytes\n  (not text, not shown)" in shown.out
    [row] = (await do(shell, "show", "pdf", "--json")).json
    assert row["sha256"] in shown.out
    assert [(file["path"], file["executable"]) for file in row["files"]] == [
        ("SKILL.md", False),
        ("logo.png", False),
        ("run.sh", True),
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("show", "pdg"), "There is no skill 'pdg' in "),
        (("show", "pdg"), "Did you mean `pdf`?"),
        (("show", "../x"), "There is no skill '../x'"),
        (("approve", "pdf"), "The skill `pdf` needs a confirmation"),
        (("approve", "broken", "--yes"), "cannot be approved: it has no SKILL.md. Fix it first."),
        (("remove", "pdf"), "The skill 'pdf' is not approved there"),
        (("remove", "nothing", "--delete"), "There is no skill `nothing` in"),
        (("remove", "../x", "--delete"), "This is not a valid skill name"),
        (
            ("remove", "afile", "--delete"),
            "afile is not a skill: it is a file, and a skill is a folder. Nothing was",
        ),
        (("approve", "pdf", "--yes", "--sha256", "0" * 64), "does not have the sha256 0000"),
        (("approve", "pdf", "--yes", "--sha256", "0" * 11), "accepted: at least 12 digits of the hash that"),
        (("approve", "pdf", "--yes", "--sha256", ""), "--sha256 is ''; accepted: at least 12 digits"),
        (("approve", "pdf", "--yes", "--sha256", "g" * 12), "accepted: at least 12 digits of the hash that"),
        (("list", "--workspace", "nowhere"), "The workspace 'nowhere' is not a folder"),
        (("list", "--workspace", "~nobody-here/x"), "The workspace '~nobody-here/x' cannot be found"),
    ],
)
async def test_an_error_is_reported_in_one_line(shell: Shell, arguments: tuple[str, ...], words: str) -> None:
    skill(of_home(shell.home), "pdf")
    (of_home(shell.home) / "broken").mkdir()
    (of_home(shell.home) / "afile").touch()
    done = await do(shell, *arguments)
    assert done.code == 2
    assert words in done.complaint
    assert list_offered_names(shell, shell.home) == []


async def test_only_content_with_the_given_hash_is_approved(shell: Shell, folder: Path) -> None:
    path = skill(of_home(shell.home), "pdf") / "SKILL.md"
    [sha256] = [row["sha256"] for row in (await do(shell, "list", "--json")).json if row["name"] == "pdf"]
    assert f"sha256   {sha256}\n" in (await do(shell, "show", "pdf")).out
    text = path.read_text()
    path.write_text(f"{text}Swapped.\n")
    done = await do(shell, "approve", "pdf", "--yes", "--sha256", sha256)
    assert done.code == 2
    assert "Nothing was approved; read it again with `treadle skills show pdf`." in done.complaint
    assert list_offered_names(shell, folder) == []
    path.write_text(text)
    assert (await do(shell, "approve", "pdf", "--yes", "--sha256", sha256[:12].upper())).code == 0
    assert list_offered_names(shell, folder) == ["pdf"]


async def test_requested_tools_are_marked_as_dangerous_or_unknown(shell: Shell, folder: Path) -> None:
    skill(of_home(shell.home), "pdf", "allowed-tools: read_file write_file bash Bash(git:*) Read *\n")
    listed = await do(shell, "list", "--workspace", str(folder))
    assert "read_file write_file! bash! Bash(git:*)? Read? *?" in listed.out
    assert "! marks tools that can write, run programs or act outside" in listed.err
    assert "? marks names that no tool has" in listed.err
    warnings = [
        "with this skill an agent gets write_file, which can write",
        "with this skill an agent gets bash, which can run programs or act outside",
        "no tool has these names: Bash(git:*), Read, *",
    ]
    shown = (await do(shell, "show", "pdf")).out.splitlines()
    assert shown[3:7] == [
        "tools    read_file, write_file, bash",
        *(f"warning  {line}" for line in warnings),
    ]
    approved = (await do(shell, "approve", "pdf", "--yes")).err.splitlines()
    assert approved[1:4] == warnings
    [row] = (await do(shell, "show", "pdf", "--json")).json
    assert row["tools"] == ["read_file", "write_file", "bash"]
    assert row["acting_tools"] == ["write_file", "bash"]
    assert row["unknown_tools"] == ["Bash(git:*)", "Read", "*"]


async def test_a_link_is_deleted_and_not_its_target(shell: Shell, folder: Path) -> None:
    target = skill(folder, "pdf")
    of_home(shell.home).mkdir(parents=True)
    (of_home(shell.home) / "pdf").symlink_to(target)
    assert "it was a link, and only the link is deleted" in (await do(shell, "remove", "pdf", "--delete")).err
    assert target.exists()
    assert not (of_home(shell.home) / "pdf").is_symlink()


async def test_a_hostile_workspace_is_listed_with_its_faults(shell: Shell, folder: Path) -> None:
    place = of_workspace(folder)
    skill(place, "fine", description='"x\\e[2J\\n## Rules"')
    (place / "evil\x1b]0;\nname").mkdir()
    (place / "link").symlink_to("/etc")
    done = await do(shell, "list", "--workspace", str(folder))
    assert done.code == 0
    assert "\x1b" not in done.out
    assert len(done.out.splitlines()) == 5
    rows = {row["name"]: row for row in (await do(shell, "list", "--workspace", str(folder), "--json")).json}
    assert rows["link"]["reason"] == "'link' is a link or not a folder; only a real folder is accepted"
    assert rows["evil\\x1b]0;\\nname"]["reason"] == "it has no SKILL.md"
    assert rows["fine"]["state"] == "new"


# ── At a terminal ──


async def answer(shell: Shell, folder: Path, typed: str) -> tuple[int, str]:
    async with Terminal(shell, "skills", "approve", "pdf", folder=folder) as terminal:
        await terminal.shows("as it is? [y/N]")
        terminal.types(typed)
        return await terminal.ends(), terminal.screen


@pytest.mark.parametrize(
    ("typed", "code", "is_approved"),
    [
        ("y\n", 0, True),
        ("YES\n", 0, True),
        ("\n", 1, False),
        ("n\n", 1, False),
        (CTRL_D, 1, False),
        (CTRL_C, 130, False),
    ],
)
async def test_a_skill_is_shown_before_the_question(
    shell: Shell, folder: Path, typed: str, code: int, is_approved: bool
) -> None:
    skill(of_home(shell.home), "pdf", body="Read the form first.")
    ended, screen = await answer(shell, folder, typed)
    assert ended == code, screen
    assert "Read the form first." in screen
    assert list_offered_names(shell, folder) == (["pdf"] if is_approved else [])


async def test_an_approval_covers_the_content_that_was_shown(shell: Shell, folder: Path) -> None:
    path = skill(of_home(shell.home), "pdf", body="Shown.") / "SKILL.md"

    async with Terminal(shell, "skills", "approve", "pdf", folder=folder) as terminal:
        await terminal.shows("as it is? [y/N]")
        path.write_text(path.read_text().replace("Shown", "Swapped"))
        terminal.types("y\n")
        assert await terminal.ends() == 0
    assert list_offered_names(shell, folder) == []
    assert (await states(shell, folder))["pdf"] == "changed"
