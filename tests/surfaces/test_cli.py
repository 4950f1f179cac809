"""The command line: the real command with an endpoint on loopback, signals and invalid input."""

import asyncio
import io
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.fake_endpoint import DONE, Answer, Behaviour, FakeEndpoint, delta, refuses, says
from tests.surfaces.shell import COMMAND, Shell, finish, until_token
from treadle.domain.errors import UsageError
from treadle.surfaces.terminal.line_input import read_message

ANSWER = "Two and three make five."
HANGS = Answer([delta(content="Two and three make")], ending="hang")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "home")


def against(shell: Shell, *script: Behaviour) -> Callable[[Callable[[FakeEndpoint], Awaitable[None]]], None]:
    """Run a test against an endpoint that follows a script, known to the shell as the provider `fake`."""

    async def run(test: Callable[[FakeEndpoint], Awaitable[None]]) -> None:
        async with FakeEndpoint(*script) as server:
            shell.url = server.url
            shell.configure()
            await test(server)

    return lambda test: asyncio.run(run(test))


# ── Starting ───────────────────────────────────────────────────────────────────────────────────────


def test_help_imports_no_heavy_library() -> None:
    heavy = {"aiohttp", "apsw", "msgspec", "yaml", "asyncio", "rich"}
    code = f"import sys, treadle.surfaces.cli.app; sys.exit(len({heavy} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_command_that_asks_no_model_loads_no_client(tmp_path: Path) -> None:
    home = {"TREADLE_HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-X", "importtime", COMMAND, "runs", "list"]
    done = subprocess.run(command, env=home, capture_output=True, check=True)
    loaded = {line.rsplit(b"|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert b"treadle.operations.runs" in loaded
    assert not loaded & {b"aiohttp", b"starlette", b"asyncpg", b"numpy", b"opentelemetry", b"treadle.api.engine"}


async def test_help_and_version_are_printed(shell: Shell) -> None:
    helped, version, nothing, wrong = await asyncio.gather(
        shell("--help"), shell("--version"), shell(), shell("run", "--nonsense")
    )
    assert helped.code == 0
    assert "runs" in helped.out
    assert version.out == "treadle 0.1.0\n"
    assert (nothing.code, nothing.out) == (0, helped.out)
    assert wrong.code == 2
    assert "No such option: --nonsense" in wrong.err
    assert not shell.home.exists()


# ── One run ────────────────────────────────────────────────────────────────────────────────────────


def test_an_answer_goes_to_standard_output_and_nothing_else_does(shell: Shell) -> None:
    @against(shell, says(ANSWER), says("5"), says("NO_REPLY"))
    async def _(server: FakeEndpoint) -> None:
        assert await shell("run", "What is 2+3?") == (0, f"{ANSWER}\n", "")
        again = await shell("run", "-", stdin=b"What is 2+3?\n")
        assert again[:2] == (0, "5\n")
        recalled, command = again.err.strip().split("; to read them: treadle ")
        assert recalled == "recalled 1 note"
        assert "Asked: What is 2+3?" in (await shell(*command.split())).out, "the command shows what was recalled"
        assert await shell("run", "Say nothing.") == (0, "", "")
        assert server.requests[1].json["messages"][-1]["content"].endswith("[end of memory]\n\nWhat is 2+3?")


def test_json_prints_every_event(shell: Shell) -> None:
    @against(shell, says("\x1b[31m" + ANSWER))
    async def _(server: FakeEndpoint) -> None:
        done = await shell("run", "--json", "--yes", "What is 2+3?")
        assert done.code == 0
        assert "\x1b" not in done.out
        durable = [event["sequence"] for event in done.json if event["type"] != "token"]
        assert durable == list(range(1, len(durable) + 1))
        assert done.json[-1]["type"] == "run_end"
        assert {"event_id", "timestamp", "agent_id", "run_id", "session_id", "data"} < done.json[0].keys()


def test_a_session_continues(shell: Shell) -> None:
    @against(shell, says("I see."), says("Anna."))
    async def _(server: FakeEndpoint) -> None:
        first = await shell("run", "--json", "My name is Anna.")
        session = first.json[0]["session_id"]
        assert (await shell("run", "--session", session, "What is my name?")).out == "Anna.\n"
        said = [message["content"] for message in server.requests[1].json["messages"]]
        assert said == ["My name is Anna.", "I see.", "What is my name?"]


async def test_any_endpoint_works_without_configuration(shell: Shell) -> None:
    async with FakeEndpoint(says(ANSWER)) as server:
        shell.environment["OPENAI_API_KEY"] = "sk-none-1234"
        done = await shell("run", "--base-url", server.url, "-m", "vendor/some-model", "What is 2+3?")
        assert done == (0, f"{ANSWER}\n", "")
        assert server.requests[0].json["model"] == "vendor/some-model"
        assert server.requests[0].headers["authorization"] == "Bearer sk-none-1234"


def test_a_limit_has_its_own_exit_code(shell: Shell) -> None:
    @against(shell, Answer([delta(content="Half of an answer, and"), delta(finish="length"), DONE]))
    async def _(server: FakeEndpoint) -> None:
        shell.write("agents/brief/config.yaml", "{name: brief, model: fake/m, limits: {max_continuations: 0}}")
        done = await shell("run", "-a", "brief", "Go on.")
        assert (done.code, done.out) == (3, "Half of an answer, and\n")
        assert done.err.startswith("treadle: truncated: ")


def test_a_retry_is_reported_and_the_failed_attempt_is_not_printed(shell: Shell) -> None:
    cut = Answer([delta(content="Two and three make no sense")], ending="cut")

    @against(shell, cut, says(ANSWER))
    async def _(server: FakeEndpoint) -> None:
        shell.write("agents/default/config.yaml", "{name: default, model: fake/m, retry: {base_ms: 1}}")
        done = await shell("run", "What is 2+3?")
        assert (done.code, done.out) == (0, f"{ANSWER}\n")
        assert "Retrying in 0.0 s." in done.err


# ── Signals ────────────────────────────────────────────────────────────────────────────────────────


def test_ctrl_c_parks_the_run_and_it_can_be_resumed(shell: Shell) -> None:
    @against(shell, HANGS, says(ANSWER))
    async def _(server: FakeEndpoint) -> None:
        process = shell.start("run", "--json", "What is 2+3?")
        await until_token(process)
        process.send_signal(signal.SIGINT)
        done = await finish(process)
        assert done.code == 130
        assert done.json[-1]["type"] == "run_waiting"
        resume = re.search(r"treadle (runs resume run_\w+), or: treadle run --session ses_\w+ \"…\"", done.err)
        assert resume is not None
        resumed = await shell(*resume[1].split())
        assert (resumed.code, resumed.out) == (0, f"{ANSWER}\n")


def test_a_killed_command_can_be_followed_without_a_message_to_the_model(shell: Shell) -> None:
    @against(shell, HANGS, says(ANSWER))
    async def _(server: FakeEndpoint) -> None:
        process = shell.start("run", "--json", "What is 2+3?")
        run_id = (await until_token(process))["run_id"]
        process.kill()
        await finish(process)
        resumed = await shell("runs", "resume", run_id)
        assert (resumed.code, resumed.out) == (0, f"{ANSWER}\n")
        assert server.requests[1].json["messages"] == server.requests[0].json["messages"]


def test_a_reader_that_closes_the_output_is_not_an_error(shell: Shell) -> None:
    """There is far more to write than a pipe and its reader can hold, so that writing meets a reader who has left:
    also where the first of it, of which a late reader gets all in one line, was much already."""

    @against(shell, Answer([delta(content="word " * 1000)] * 6000, ending="hang"))
    async def _(server: FakeEndpoint) -> None:
        done = await finish(shell.start_pipe("run --json hello", "grep --max-count=1 '\"token\"' > /dev/null"))
        assert done.code == 141
        assert "Resume it: treadle runs resume run_" in done.err
        assert "Error" not in done.err


def test_a_killed_run_is_resumed_by_the_next_command(shell: Shell) -> None:
    @against(shell, HANGS, says(ANSWER), says(ANSWER))
    async def _(server: FakeEndpoint) -> None:
        process = shell.start("run", "--json", "What is 2+3?")
        await until_token(process)
        process.kill()
        await finish(process)
        done = await shell("run", "And 3+2?")
        assert (done.code, done.out) == (0, f"{ANSWER}\n")
        taken = re.match(r"Resuming 1 unfinished run: (run_\w+)\n", done.err)
        assert taken is not None
        assert [request.json["messages"][0]["content"] for request in server.requests].count("What is 2+3?") == 2


def test_a_database_has_one_owner_which_parks_its_run_when_it_is_terminated(shell: Shell) -> None:
    @against(shell, HANGS, HANGS)
    async def _(server: FakeEndpoint) -> None:
        owner = shell.start("run", "--json", "hello")
        await until_token(owner)
        other = shell.start("run", "--json", "hello")  # attaches, and is worked on by the owner
        others = (await until_token(other))["run_id"]
        refused = await shell("run", "--base-url", server.url, "hello")
        assert refused.code == 2
        assert f"is owned by process {owner.pid} (`treadle run`" in refused.complaint
        owner.send_signal(signal.SIGTERM)
        ended, left = await finish(owner), await finish(other)
        assert (ended.code, left.code) == (143, 1)
        run_id = ended.json[-1]["run_id"]
        told = f"Continue it now: treadle runs resume {others}"
        assert told in left.err
        assert await shell("runs", "cancel", others) == (0, f"{others} cancelled\n", "")
        assert await shell("runs", "cancel", run_id) == (0, f"{run_id} cancelled\n", "")
        assert (await shell("runs", "cancel", run_id)).code == 2


# ── Looking at runs and agents ─────────────────────────────────────────────────────────────────────


def test_runs_are_listed_and_shown_with_their_events(shell: Shell) -> None:
    @against(shell, says(ANSWER))
    async def _(server: FakeEndpoint) -> None:
        assert await shell("runs", "list") == (0, "", 'No runs yet. Start one: treadle run "Hello."\n')
        run_id = (await shell("run", "--json", "What\nis 2+3?")).json[0]["run_id"]
        head, row = (await shell("runs", "list")).out.splitlines()
        assert head.split() == ["RUN", "CREATED", "STATE", "AGENT", "MESSAGE"]
        assert re.fullmatch(rf"{run_id[:16]}  (now|\d+ (s|min) ago) +completed  default  What is 2\+3\?", row)
        shown = await shell("runs", "show", run_id)
        assert "used         1 step, 1 model call, 0 tool calls, 10 tokens in, 5 out" in shown.out
        assert "cost         unknown, 0.00 credits" in shown.out
        assert shown.out.endswith(f"\n{ANSWER}\n")
        [told] = (await shell("runs", "show", run_id, "--json")).json
        assert {"cost", "credits", "actions"} < set(told["result"]["metrics"])
        assert {"score", "diagnosis"} < set(told["result"])
        events = (await shell("runs", "events", run_id, "--after", "6")).out.splitlines()
        assert [line.split()[:2] for line in events] == [
            ["7", "llm_response"], ["8", "step_end"], ["9", "memory_saved"], ["10", "run_end"],
        ]  # fmt: skip
        followed = await shell("runs", "events", run_id, "--follow", "--json")
        assert [event["sequence"] for event in followed.json] == list(range(1, 11))


async def test_agents_are_listed_and_shown(shell: Shell) -> None:
    shell.configure().write("agents/broken/config.yaml", "{name: broken, model: 1}")
    listed, shown = await asyncio.gather(shell("agents", "list"), shell("agents", "show", "default", "--json"))
    assert listed.code == 2
    assert listed.out.splitlines()[1].split() == ["default", "fake/m", "running"]
    assert listed.err.endswith("agents/broken/config.yaml: model: found the number 1; accepted: text\n")
    [view] = shown.json
    assert (view["agent"]["name"], view["agent"]["retry"], view["state"]) == (
        "default",
        {"attempts": 0},
        "running",
    )
    text = (await shell("agents", "show", "default")).out
    assert text.startswith("name: default\nmodel: fake/m\n")
    assert "retry:\n  attempts: 0\n  base_ms: 1000\n" in text


# ── Bad input: one line each ───────────────────────────────────────────────────────────────────────

LONG = "x" * 128_001


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["run", "-a", "nobody", "hi"], r"No agent is called `nobody`; known agents: default, wrong\."),
        (["run", "-a", "wrong", "hi"], r".*/agents/wrong/config\.yaml: limits\.max_steps: found the text `many`"),
        (
            ["run", "-m", "nowhere/m", "hi"],
            r"no provider is called `nowhere`. Known providers: anthropic, fake, local",
        ),
        (["run", "-m", "openai/gpt", "hi"], r"provider openai needs a key and none is set; set .*OPENAI_API_KEY"),
        (["run", "--base-url", "nonsense", "hi"], r"provider nonsense: base_url must be an http or https URL"),
        (["run", LONG], r"The message has 128001 characters; at most 128000 are accepted"),
        (["runs", "show", "run_\x1b[31m"], r"There is no run run_␛\[31m in this database"),
    ],
)
async def test_an_error_that_the_user_can_fix_is_one_line_and_exit_code_2(
    shell: Shell, arguments: list[str | bytes], complaint: str
) -> None:
    shell.configure()
    shell.write("agents/wrong/config.yaml", "{name: wrong, model: fake/m, limits: {max_steps: many}}")
    done = await shell(*arguments)
    assert done.code == 2
    assert re.match(complaint, done.complaint), done.complaint


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"x" * 600_000, "exceeds the limit of 128000 characters"),
        (b"\xff\xfe", "The message is not UTF-8 text"),
        (b" \n", "The message is empty"),
        (b"", "The message is empty"),
    ],
)
def test_standard_input_that_is_not_a_message_is_refused(
    monkeypatch: pytest.MonkeyPatch, data: bytes, complaint: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    with pytest.raises(UsageError, match=complaint):
        read_message("-")


async def test_an_unreachable_endpoint_is_reported(shell: Shell) -> None:
    done = await shell.configure()("run", "hi")
    assert done.code == 1
    assert done.complaint.startswith("model_error: fake cannot be reached at http://127.0.0.1:9/v1")


def test_a_refused_key_is_reported(shell: Shell) -> None:
    @against(shell, refuses(401, {"error": {"message": "Incorrect API key provided"}}))
    async def _(server: FakeEndpoint) -> None:
        done = await shell("run", "hi")
        assert done.code == 1
        assert "fake answered 401" in done.complaint


async def test_a_home_that_is_a_file_is_reported(shell: Shell) -> None:
    shell.home.touch()
    done = await shell("run", "-m", "ollama/m", "hi")
    assert done.code == 2
    assert re.search("home is not a folder. Set TREADLE_HOME to a folder", done.complaint)


async def test_an_unsupported_database_url_is_refused_without_its_password(shell: Shell) -> None:
    shell.configure().environment["TREADLE_DATABASE_URL"] = "mysql://me:secret@host/db"
    done = await shell("runs", "list")
    assert done.code == 2
    assert "`mysql://me@host/db` is not a supported database URL" in done.complaint
    shell.environment["TREADLE_DATABASE_URL"] = "postgresql+asyncpg://me:canary@host/db"
    done = await shell("doctor")
    assert done.code == 1
    assert "`postgresql+asyncpg://me@host/db` is not a supported database URL" in done.out
    assert "canary" not in done.out + done.err


async def test_an_unreachable_database_server_is_reported_without_the_password(shell: Shell) -> None:
    shell.configure().environment["TREADLE_DATABASE_URL"] = "postgresql://me:secret@127.0.0.1:1/db"
    done = await shell("runs", "list")
    assert done.code == 1
    assert "The PostgreSQL server at postgresql://me@127.0.0.1:1/db cannot be reached" in done.complaint
    assert "secret" not in done.complaint


async def test_a_worker_refuses_a_sqlite_database(shell: Shell) -> None:
    shell.configure()
    done = await shell("worker")
    assert done.code == 2
    assert "is SQLite, which one process owns" in done.complaint
    done = await shell("serve", "--no-workers", "--port", "0")
    assert done.code == 2
    assert "--no-workers needs PostgreSQL" in done.complaint


async def test_a_host_without_a_port_is_refused_for_a_worker(shell: Shell) -> None:
    shell.configure().environment["TREADLE_DATABASE_URL"] = "postgresql://me@127.0.0.1:1/db"
    done = await shell("worker", "--host", "0.0.0.0")
    assert done.code == 2
    assert "--host 0.0.0.0 needs a port: add --port PORT" in done.complaint


async def test_a_damaged_database_is_left_as_it_is(shell: Shell) -> None:
    shell.configure()
    database = shell.home / "treadle.db"
    database.write_bytes(b"no database at all, " * 500)
    before = database.read_bytes()
    done = await shell("run", "hi")
    assert done.code == 1
    assert re.search(r"treadle\.db is damaged .* Nothing was changed", done.complaint)
    assert database.read_bytes() == before


async def test_a_database_of_a_newer_version_is_left_as_it_is(shell: Shell) -> None:
    shell.configure()
    with sqlite3.connect(shell.home / "treadle.db") as database:
        database.execute("PRAGMA user_version = 999")
    database.close()
    done = await shell("run", "hi")
    assert done.code == 1
    assert "(schema version 999;" in done.complaint


async def test_a_database_locked_by_another_program_is_reported(shell: Shell) -> None:
    shell.configure()
    database = sqlite3.connect(shell.home / "treadle.db", isolation_level=None)
    database.execute("BEGIN EXCLUSIVE")
    done = await shell("runs", "list")
    database.close()
    assert done.code == 1
    assert "is locked by another program" in done.complaint
