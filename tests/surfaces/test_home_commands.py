"""Commands for backups, deletion, agents and completion."""

import signal
from pathlib import Path

import yaml

from tests.fake_endpoint import DONE, Answer, FakeEndpoint, delta, says
from tests.surfaces.shell import Shell, finish, until_token
from tests.surfaces.terminal import CTRL_C, CTRL_D, Terminal
from tests.surfaces.test_cli import against
from treadle.config.agent_files import TEMPLATES
from treadle.config.home import Home

CANARY = "zanzibarquokka"
HANGS = Answer([delta(content="So far, so")], ending="hang")


def files_of(home: Path) -> bytes:
    return b"".join(file.read_bytes() for file in home.glob("treadle.db*"))


# ── Backup and restore ──


def test_a_home_is_backed_up_during_a_run_and_restored(shell: Shell, tmp_path: Path) -> None:
    @against(shell, says("Yes."), HANGS)
    async def _(server: FakeEndpoint) -> None:
        file = str(tmp_path / "b.tar")
        await shell("run", "first")
        process = shell.start("run", "--json", "second")
        await until_token(process)
        saved = await shell("backup", file)
        assert (saved.code, saved.out) == (0, f"{file}\n")
        assert saved.err.startswith("Backed up and verified: 2 runs with ")
        owned = await shell("restore", file, "--force")
        assert owned.code == 1
        assert "Nothing was changed. The database" in owned.complaint
        process.send_signal(signal.SIGINT)
        await finish(process)

        refused = await shell("restore", file)
        assert refused.code == 2
        assert "is not empty" in refused.complaint
        back = await shell("restore", file, "--force")
        assert back.code == 0, back
        assert "1 run had not ended when the backup was made" in back.err
        assert "The previous files are in" in back.err
        [again] = (await shell("backup", str(tmp_path / "c.tar"), "--json")).json
        assert again["database"]["runs"] == 2
        assert {part["name"] for part in again["parts"]} >= {"config.yaml", "treadle.db"}

        shell.home.joinpath("treadle.db").write_bytes(b"broken" * 1000)
        broken = await shell("runs", "list")
        assert "treadle restore FILE --force" in broken.complaint
        [put] = (await shell("restore", file, "--force", "--json")).json
        assert put["moved_to"][0] in {str(path) for path in shell.home.glob("replaced-*")}
        assert (await shell("runs", "list")).code == 0


async def test_the_backup_names_the_vault_key_and_does_not_contain_it(shell: Shell, tmp_path: Path) -> None:
    await shell("vault", "set", "TOKEN", stdin=b"s3cr3t-canary-value")
    saved = await shell("backup", str(tmp_path / "b.tar"))
    assert f"Its key is not in the backup: keep the file {shell.home / 'vault.key'}" in saved.err
    shell.environment["TREADLE_HOME"] = str(tmp_path / "other")
    back = await shell("restore", str(tmp_path / "b.tar"))
    assert f"The key of the vault was in the file {shell.home / 'vault.key'}" in back.err


# ── Deleting ──


def test_a_session_is_deleted_and_later_requests_say_so(shell: Shell) -> None:
    @against(shell, says(f"The {CANARY} is blue."), says("No."))
    async def _(server: FakeEndpoint) -> None:
        run_id = (await shell("run", "--json", "--session", "ses_1", f"What of the {CANARY}?")).json[0]["run_id"]
        await shell("run", "--session", "ses_2", "Anything else?")
        assert CANARY.encode() in files_of(shell.home)
        asked = await shell("sessions", "delete", "ses_1")
        assert (asked.code, "Add --yes" in asked.complaint) == (2, True)
        done = await shell("sessions", "delete", "ses_1", "--yes")
        assert done.code == 0
        assert done.err.startswith("Deleted ses_1: 1 run, ")
        assert CANARY.encode() not in files_of(shell.home)
        for command in (("runs", "show", run_id), ("runs", "events", run_id, "--follow")):
            told = await shell(*command)
            assert told.code == 2
            assert f"{run_id} was deleted with its session ses_1 on " in told.complaint
        for command in (
            ("sessions", "show", "ses_1"),
            ("sessions", "delete", "ses_1", "--yes"),
            ("run", "--session", "ses_1", "Are you there?"),
        ):
            assert "ses_1 was deleted on" in (await shell(*command)).err
        assert [row["session_id"] for row in (await shell("sessions", "list", "--json")).json] == ["ses_2"]
        [deleted] = (await shell("sessions", "delete", "ses_2", "--yes", "--json")).json
        assert deleted["tombstones"][0]["deleted_by"] == "the owner of the home"


def test_a_session_with_a_run_that_waits_is_refused(shell: Shell) -> None:
    @against(shell, HANGS)
    async def _(server: FakeEndpoint) -> None:
        process = shell.start("run", "--json", "--session", "ses_1", "go")
        event = await until_token(process)
        while_owned = await shell("sessions", "delete", "ses_1", "--yes")
        assert while_owned.code != 0
        process.send_signal(signal.SIGINT)
        await finish(process)
        refused = await shell("sessions", "delete", "ses_1", "--yes")
        assert refused.code == 2
        assert f"treadle runs cancel {event['run_id']}" in refused.complaint
        assert (await shell("prune", "--older-than", "1ms", "--yes", "--json")).json[0]["sessions"] == 0


def test_old_sessions_are_pruned(shell: Shell) -> None:
    @against(shell, says("Yes."), says("Yes."))
    async def _(server: FakeEndpoint) -> None:
        await shell("run", "--session", "ses_1", CANARY)
        await shell("run", "--session", "ses_2", CANARY)
        assert (await shell("prune", "--older-than", "1d", "--dry-run")).err == "No session is that old.\n"
        shown = await shell("prune", "--older-than", "1ms", "--dry-run")
        assert [line.split()[0] for line in shown.out.splitlines()] == ["SESSION", "ses_1", "ses_2"]
        assert len((await shell("prune", "--older-than", "1ms", "--dry-run", "--json")).json) == 2
        assert (await shell("prune", "--older-than", "1ms", "--agent", "nobody", "--yes")).err.startswith(
            "No session is that old. Nothing was deleted."
        )
        assert "Add --yes" in (await shell("prune", "--older-than", "1ms")).complaint
        assert (await shell("prune", "--older-than", "1ms", "--yes")).err.startswith("Deleted 2 sessions (2 runs")
        assert CANARY.encode() not in files_of(shell.home)
        for wrong in ("5x", "0", "-3d", ""):
            assert (await shell("prune", f"--older-than={wrong}", "--yes")).code == 2


# ── Agents ──


def edit_with(shell: Shell, command: str) -> None:
    shell.environment["EDITOR"] = command


async def test_an_agent_is_made_changed_and_deleted(shell: Shell, tmp_path: Path) -> None:
    shell.environment["TMPDIR"] = str(tmp_path)

    made = await shell("agents", "create", "bob", "--model", "fake/m")
    path = shell.home / "agents" / "bob" / "config.yaml"
    assert made.code == 0
    assert yaml.safe_load(path.read_text()) == {
        "name": "bob", "model": "fake/m", "approvals": {"default": "ask"},
    }  # fmt: skip
    assert "# limits:" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert "There is an agent `bob` already" in (await shell("agents", "create", "bob", "-m", "x")).complaint
    edit_with(shell, "sed -i s/fake/other/")
    edited = await shell("agents", "edit", "bob")
    changed, warning = edited.err.splitlines()
    assert changed == "Changed `bob`, from its next run on."
    assert warning.startswith("A run of `bob` is refused: no provider is called `other`")
    assert {"-model: fake/m", "+model: other/m"} <= set(edited.out.splitlines())
    assert Home(shell.home).agent("bob").model == "other/m"
    before = path.read_text()
    for command, words in (
        ("sed -i s/model/modle/", "is not a known key"),
        ("sed -i s/bob/eve/", "as its folder is called"),
        ("sed -i d", "name is missing"),
        ("sh -c 'printf \"\\377\" > $0'", "is not UTF-8"),
        ("false", "ended with 1"),
        ("/no/such/editor", "cannot be started"),
        ("'unclosed", "cannot be started"),
    ):
        edit_with(shell, command)
        wrong = await shell("agents", "edit", "bob")
        assert (wrong.code, words in wrong.complaint) == (2, True), wrong
        assert path.read_text() == before
    edit_with(shell, "true")
    assert (await shell("agents", "edit", "bob")).err == "Nothing was changed.\n"
    assert "Add --yes" in (await shell("agents", "delete", "bob")).complaint
    assert (await shell("agents", "delete", "bob", "--yes", "--json")).json == [{"name": "bob", "deleted": True}]
    assert not path.parent.exists()
    for command in (("edit", "bob"), ("delete", "bob", "--yes"), ("state", "bob", "paused")):
        assert "No agent is called `bob`" in (await shell("agents", *command)).complaint


async def test_an_agent_is_made_from_a_template_with_tools_and_a_persona(shell: Shell, tmp_path: Path) -> None:
    persona = tmp_path / "persona.md"
    persona.write_text("You write poems.\n")

    for template in TEMPLATES:
        made = await shell("agents", "create", template, "-m", "fake/m", "--template", template)
        assert made.code == 0, made
        agent = Home(shell.home).agent(template)
        assert (agent.tools, agent.approvals.default) == (TEMPLATES[template].tools, "ask")
    words = ("--tools", "read_file, memory_*", "--persona", f"@{persona}", "--template", "coder")
    await shell("agents", "create", "poet", "-m", "fake/m", *words)
    poet = Home(shell.home).agent("poet")
    assert (poet.tools, poet.persona) == (("read_file", "memory_*"), "You write poems.")
    for wrong, said in (
        (("--tools", "read_fil"), "Did you mean `read_file`?"),
        (("--tools", "zzz*"), "no tool is called `zzz*`"),
        (("--template", "codr"), "Did you mean `coder`?"),
        (("--persona", "@/no/file"), "cannot be read"),
        (("--from", str(persona), "--tools", "bash"), "--from copies all settings"),
    ):
        done = await shell("agents", "create", "wrong", "-m", "fake/m", *wrong)
        assert (done.code, said in done.complaint) == (2, True), done
    assert not (shell.home / "agents" / "wrong").exists()


async def test_an_agent_is_made_from_a_file(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "eve.yaml"
    file.write_text("# as she likes it\nname: eve\nmodel: fake/m\npersona: Be kind.\n")

    await shell("agents", "create", "eve", "--from", str(file))
    assert (shell.home / "agents/eve/config.yaml").read_text() == file.read_text()
    await shell("agents", "create", "bob", "--from", str(file), "--model", "other/m")
    bob = Home(shell.home).agent("bob")
    assert (bob.name, bob.model, bob.persona) == ("bob", "other/m", "Be kind.")
    file.write_text("name: eve\nmodel: 5\n")
    assert (
        f"{file}: model: found the number 5"
        in (await shell("agents", "create", "carl", "--from", str(file))).complaint
    )
    for name in ("../carl", "", "a/b", ".hidden", "x" * 65):
        assert (await shell("agents", "create", name, "--model", "fake/m")).code == 2
    assert "no model is set. Add --model" in (await shell("agents", "create", "carl")).complaint
    assert "cannot be read" in (await shell("agents", "create", "carl", "--from", "/no/file")).complaint
    assert sorted(entry.name for entry in (shell.home / "agents").iterdir()) == ["bob", "eve"]


async def test_the_state_of_an_agent_is_kept(shell: Shell) -> None:
    await shell("agents", "create", "bob", "--model", "fake/m")
    assert (await shell("agents", "state", "bob")).out == "bob  running\n"
    assert (await shell("agents", "state", "bob", "paused")).code == 0
    [view] = (await shell("agents", "state", "bob", "--json")).json
    assert (view["agent"]["name"], view["state"]) == ("bob", "paused")
    assert (await shell("agents", "state", "bob", "nonsense")).code == 2
    await shell("agents", "state", "bob", "running")
    assert (await shell("agents", "state", "bob")).out == "bob  running\n"


# ── Completion ──


async def list_offers(shell: Shell, line: str) -> list[str]:
    """Return the words that complete a line, as the completion scripts ask for them."""
    done = await shell("__complete", *line.split(" ")[1:])
    assert done.err == ""
    return [offer.partition("\t")[0] for offer in done.out.splitlines()]


def test_completion_offers_existing_names_and_ids(shell: Shell) -> None:
    @against(shell, Answer([delta(content="Yes."), delta(finish="stop"), DONE]))
    async def _(server: FakeEndpoint) -> None:
        run_id = (await shell("run", "--json", "--session", "ses_1", "go")).json[0]["run_id"]
        assert await list_offers(shell, "treadle agents sh") == ["show"]
        assert await list_offers(shell, "treadle agents show de") == ["default"]
        assert await list_offers(shell, "treadle runs show run_") == [run_id]
        assert await list_offers(shell, "treadle runs show zzz") == []
        assert await list_offers(shell, "treadle sessions delete ses") == ["ses_1"]
        shell.home.joinpath("treadle.db").write_bytes(b"broken" * 1000)
        assert await list_offers(shell, "treadle runs show run_") == []


# ── At a terminal ──


def test_the_user_confirms_a_deletion(shell: Shell, folder: Path) -> None:
    @against(shell, says("Yes."))
    async def _(server: FakeEndpoint) -> None:
        await shell("run", "--session", "ses_1", "go")
        for typed in ("n\n", "\n", "perhaps\n", CTRL_D, CTRL_C):
            async with Terminal(shell, "sessions", "delete", "ses_1", folder=folder) as terminal:
                await terminal.shows("Delete ses_1 with 1 run of `default` permanently? [y/N]")
                terminal.types(typed)
                assert await terminal.ends() in (1, 130)
        assert [row["session_id"] for row in (await shell("sessions", "list", "--json")).json] == ["ses_1"]
        async with Terminal(shell, "prune", "--older-than", "1ms", folder=folder) as terminal:
            await terminal.shows("Delete 1 session with 1 run permanently? The latest was used on ")
            terminal.types("y\n")
            assert await terminal.ends() == 0
        assert (await shell("sessions", "list")).err.startswith("No sessions yet.")
