"""Sessions belong to a folder: the latest one, the list, and what happens to a session of another folder."""

from pathlib import Path

import pytest

from tests.fake_endpoint import FakeEndpoint, says
from tests.surfaces.shell import Done, Shell
from tests.surfaces.terminal import Terminal, against, wants


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "home")


async def at(shell: Shell, folder: Path, *arguments: str, stdin: bytes = b"") -> Done:
    """Run a command in a folder."""
    shell.cwd = folder
    return await shell(*arguments, stdin=stdin)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    return tmp_path / "here", tmp_path / "there"


def test_last_and_the_list_mean_the_current_folder(shell: Shell, folders: tuple[Path, Path]) -> None:
    here, there = folders

    @against(shell, *[says("Yes.")] * 3)
    async def _(server: FakeEndpoint) -> None:
        for folder, message in ((here, "first"), (there, "second")):
            assert (await at(shell, folder, "run", message)).code == 0
        listed = await at(shell, here, "sessions", "list")
        assert ("first" in listed.out, "second" in listed.out) == (True, False)
        every = await at(shell, here, "sessions", "list", "--all")
        assert ("first" in every.out, "second" in every.out, str(there) in every.out) == (True, True, True)
        assert (await at(shell, here, "runs", "show", "last", "--json")).json[0]["message"] == "first"
        assert (await at(shell, here, "run", "--session", "last", "third")).code == 0
        said = str(server.requests[2].json["messages"])
        assert ("first" in said, "second" in said) == (True, False)
        none = await at(shell, shell.home, "runs", "show", "last")
        assert (none.code, "`last` means the current folder" in none.complaint) == (2, True)
        empty = await at(shell, shell.home, "sessions", "list")
        assert "treadle sessions list --all" in empty.err


def test_a_session_of_another_folder_is_refused_without_a_terminal(
    shell: Shell, folders: tuple[Path, Path]
) -> None:
    here, there = folders

    @against(
        shell, says("One."), wants("glob", pattern="*"), says("Two."), wants("glob", pattern="*"), says("Three.")
    )
    async def _(server: FakeEndpoint) -> None:
        (here / "of-here").touch()
        (there / "of-there").touch()
        assert (await at(shell, there, "run", "first")).code == 0
        session = (await at(shell, there, "sessions", "list", "--json")).json[0]["session_id"]
        refused = await at(shell, here, "run", "--session", session, "second")
        assert (refused.code, "Add --there" in refused.complaint, len(server.requests)) == (2, True, 1)
        both = await at(shell, here, "run", "--session", session, "--here", "--there", "second")
        assert (both.code, "exclude each other" in both.complaint) == (2, True)
        assert (await at(shell, here, "run", "--session", session, "--there", "second")).code == 0
        assert "of-there" in str(server.requests[2].json["messages"][-1])
        assert (await at(shell, here, "run", "--session", session, "--here", "third")).code == 0
        assert "of-here" in str(server.requests[4].json["messages"][-1])
        moved = await at(shell, here, "sessions", "list", "--json")
        assert [each["session_id"] for each in moved.json] == [session]


def test_a_terminal_is_asked_where_a_session_continues(shell: Shell, folders: tuple[Path, Path]) -> None:
    here, there = folders

    @against(shell, says("One."), says("Two."))
    async def _(server: FakeEndpoint) -> None:
        assert (await at(shell, there, "run", "first")).code == 0
        session = (await at(shell, there, "sessions", "list", "--json")).json[0]["session_id"]
        async with Terminal(shell, "run", "--session", session, "second", folder=here) as terminal:
            await terminal.shows("Work [h]ere or [t]here?")
            terminal.types("\n")
            await terminal.shows("Nothing was opened")
            assert await terminal.ends() == 2
        async with Terminal(shell, "run", "--session", session, "second", folder=here) as terminal:
            await terminal.shows("Work [h]ere or [t]here?")
            terminal.types("t\n")
            await terminal.shows("Two.")
            assert await terminal.ends() == 0
        assert (await at(shell, here, "sessions", "list", "--json")).json == []


def test_a_grant_of_one_folder_is_not_used_in_another(shell: Shell, folders: tuple[Path, Path]) -> None:
    here, there = folders
    write = wants("write_file", path="a.txt", content="x")

    @against(shell, write, says("One."), write, says("Two."))
    async def _(server: FakeEndpoint) -> None:
        async with Terminal(shell, "run", "first", folder=there) as terminal:
            await terminal.shows("Run it?")
            terminal.types("s\n")
            await terminal.shows("One.")
            assert await terminal.ends() == 0
        assert (there / "a.txt").exists()
        session = (await at(shell, there, "sessions", "list", "--json")).json[0]["session_id"]
        async with Terminal(shell, "run", "--session", session, "--here", "second", folder=here) as terminal:
            await terminal.shows("Run it?")
            assert not (here / "a.txt").exists()
            terminal.types("n\n")
            assert await terminal.ends() == 0
        assert not (here / "a.txt").exists()


def test_memories_without_a_workspace_can_be_assigned(shell: Shell, folders: tuple[Path, Path]) -> None:
    here, there = folders

    @against(shell, *[says("Yes.")] * 3)
    async def _(server: FakeEndpoint) -> None:
        assert (await at(shell, here, "run", "--no", "hello")).code == 0
        lines = b'{"text": "The zebra flag is needed.", "agent": "default"}\n'
        assert (await at(shell, here, "memory", "import", "-", stdin=lines)).code == 0
        assert (await at(shell, here, "run", "Which zebra flag?")).code == 0
        assert "flag is needed" not in str(server.requests[1].json["messages"])
        assigned = await at(shell, there, "memory", "assign", "--workspace", str(here))
        assert (assigned.code, "Assigned 1 memory" in assigned.err) == (0, True)
        assert (await at(shell, here, "run", "Which zebra flag?")).code == 0
        assert "flag is needed" in str(server.requests[2].json["messages"])
        found = await at(shell, here, "memory", "list", "--workspace", str(there), "--json")
        assert found.json == []
        missing = await at(shell, here, "memory", "assign", "--workspace", str(here / "none"))
        assert (missing.code, "is not a folder" in missing.complaint) == (2, True)


async def leave_waiting(shell: Shell, folder: Path, *arguments: str) -> None:
    """Run an agent that asks for an approval, and leave it pending."""
    async with Terminal(shell, "run", *arguments, folder=folder) as terminal:
        await terminal.shows("Run it?")
        terminal.types("later\n")
        assert await terminal.ends() == 4


def test_a_folder_stays_the_same_place_after_git_init(shell: Shell, folders: tuple[Path, Path]) -> None:
    here, there = folders

    @against(shell, says("One."), wants("write_file", path="a.txt", content="x"), *[says("Yes.")] * 3)
    async def _(server: FakeEndpoint) -> None:
        assert (await at(shell, here, "run", "first")).code == 0
        await leave_waiting(shell, here, "second")
        assert (await at(shell, there, "run", "elsewhere")).code == 0
        for folder in folders:
            (folder / ".git" / "objects").mkdir(parents=True)
            (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        listed = await at(shell, here, "sessions", "list")
        assert ("first" in listed.out, "second" in listed.out, "elsewhere" in listed.out) == (True, True, False)
        none = await at(shell, there, "approvals", "deny", "last")
        assert (none.code, "1 are pending in other folders" in none.complaint) == (2, True)
        assert (await at(shell, here, "approvals", "deny", "last")).code == 0
        assert (await at(shell, here, "run", "--session", "first", "third")).code == 0, "no folder is asked for"
        assert (await at(shell, here, "runs", "show", "last", "--json")).json[0]["message"] == "third"


def test_a_run_of_another_folder_that_waits_gets_no_message_from_here(
    shell: Shell, folders: tuple[Path, Path]
) -> None:
    here, there = folders

    @against(shell, wants("write_file", path="a.txt", content="x"))
    async def _(server: FakeEndpoint) -> None:
        await leave_waiting(shell, there, "first")
        [pending] = (await at(shell, there, "approvals", "list", "--json")).json
        assert pending["workspace"]["folder"] == str(there)
        session = pending["session_id"]
        refused = await at(shell, here, "run", "--session", session, "--here", "second")
        assert (refused.code, f"it works in {there}" in refused.complaint) == (2, True)
        assert len(server.requests) == 1
