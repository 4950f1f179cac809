"""`treadle doctor`: its findings in homes of all kinds, and its test of the guards."""

import asyncio
import json
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.fake_endpoint import PAUSE, Answer, Behaviour, FakeEndpoint, Silence, refuses
from tests.surfaces.http.process import Serving
from tests.surfaces.http.served_home import write_home
from tests.surfaces.shell import Shell
from tests.surfaces.terminal import Terminal
from treadle.config.home import Home
from treadle.core import guards
from treadle.core.guards import (
    budget_hint,
    cancel,
    continuation,
    deadline,
    empty,
    loop,
    max_steps,
    output,
    phantom,
    quarantine,
    refused,
    stuck,
    written_call,
)
from treadle.doctor.examination import examine
from treadle.operations.system_facts import DoctorFinding
from treadle.surfaces.cli.guard_self_test import QUARANTINE, TRIALS, Check, check_guards

ALL = {*(guard for trial in TRIALS for guard in trial.evidence), QUARANTINE}

Patch = Callable[[pytest.MonkeyPatch], None]


def return_nothing(*_: object, **__: object) -> None:
    """Stand in for a guard or a reservation: reject nothing and reserve nothing."""


async def find_unarmed() -> set[str]:
    """Run the self-test of the guards. Return the guards that did not fire."""
    checks: Sequence[Check] = await check_guards()
    assert {check.guard for check in checks} == ALL
    return {check.guard for check in checks if not check.armed}


def remove(which: str, *judges: Any) -> Patch:
    """Return a patch that removes guards from a list of them."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        left = tuple(judge for judge in getattr(guards, which) if judge not in judges)
        assert len(left) == len(getattr(guards, which)) - len(judges)
        monkeypatch.setattr(guards, which, left)

    return patch


def disable(where: str) -> Patch:
    """Return a patch that makes a guard never object."""
    return lambda monkeypatch: monkeypatch.setattr(where, return_nothing)


def raise_limit(module: Any, name: str) -> Patch:
    """Return a patch that sets a limit of a guard so high that no run reaches it."""
    return lambda monkeypatch: monkeypatch.setattr(module, name, 1000)


async def test_doctor_finds_all_guards_armed() -> None:
    assert await find_unarmed() == set()


def test_only_the_trial_of_the_deadline_has_a_deadline() -> None:
    """On a busy machine the deadline of another trial could pass before its guard fires."""
    timed = [set(trial.evidence) for trial in TRIALS if "deadline" in trial.settings.get("limits", {})]
    assert timed == [{"deadline"}]


@pytest.mark.parametrize(
    ("patch", "missed"),
    [
        (raise_limit(loop, "WARN_CALLS"), {"loop: a repeated call gets a warning"}),
        (raise_limit(loop, "BLOCK_CALLS"), {"loop: a repeated call is rejected"}),
        (raise_limit(loop, "STOP_CALLS"), {"loop: a repeated call ends the run"}),
        (raise_limit(loop, "WARN_SAME_RESULTS"), {"loop: a repeated result gets a warning"}),
        (raise_limit(loop, "BLOCK_SAME_RESULTS"), {"loop: a repeated result is rejected"}),
        (raise_limit(loop, "STRICT_STOP_CALLS"), {"loop: strict"}),
        (
            remove("PACE", loop.judge_turn),
            {"loop: a repeated call gets a warning", "loop: a repeated result gets a warning"},
        ),
        (
            disable("treadle.core.guards.loop.judge_call"),
            {
                "loop: a repeated call is rejected",
                "loop: a repeated call ends the run",
                "loop: a repeated result is rejected",
                "loop: a cycle of calls is rejected",
                "loop: a cycle of calls ends the run",
                "loop: strict",
            },
        ),
        (
            remove("PACE", stuck.judge),
            {
                "stuck: a failing tool is detected",
                "stuck: a failing tool is rejected for one turn",
                "stuck: no new information is detected",
                "stuck: recovery starts",
                "stuck: the run ends",
            },
        ),
        (disable("treadle.core.guards.stuck.judge_call"), {"stuck: a failing tool is rejected for one turn"}),
        (remove("ANSWER", phantom.judge), {"phantom action (answers in English)"}),
        (remove("ANSWER", empty.judge), {"empty turn", "empty: the run ends"}),
        (remove("ANSWER", refused.judge), {"refused: the run ends"}),
        (remove("ANSWER", continuation.judge), {"continuation", "truncated: the run ends"}),
        (
            remove("ANSWER", written_call.judge),
            {"call written as text", "call written as text: the run ends"},
        ),
        (remove("ANSWER", output.judge), {"output schema", "output schema: the run ends"}),
        (remove("PACE", max_steps.judge), {"max_steps"}),
        (remove("PACE", budget_hint.judge), {"budget hint"}),
        (remove("ALWAYS", cancel.judge), {"cancel"}),
        (remove("ALWAYS", quarantine.judge), {QUARANTINE}),
        (remove("ALWAYS", deadline.judge), {"deadline"}),
        (
            disable("treadle.core.decide.make_room"),
            {"context: old results are truncated", "context: a full context is summarized"},
        ),
    ],
)
async def test_a_removed_guard_is_reported(patch: Patch, missed: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.surfaces.cli.guard_self_test.TRIAL_SECONDS", 0.7)
    patch(monkeypatch)
    assert missed <= await find_unarmed()


@pytest.mark.parametrize("guard", ["quota: tokens", "quota: tool calls", "quota: credits", "budget: cost"])
async def test_a_quota_that_is_not_reserved_is_reported(guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where = "reserve_calls" if guard == "quota: tool calls" else "reserve_model_call"
    for module in list_importers(where):
        monkeypatch.setattr(module, where, return_nothing)
    monkeypatch.setattr("treadle.surfaces.cli.guard_self_test.TRIAL_SECONDS", 0.7)
    assert guard in await find_unarmed()


def list_importers(name: str) -> list[Any]:
    """Return the modules of the package that have a function of this name."""
    return [module for key, module in sys.modules.items() if key.startswith("treadle.") and hasattr(module, name)]


# ── The command ──

CLOSED = "http://127.0.0.1:9"
"""Nothing listens there."""
PATIENT = ("--timeout", "30")
"""For probes that are answered: a busy machine may be slow."""
LISTING = refuses(200, {"data": [{"id": "m"}]})


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Return a home on a machine without Ollama."""
    made = Shell(tmp_path / "home")
    made.environment["OLLAMA_HOST"] = CLOSED
    return made


def configure(shell: Shell, *lines: str, **urls: str) -> None:
    """Write a `config.yaml` with these providers and settings. The first provider has the default model."""
    providers = ", ".join(f"{name}: {{base_url: '{url}'}}" for name, url in urls.items())
    first = next(iter(urls))
    server = "" if any(line.startswith("server:") for line in lines) else "server: {port: 9}\n"
    shell.write(
        "config.yaml",
        f"providers: {{{providers}}}\ndefaults: {{model: {first}/m}}\n{server}" + "\n".join(lines) + "\n",
    )
    shell.home.chmod(0o700)


def index_findings(rows: list[Any]) -> dict[str, tuple[str, str]]:
    return {row["about"]: (row["state"], row["found"]) for row in rows if "about" in row}


async def examine_home(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, *, offline: bool = False, timeout_seconds: float = 30
) -> dict[str, DoctorFinding]:
    """Return the findings in a home by subject, in this process: the command also tests the guards each time."""
    for name, value in shell.environment.items():
        monkeypatch.setenv(name, value)
    home = Home.from_environment(shell.environment)
    return {each.about: each for each in await examine(home, offline=offline, timeout_seconds=timeout_seconds)}


async def test_an_empty_home_passes_and_is_not_created(shell: Shell) -> None:
    done = await shell("doctor", "--json")
    assert done.code == 0, done
    what = index_findings(done.json)
    assert what["home"][0] == "note"
    assert what["provider anthropic"][0] == "note"
    assert what["provider ollama"][0] == "note"
    assert "could not be reached" in what["provider ollama"][1]
    assert {row["guard"] for row in done.json if "guard" in row} == ALL
    assert not shell.home.exists()
    told = await shell("doctor")
    assert told.code == 0
    assert "NOT ARMED" not in told.out
    assert "provider anthropic: To use it, set ANTHROPIC_API_KEY." in told.err


async def test_a_wrong_finding_is_printed_and_sets_the_exit_code(shell: Shell) -> None:
    shell.configure()
    shell.home.chmod(0o755)
    shell.write("agents/broken/config.yaml", "name: broken\nmodel: 5\n")
    shell.write("agents/lost/config.yaml", "name: lost\nmodel: nowhere/m\n")
    shell.write("treadle.db", "no database at all" * 100)

    done = await shell("doctor", "--json")
    assert done.code == 1
    what = index_findings(done.json)
    assert {about for about, (state, _) in what.items() if state == "wrong"} == {
        "home",
        "database",
        "agent broken",
        "agent lost",
        "provider fake",
        "default model",
        "agent default",
    }
    assert what["default model"][1].startswith("fake/m: fake could not be reached: ")
    advice = {row["about"]: row["advice"] for row in done.json if "about" in row}
    assert "treadle restore" in advice["database"]
    assert "treadle agents edit broken" in advice["agent broken"]
    told = await shell("doctor")
    assert (told.code, told.err.count("chmod 700")) == (1, 1)


async def test_a_missing_checker_agent_is_named(shell: Shell) -> None:
    shell.configure()
    shell.write("agents/own/config.yaml", "name: own\nmodel: fake/m\n")
    for name, checker, analyzer in (
        ("lead", "qualty-checker", "nobody"),
        ("fine", "quality-checker", "own"),
        ("bare", "null", "error-analyzer"),
    ):
        judges = f"quality: {{checker: {checker}}}\nerrors: {{analyzer: {analyzer}}}\n"
        shell.write(f"agents/{name}/config.yaml", f"name: {name}\nmodel: fake/m\n{judges}")

    done = await shell("doctor", "--json")
    judged = {about: state for about, (state, *_) in index_findings(done.json).items() if " of " in about}
    assert judged == {"quality.checker of lead": "wrong", "errors.analyzer of lead": "wrong"}
    assert done.code == 1
    told = await shell("doctor")
    assert "`qualty-checker`" in told.out
    assert "Name an existing agent, or quality-checker" in told.err


async def test_unreadable_settings_do_not_stop_the_other_checks(shell: Shell) -> None:
    shell.write("config.yaml", "providers: 5\n")

    done = await shell("doctor", "--json")
    assert done.code == 1
    assert index_findings(done.json)["settings"][0] == "wrong"
    assert {row["guard"] for row in done.json if "guard" in row} == ALL


async def test_keys_are_never_shown(shell: Shell, tmp_path: Path) -> None:
    shell.environment["OPENAI_API_KEY"] = "sk-canary-canary-canary"
    shell.write("config.yaml", "providers: {mine: {base_url: 'http://u:canary@127.0.0.1:9/v1', api_key: canary}}\n")

    for arguments in (("doctor", "--offline"), ("doctor", "--offline", "--json")):
        done = await shell(*arguments)
        assert "canary" not in done.out + done.err
    assert index_findings(done.json)["provider openai"] == (
        "set",
        "https://api.openai.com/v1: key set, not tried",
    )


# ── Probed, or a setting ──

CLAIMS = re.compile(r"\b(ok|ready|works?|listens?|answers?|reachable|running|sound|takes)\b", re.IGNORECASE)


def assert_each_line_says_how_it_is_known(rows: list[Any]) -> None:
    for row in rows:
        assert row["basis"] in ("probed", "setting"), row
        if row["basis"] == "setting":
            assert row["state"] in ("set", "note", "wrong"), row
            assert not CLAIMS.search(row["found"]), row
        elif "state" in row:
            assert row["state"] in ("ok", "note", "wrong"), row


@pytest.mark.parametrize("arguments", [(), ("--offline",)], ids=["online", "offline"])
async def test_each_line_is_probed_or_says_that_it_is_a_setting(shell: Shell, arguments: tuple[str, ...]) -> None:
    assert_each_line_says_how_it_is_known((await shell("doctor", "--json", *PATIENT, *arguments)).json)
    async with FakeEndpoint(policy=lambda _: LISTING) as server:
        configure(shell, fake=server.url, closed=f"{CLOSED}/v1", openai=f"{CLOSED}/v1")
        shell.environment["OPENAI_API_KEY"] = "sk-1234"
        shell.write("agents/bad/config.yaml", "name: bad\nmodel: nowhere/m\n")
        shell.write("agents/small/config.yaml", "name: small\nmodel: fake/m\nlimits: {context_window: 9000}\n")
        shell.write("models/x.gguf", "GGUF")
        rows = (await shell("doctor", "--json", *PATIENT, *arguments)).json
        assert_each_line_says_how_it_is_known(rows)
        assert (server.connections == 0) == ("--offline" in arguments)
        told = await shell("doctor", *PATIENT, *arguments)
        assert told.out.startswith("WHAT")
        assert "BASIS" in told.out.splitlines()[0]


def test_a_setting_cannot_be_called_ok() -> None:
    with pytest.raises(ValueError, match="a setting that was not tried is not `ok`"):
        DoctorFinding("provider", "ok", "somewhere", basis="setting")


async def test_offline_opens_no_connection(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeEndpoint() as server:
        port = server.url.split(":")[-1].removesuffix("/v1")
        configure(shell, f"server: {{port: {port}}}", fake=server.url)
        shell.environment["OLLAMA_HOST"] = server.url.removesuffix("/v1")
        what = index_findings((await shell("doctor", "--json", "--offline")).json)
        assert what["provider fake"] == ("set", f"{server.url}: no key is sent, not tried")
        assert what["default model"] == ("set", "fake/m, not tried")
        assert what["server"] == ("set", f"`treadle serve` is configured for 127.0.0.1:{port}; not tried")
        shell.environment["TREADLE_DATABASE_URL"] = f"postgresql://me:secret@127.0.0.1:{port}/db"
        database = (await examine_home(shell, monkeypatch, offline=True))["database"]
        assert (database.state, database.found) == ("set", f"postgresql://me@127.0.0.1:{port}/db, not tried")
        assert server.connections == 0


async def test_a_provider_that_lists_the_model_is_ok(shell: Shell) -> None:
    async with FakeEndpoint(policy=lambda _: LISTING) as server:
        configure(shell, fake=server.url)
        done = await shell("doctor", "--json", *PATIENT)
        what = index_findings(done.json)
        assert what["provider fake"] == ("ok", f"{server.url} answers with 1 model")
        assert what["default model"] == ("ok", "fake/m: fake lists it")
        assert {request.method for request in server.requests} == {"GET"}
        assert done.code == 0, done


@pytest.mark.parametrize(
    ("answer", "state", "words"),
    [
        (refuses(401, {"error": "no"}), "wrong", "requires a key, and none is set (401)"),
        (refuses(500, {"error": "oh"}), "wrong", "answered 500: oh"),
        (refuses(404, {}), "note", "does not give a listing of its models (404"),
        (Answer([b"<html></html>"], 200, {}), "wrong", "not with a listing of models: an HTML page"),
        (Silence(), "wrong", "did not answer within 2 s"),
    ],
    ids=["key", "error", "no listing", "page", "silence"],
)
async def test_other_answers_of_a_provider_are_reported(
    shell: Shell, answer: Behaviour, state: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeEndpoint(policy=lambda _: answer) as server:
        configure(shell, fake=server.url)
        what = await examine_home(shell, monkeypatch, timeout_seconds=2 if answer == Silence() else 30)
        for about in ("provider fake", "default model"):
            assert what[about].state == state
            assert words in what[about].found


async def test_probes_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """Each endpoint answers when all have been asked: one after the other, none would ever answer."""

    async with AsyncExitStack() as opened:
        answer = Answer([PAUSE, b'{"data": [{"id": "m"}]}'], headers={"Content-Type": "application/json"})
        servers = [await opened.enter_async_context(FakeEndpoint(policy=lambda _: answer)) for _ in range(5)]
        home = Home(tmp_path)
        providers = {f"p{number}": {"base_url": server.url} for number, server in enumerate(servers)}
        (tmp_path / "config.yaml").write_text(json.dumps({"providers": providers, "server": {"port": 0}}))
        seen: list[list[str]] = []
        examining = asyncio.create_task(
            examine(home, progress=lambda pending: seen.append(list(pending)), timeout_seconds=60)
        )
        async with asyncio.timeout(30):
            for server in servers:
                await server.asked.wait()
        for server in servers:
            server.go_on.set()
        states = {each.about: each.state for each in await examining}
        assert {states[f"provider {name}"] for name in providers} == {"ok"}
        assert set(providers) <= set(seen[0])
        assert seen[-1] == []


async def test_silent_endpoints_time_out(tmp_path: Path) -> None:
    async with AsyncExitStack() as opened:
        servers = [await opened.enter_async_context(FakeEndpoint(policy=lambda _: Silence())) for _ in range(5)]
        providers = {f"p{number}": {"base_url": server.url} for number, server in enumerate(servers)}
        providers["closed"] = {"base_url": f"{CLOSED}/v1"}
        (tmp_path / "config.yaml").write_text(json.dumps({"providers": providers, "server": {"port": 0}}))
        what = {each.about: each for each in await examine(Home(tmp_path), timeout_seconds=1)}
        for name in providers:
            assert (what[f"provider {name}"].state, what[f"provider {name}"].basis) == ("wrong", "probed")
        assert what["provider p0"].found.endswith("did not answer within 1 s")
        for server in servers:
            await asyncio.wait_for(server.left.wait(), 30)


async def test_a_database_server_that_never_answers_times_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("asyncpg")
    monkeypatch.setattr("treadle.doctor.database.SERVER_SECONDS", 1)

    async with FakeEndpoint() as server:
        where = server.url.removeprefix("http://").removesuffix("/v1")
        (tmp_path / "config.yaml").write_text("server: {port: 0}")
        home = Home(tmp_path, f"postgresql://me:secret@{where}/db")
        [database] = [each for each in await examine(home) if each.about == "database"]
        assert (database.state, database.basis) == ("wrong", "probed")
        assert database.found == f"postgresql://me@{where}/db did not answer within 1 s"


# ── The server, keys and windows ──


async def test_the_server_line_says_what_answers_at_the_port(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    async def server_line() -> tuple[str, str]:
        found = (await examine_home(shell, monkeypatch))["server"]
        return found.state, found.found

    configure(shell, fake=f"{CLOSED}/v1")
    assert await server_line() == ("note", "no server runs on 127.0.0.1:9 (Connection refused)")
    health = refuses(200, {"status": "ok", "version": "1.2.3"})
    for answer, expected in (
        (health, ("ok", "a Treadle server (version 1.2.3) answers on {}")),
        (refuses(200, {"status": "ok"}), ("note", "something other than Treadle answers on {}")),
        (refuses(404, b"<html>"), ("note", "something other than Treadle answers on {}")),
    ):
        async with FakeEndpoint(answer) as server:
            where = server.url.removeprefix("http://").removesuffix("/v1")
            configure(shell, f"server: {{port: {where.split(':')[1]}}}", fake=f"{CLOSED}/v1")
            assert await server_line() == (expected[0], expected[1].format(where))
            assert [request.path for request in server.requests] == ["/healthz"]


async def test_a_built_in_provider_at_another_address_gets_its_key(shell: Shell) -> None:
    shell.environment["OPENAI_API_KEY"] = "sk-canary-1234"

    async with FakeEndpoint(policy=lambda _: refuses(401, {"error": "wrong key"})) as server:
        configure(shell, openai=server.url)
        done = await shell("doctor", "--json", *PATIENT)
        [row] = [row for row in done.json if row.get("about") == "provider openai"]
        assert row["state"] == "wrong"
        keys = {name.lower(): key for each in server.requests for name, key in each.headers.items()}
        assert keys["authorization"] == "Bearer sk-canary-1234"
        assert "canary" not in done.out


@pytest.mark.parametrize(
    ("settings", "stated", "expected"),
    [
        ("", None, ("note", "setting", "200,000 tokens, assumed, because nothing is known about this model")),
        ("models: {fake/m: {context_window: 5000}}", None, ("set", "setting", "5,000 tokens, set in config.yaml")),
        (
            "models: {fake/m: {context_window: 5000}}",
            5000,
            ("ok", "probed", "set in config.yaml; fake says the same"),
        ),
        (
            "",
            32_768,
            (
                "wrong",
                "probed",
                "200,000 tokens, assumed, because nothing is known about this model; fake says 32,768",
            ),
        ),
        ("", 400_000, ("note", "probed", "fake says 400,000")),
    ],
)
async def test_a_context_window_says_where_it_comes_from(
    shell: Shell,
    settings: str,
    stated: int | None,
    expected: tuple[str, str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listing = refuses(200, {"data": [{"id": "m", "max_model_len": stated}]})

    async with FakeEndpoint(policy=lambda _: listing) as server:
        configure(shell, settings, fake=server.url)
        found = (await examine_home(shell, monkeypatch))["context window fake/m"]
        assert (found.state, found.basis) == expected[:2]
        assert found.found.endswith(expected[2])


async def test_invalid_weights_are_found(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.write("models/broken.gguf", "<html>")

    weights = (await examine_home(shell, monkeypatch, offline=True))["local weights"]
    assert (weights.state, weights.found) == ("wrong", "not GGUF files: broken.gguf")


# ── Progress ──


async def test_a_terminal_shows_what_is_probed_and_a_pipe_does_not(shell: Shell, tmp_path: Path) -> None:
    answer = Answer([PAUSE, b'{"data": [{"id": "m"}]}'], headers={"Content-Type": "application/json"})
    async with FakeEndpoint(policy=lambda _: answer) as server:
        configure(shell, fake=server.url)
        shell.environment["TERM"] = "xterm"
        for command in (("doctor",), ("models", "list")):
            server.go_on.clear()
            async with Terminal(shell, *command, *PATIENT, folder=tmp_path) as terminal:
                await terminal.shows("probing fake")
                server.go_on.set()
                await terminal.shows("answers with 1 model")
                assert await terminal.ends() == 0
        for command in (("doctor",), ("doctor", "--json"), ("models", "list"), ("models", "list", "--json")):
            done = await shell(*command, *PATIENT)
            assert "probing" not in done.out + done.err
            assert "\r" not in done.out + done.err


async def test_a_server_on_another_port_is_found(tmp_path: Path) -> None:
    async with FakeEndpoint(policy=lambda _: LISTING) as endpoint:
        write_home(tmp_path / "home", endpoint.url)
        serving = Serving(Shell(tmp_path / "home"))
        await asyncio.to_thread(serving.start)
        found = {each["about"]: each for each in (await serving.shell("doctor", "--json")).json if "about" in each}
        assert found["server"]["state"] == "ok", found["server"]
        assert found["server"]["found"].endswith(f"answers on 127.0.0.1:{serving.port}")
        serving.stop()
