"""`treadle sessions`, `treadle runs prompt` and the session commands."""

import json

from tests.fake_endpoint import FakeEndpoint, says
from tests.surfaces.shell import Shell
from tests.surfaces.test_cli import against

SUMMARY = "## Goal\nTo talk.\n## Done\nAda said hello."
LONG = "words and more words that say nothing at all, " * 12


def test_session_commands_compact_undo_and_report_usage(shell: Shell) -> None:
    answers = [says(f"{LONG}{number}") for number in range(4)]

    @against(shell, *answers, says(SUMMARY), says("after"), says("back"))
    async def _(server: FakeEndpoint) -> None:
        for number in range(4):
            assert (await shell("run", "--session", "ses_1", f"message {number}")).code == 0
        done = await shell("run", "--session", "ses_1", "/compact the names")
        assert (done.code, done.out.startswith("The conversation is shorter: about ")) == (0, True)
        assert "messages are being summed up" in done.err
        assert "above all: the names" in server.requests[4].json["messages"][-1]["content"]
        await shell("run", "--session", "ses_1", "and now?")
        sent = server.requests[5].json["messages"]
        assert sent[0]["content"] == "message 0"
        assert "Ada said hello." in sent[1]["content"]

        listed = await shell("sessions", "list")
        head, row = listed.out.splitlines()
        assert head.split() == ["SESSION", "LATEST", "RUNS", "AGENT", "TITLE"]
        assert row.split()[0] == "ses_1"
        assert row.endswith("message 0")
        [view] = (await shell("sessions", "show", "ses_1", "--json")).json
        assert [(segment["reason"], segment["parent"]) for segment in view["lineage"]] == [("compaction", "seg_1")]
        assert "/compact the names" in (await shell("sessions", "show", "ses_1")).out

        undone = await shell("run", "--session", "ses_1", "/undo")
        assert "are back" in undone.out
        await shell("run", "--session", "ses_1", "again")
        texts = [message["content"] for message in server.requests[6].json["messages"]]
        assert [f"message {number}" in texts for number in range(4)] == [True] * 4
        nothing = await shell("run", "--session", "ses_1", "/undo")
        assert nothing.code == 1
        assert "nothing to undo" in nothing.err
        usage = await shell("run", "--session", "ses_1", "/usage")
        assert "segments  3" in usage.out


def test_the_prompt_of_a_step_is_shown_as_it_was_sent(shell: Shell) -> None:
    @against(shell, says("hello \x1b[31mred"))
    async def _(server: FakeEndpoint) -> None:
        run_id = (await shell("run", "--json", "Say hello.")).json[0]["run_id"]
        shown = await shell("runs", "prompt", run_id)
        assert "[user]\nSay hello." in shown.out
        sent = await shell("runs", "prompt", run_id, "--step", "1", "--json")
        assert json.loads(sent.out) == server.requests[0].json
        assert sent.out.encode().rstrip() == server.requests[0].body
        wrong = await shell("runs", "prompt", run_id, "--step", "7")
        assert (wrong.code, wrong.complaint) == (2, f"{run_id} has no step 7; its steps are 1 to 1.")


async def test_missing_entities_are_reported(shell: Shell) -> None:
    assert (await shell("sessions", "list")).err == 'No sessions yet. Start one: treadle run "Hello."\n'
    assert "There is no session ses_9" in (await shell("sessions", "show", "ses_9")).complaint


def test_a_title_is_redacted_and_survives_fork_backup_and_delete(shell: Shell) -> None:
    @against(shell, says("one"), says("two"))
    async def _(server: FakeEndpoint) -> None:
        await shell("vault", "set", "KEY", stdin=b"swordfish-12345")
        events = (await shell("run", "--session", "ses_1", "--json", "Hello there.")).json
        [view] = (await shell("sessions", "list", "--json")).json
        assert view["title"] == "Hello there."
        renamed = await shell("sessions", "rename", "ses_1", "Uses swordfish-12345 here", "--json")
        title = renamed.json[0]["title"]
        assert "swordfish" not in title
        assert title.startswith("Uses ")
        assert (await shell("runs", "fork", events[0]["run_id"])).code == 0
        titles = {each["title"] for each in (await shell("sessions", "list", "--json")).json}
        assert titles == {title}
        assert (await shell("backup", str(shell.home.parent / "b.tar"))).code == 0
        assert (await shell("sessions", "delete", "ses_1", "--yes")).code == 0
        assert "ses_1 was deleted" in (await shell("sessions", "rename", "ses_1", "x")).complaint
        assert len((await shell("sessions", "list", "--json")).json) == 1
        other = Shell(shell.home.parent / "restored")
        assert (await other("restore", str(shell.home.parent / "b.tar"))).code == 0
        assert {each["title"] for each in (await other("sessions", "list", "--json")).json} == {title}


def test_the_model_of_a_session_may_be_of_a_provider_of_the_home(shell: Shell) -> None:
    @against(shell, says("Yes."))
    async def _(server: FakeEndpoint) -> None:
        await shell("run", "--session", "ses_1", "Hello?")
        chosen = await shell("sessions", "model", "ses_1", "fake/other")
        assert (chosen.code, chosen.err) == (0, "The next runs of ses_1 use fake/other.\n")
        unknown = await shell("sessions", "model", "ses_1", "nowhere/other")
        assert "no provider is called `nowhere`. Known providers: anthropic, fake, " in unknown.complaint
