"""`treadle runs files` and `treadle runs undo-files`, and the same through the API."""

import json
from pathlib import Path

from tests.fake_endpoint import FakeEndpoint, calls, fragment, says
from tests.surfaces.shell import Shell
from tests.surfaces.test_cli import against

AGENT = """
name: default
model: fake/m
tools: [write_file, edit_file, bash]
sandbox: {mode: "off"}
approvals: {default: auto}
workspace: WORKSPACE
"""


def test_what_tools_and_commands_changed_is_undone(shell: Shell, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "kept.txt").write_text("kept\n")
    (folder / "edited.txt").write_text("one\ntwo\n")
    (folder / "removed.txt").write_text("still needed\n")
    command = "rm removed.txt; echo 3 >> edited.txt; echo x > y"
    wants = [
        calls(fragment(0, "c1", "edit_file", json.dumps({"path": "edited.txt", "old": "two", "new": "2"}))),
        calls(fragment(0, "c2", "write_file", json.dumps({"path": "new/made.txt", "content": "made\n"}))),
        calls(fragment(0, "c3", "bash", json.dumps({"command": command}))),
        says("Done."),
    ]

    @against(shell, *wants)
    async def _(server: FakeEndpoint) -> None:
        shell.write("agents/default/config.yaml", AGENT.replace("WORKSPACE", str(folder)))
        first = (await shell("run", "--json", "Work.")).json[0]
        run_id, session_id = first["run_id"], first["session_id"]
        listed = await shell("runs", "files", run_id, "--diff")
        assert listed.err == ""
        assert [line for line in listed.out.splitlines() if line[:2] in ("A ", "M ", "D ")] == [
            "M edited.txt  +2 -1",
            "A new/",
            "A new/made.txt  +1 -0",
            "D removed.txt  +0 -1",
            "A y  +1 -0",
        ]
        assert "-two\n+2\n+3\n" in listed.out
        (folder / "y").write_text("the user's\n")
        dry = await shell("runs", "undo-files", run_id, "--dry-run", "--json")
        assert [(file["path"], file.get("conflict")) for file in dry.json[0]["files"]][-1] == (
            "y",
            "it was changed since",
        )
        refused = await shell("runs", "undo-files", run_id)
        assert "Add --yes" in refused.err
        done = await shell("runs", "undo-files", run_id, "--yes")
        assert (done.code, done.out.splitlines()[-1]) == (1, "conflict  y  (it was changed since)")
        assert (folder / "edited.txt").read_text() == "one\ntwo\n"
        assert (folder / "removed.txt").read_text() == "still needed\n"
        assert (folder / "y").read_text() == "the user's\n"
        done = await shell("runs", "undo-files", run_id, "--yes", "--overwrite", "--path", "y", "--json")
        assert (done.code, done.json[0]["files"]) == (0, [{"path": "y", "state": "restored"}])
        assert sorted(path.name for path in folder.iterdir()) == ["edited.txt", "kept.txt", "removed.txt"]
        deleted = await shell("sessions", "delete", session_id, "--yes")
        assert deleted.code == 0
        assert not [path for path in (shell.home / "file_versions").rglob("*") if path.suffix == ".jsonl"]
        assert not [path for path in (shell.home / "file_versions" / "contents").rglob("*") if path.is_file()]
