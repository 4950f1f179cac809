"""Commands for run trees: the tree view, and questions and approvals of child runs."""

import re
from pathlib import Path

from tests.fake_endpoint import FakeEndpoint, says
from tests.surfaces.shell import Shell
from tests.surfaces.terminal import Terminal, against, files, wants

PARENT = """
name: parent
model: fake/m
tools: [agent_spawn, write_file]
retry: {attempts: 0}
approvals: {default: auto, rules: [{tool: write_file, do: ask}]VIA}
"""
NOTE = {"path": "note.txt", "content": "hello"}
STORY = (
    wants("agent_spawn", message="Write the note."),
    wants("write_file", **NOTE),
    says("Written."),
    says("All is done."),
)


def configure_parent(shell: Shell, folder: Path, via: str = "") -> None:
    shell.cwd = folder
    shell.write("agents/parent/config.yaml", PARENT.replace("VIA", via))


def test_a_child_asks_the_person_who_sent_the_message(shell: Shell, folder: Path) -> None:
    @against(shell, *STORY)
    async def _(server: FakeEndpoint) -> None:
        configure_parent(shell, folder)
        async with Terminal(shell, "run", "-a", "parent", "Go.", folder=folder) as terminal:
            await terminal.shows("parent begins as run_")
            await terminal.shows("write_file asks to run")
            await terminal.shows("Run it?")
            terminal.types("y\n")
            await terminal.shows("All is done.")
            assert await terminal.ends() == 0
        assert files(folder) == {"note.txt": "hello"}


def test_a_child_is_denied_when_no_reviewer_can_be_asked(shell: Shell, folder: Path) -> None:
    @against(shell, *STORY[:2], says("I may not."), says("It is not allowed."))
    async def _(server: FakeEndpoint) -> None:
        configure_parent(shell, folder)
        done = await shell("run", "-a", "parent", "Go.")
        assert (done.code, done.out) == (0, "It is not allowed.\n")
        assert files(folder) == {}


def test_a_question_of_a_child_run_is_answered_later_and_the_root_continues(shell: Shell, folder: Path) -> None:
    @against(shell, *STORY)
    async def _(server: FakeEndpoint) -> None:
        configure_parent(shell, folder, ", via: api")
        left = await shell("run", "-a", "parent", "Go.")
        assert left.code == 4, left.err
        found = re.search(r"(run_\w+) waits for an approval of .*treadle approvals approve (apr_\w+)", left.err)
        assert found is not None, left.err
        child, approval = found[1], found[2]
        runs = (await shell("runs", "list", "--json")).json
        [root] = [run["run_id"] for run in runs if run["run_id"] != child]
        assert {run["run_id"]: run["parent_run_id"] for run in runs} == {root: None, child: root}
        shown = await shell("runs", "show", root)
        assert f"treadle approvals approve {approval}" in shown.out
        tree = await shell("runs", "tree", root)
        assert "waiting: child" in tree.out
        assert f"└─ {child[:16]}  parent  waiting: approval" in tree.out
        done = await shell("approvals", "approve", approval)
        assert (done.code, done.out) == (0, "All is done.\n")
        assert files(folder) == {"note.txt": "hello"}
        head, first, second, total = (await shell("runs", "tree", root)).out.splitlines()
        assert head.split() == ["RUN", "AGENT", "STATE", "STEPS", "TOKENS", "COST"]
        assert first.split()[:4] == [root[:16], "parent", "completed", "2"]
        assert second.split()[:5] == ["└─", child[:16], "parent", "completed", "2"]
        assert total.split()[:3] == ["2", "runs", "4"]
        [tree] = (await shell("runs", "tree", root, "--json")).json
        assert [(each["run"]["run_id"], each["depth"]) for each in tree["members"]] == [(root, 0), (child, 1)]
        unknown = await shell("runs", "tree", "run_none")
        assert unknown.code == 2
        assert "There is no run run_none" in unknown.complaint


def test_a_tree_is_drawn_level_by_level_and_a_copy_differs_by_what_it_lacks(shell: Shell, folder: Path) -> None:
    below = (wants("agent_spawn", message="Let it be done."), wants("agent_spawn", message="Do it."))

    @against(shell, *below, says("Done."), says("It is done."), says("All is done."))
    async def _(server: FakeEndpoint) -> None:
        configure_parent(shell, folder)
        assert (await shell("run", "-a", "parent", "Go.")).code == 0
        leaf, middle, root = [run["run_id"] for run in (await shell("runs", "list", "--json")).json]
        _, *lines, _ = (await shell("runs", "tree", root)).out.splitlines()
        assert [line.partition("  parent")[0].rstrip() for line in lines] == [
            root[:16],
            f"└─ {middle[:16]}",
            f"   └─ {leaf[:16]}",
        ]
        told = (await shell("runs", "diff", root, middle)).out
        differs, _, _ = told.partition("the agents differ:")[2].partition("\n\n")
        assert re.findall(r"^  (\w+)$", differs, re.MULTILINE) == ["limits", "sandbox", "memory"]
        assert re.search(r"^cost +unknown +unknown$", told, re.MULTILINE), "no price of this model is known"
