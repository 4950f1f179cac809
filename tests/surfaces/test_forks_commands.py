"""`treadle runs fork`, `replay` and `diff`, in a process of their own."""

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.fake_endpoint import Behaviour, FakeEndpoint, calls, fragment, says
from tests.surfaces.shell import Shell


def make_call_reply() -> Behaviour:
    return calls(fragment(0, "call_1", "glob", '{"pattern": "*.txt"}'))


async def start_run(shell: Shell, *more: str) -> str:
    done = await shell("run", "--json", "What is here?", *more)
    assert done.code == 0, done.err
    return done.json[0]["run_id"]


def configure_shell(tmp_path: Path, url: str) -> Shell:
    shell = Shell(tmp_path / "home", url).configure()
    shell.cwd = tmp_path
    for name in ("default", "other"):
        shell.write(
            f"agents/{name}/config.yaml",
            f"name: {name}\nmodel: fake/m\ntools: [glob]\nmemory: {{recall: 0, remember: false}}\n",
        )
    return shell


async def test_a_fork_is_followed_to_its_end(tmp_path: Path) -> None:
    async with FakeEndpoint(make_call_reply(), says("Nothing."), says("Still nothing."), says("So.")) as server:
        shell = configure_shell(tmp_path, server.url)
        old = await start_run(shell)
        fork = await shell("runs", "fork", old)
        assert (fork.code, fork.out) == (0, "Still nothing.\n")
        assert f"continues from {old}" in fork.err
        assert server.requests[2].json["messages"] == server.requests[1].json["messages"]
        changed = await shell(
            "runs", "fork", old, "--step", "1", "--model", "fake/n", "--message", "-", "--agent", "other",
            "--json", stdin=b"What else?\n",
        )  # fmt: skip
        assert changed.code == 0, changed.err
        assert [event["type"] for event in changed.json[:3]] == ["run_queued", "run_forked", "user_message"]
        sent = server.requests[3].json
        assert (sent["model"], sent["messages"][-1]["content"]) == ("n", "What else?")
        assert changed.json[0]["data"]["agent"]["name"] == "other"
        listed = await shell("runs", "list", "--json")
        shown = [(await shell("runs", "show", run["run_id"], "--json")).json[0] for run in listed.json]
        assert [run["message"] for run in shown] == ["What else?", "What is here?", "What is here?"]


async def test_a_run_with_its_own_endpoint_is_forked_with_it(tmp_path: Path) -> None:
    async with FakeEndpoint(says("One."), says("Two.")) as server:
        shell = configure_shell(tmp_path, "http://127.0.0.1:9/v1")
        old = await start_run(shell, "--base-url", server.url)
        without = await shell("runs", "fork", old)
        assert without.code != 0
        fork = await shell("runs", "fork", old, "--base-url", server.url, "--model", "n")
        assert (fork.code, fork.out) == (0, "Two.\n"), fork.err
        assert server.requests[1].json["model"] == "n"


async def test_a_fork_that_is_not_possible_is_reported_in_one_line(tmp_path: Path) -> None:
    async with FakeEndpoint(says("One.")) as server:
        shell = configure_shell(tmp_path, server.url)
        old = await start_run(shell)
        assert "its steps are 1 to 1" in (await shell("runs", "fork", old, "--step", "7")).complaint
        assert "There is no run" in (await shell("runs", "fork", "run_x")).complaint
        assert "empty" in (await shell("runs", "fork", old, "--message", " ")).complaint
        assert "no name" in (await shell("runs", "fork", old, "--model", " ")).complaint
        assert "nobody" in (await shell("runs", "fork", old, "--agent", "nobody")).complaint
        assert (await shell("runs", "fork", old, "--step", "0")).code == 2


async def test_a_run_is_replayed_without_its_provider(tmp_path: Path) -> None:
    async with FakeEndpoint(make_call_reply(), says("Nothing.")) as server:
        shell = configure_shell(tmp_path, server.url)
        old = await start_run(shell)
    replayed = await shell("runs", "replay", old)
    assert replayed.code == 0, replayed.err
    assert "events are the same" in replayed.out
    told = await shell("runs", "replay", old, "--json")
    assert told.json[0]["divergence"] is None
    assert told.json[0]["same"] == told.json[0]["events"]
    assert "There is no run" in (await shell("runs", "replay", "run_x")).complaint
    change(tmp_path / "home" / "treadle.db", old, "llm_request", b'"messages":3', b'"messages":4')
    parted = await shell("runs", "replay", old)
    assert parted.code == 1
    assert "differs at event" in parted.out
    assert "- recorded  4" in parted.out
    assert "+ now       3" in parted.out
    assert "the request is the same" in parted.out
    assert (await shell("runs", "replay", old, "--json")).json[0]["divergence"]["type"] == "llm_request"
    change(tmp_path / "home" / "treadle.db", old, "run_end", b"", b"", version=9)
    change(tmp_path / "home" / "treadle.db", old, "llm_request", b'"messages":4', b'"messages":3')
    later = await shell("runs", "replay", old)
    assert later.code == 3
    assert "later version" in later.out


def change(database: Path, run_id: str, type_: str, old: bytes, new: bytes, version: int = 1) -> None:
    """Write something else into a journal."""
    with closing(sqlite3.connect(database)) as connection, connection:
        rows = connection.execute(
            "SELECT events.rowid, data FROM events JOIN runs ON runs.id = run WHERE run_id = ? AND type = ?",
            (run_id, type_),
        ).fetchall()
        for row, data in rows:
            connection.execute(
                "UPDATE events SET data = ?, version = ? WHERE rowid = ?", (data.replace(old, new), version, row)
            )


async def test_diff_shows_two_runs_side_by_side(tmp_path: Path) -> None:
    other = calls(fragment(0, "call_1", "glob", '{"pattern": "*.md"}'))
    async with FakeEndpoint(
        make_call_reply(), says("Nothing."), says("Still nothing."), other, says("None.")
    ) as server:
        shell = configure_shell(tmp_path, server.url)
        old = await start_run(shell)
        fork = (await shell("runs", "fork", old, "--json", "--model", "fake/n")).json[0]["run_id"]
        again = await start_run(shell, "-a", "other")
    same = await shell("runs", "diff", old, old)
    assert same.code == 0, same.err
    assert "all 2 steps are the same" in same.out
    assert "differ" not in same.out
    forked = await shell("runs", "diff", old, fork)
    assert f"{fork} is a fork of {old} from its step 2" in forked.out
    assert "first difference at step 2 of A, step 1 of B:" in forked.out
    assert "- fake/m" in forked.out
    assert "+ Still nothing." in forked.out
    [told] = (await shell("runs", "diff", old, again, "--json")).json
    assert [each["what"] for each in told["agent"]] == ["name"]
    first, second = told["steps"]
    assert (first["a"], first["b"], told["same_steps"]) == (1, 1, 0)
    assert {each["what"] for each in first["differs"]} == {"call 1", "result 1"}
    assert [each["what"] for each in second["differs"]] == ["text"]
    assert told["a"]["metrics"]["steps"] == 2
    assert "There is no run" in (await shell("runs", "diff", old, "run_x")).complaint
