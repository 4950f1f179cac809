"""`treadle doctor`: what it finds in homes of all kinds, and that it misses no guard that is asleep."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.shell import Shell
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
    stuck,
)
from treadle.surfaces.cli.doctor_guards import QUARANTINE, TRIALS, Check, fire_all

ALL = {*(guard for trial in TRIALS for guard in trial.marks), QUARANTINE}

Patch = Callable[[pytest.MonkeyPatch], None]


def asleep() -> set[str]:
    checks: Sequence[Check] = asyncio.run(fire_all())
    assert {check.guard for check in checks} == ALL
    return {check.guard for check in checks if not check.armed}


def without(which: str, *judges: Any) -> Patch:
    """The guards of a kind without some."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        left = tuple(judge for judge in getattr(guards, which) if judge not in judges)
        assert len(left) == len(getattr(guards, which)) - len(judges)
        monkeypatch.setattr(guards, which, left)

    return patch


def never(where: str, answer: Any = None) -> Patch:
    """A guard that always says the same."""

    def say(*_: object) -> Any:
        return answer

    return lambda monkeypatch: monkeypatch.setattr(where, say)


def higher(module: Any, name: str) -> Patch:
    """A guard whose number is never reached."""
    return lambda monkeypatch: monkeypatch.setattr(module, name, 1000)


def test_all_guards_are_armed_here() -> None:
    assert asleep() == set()


@pytest.mark.parametrize(
    ("patch", "missed"),
    [
        (higher(loop, "WARN"), {"loop: the same call is warned of"}),
        (higher(loop, "BLOCK"), {"loop: the same call is refused"}),
        (higher(loop, "STOP"), {"loop: the same call ends the run"}),
        (higher(loop, "SAME_RESULT_WARN"), {"loop: the same result is warned of"}),
        (higher(loop, "SAME_RESULT_BLOCK"), {"loop: the same result is refused"}),
        (higher(loop, "STRICT_STOP"), {"loop: strict"}),
        (
            without("PACE", loop.judge_turn),
            {"loop: the same call is warned of", "loop: the same result is warned of"},
        ),
        (
            never("treadle.core.guards.loop.judge_call"),
            {
                "loop: the same call is refused",
                "loop: the same call ends the run",
                "loop: the same result is refused",
                "loop: a cycle of calls is refused",
                "loop: a cycle of calls ends the run",
                "loop: strict",
            },
        ),
        (
            without("PACE", stuck.judge),
            {
                "stuck: a tool that fails again and again",
                "stuck: a tool is refused for a turn",
                "stuck: nothing new is learnt",
                "stuck: recovery is tried",
                "stuck: the run ends",
            },
        ),
        (never("treadle.core.guards.stuck.judge_call"), {"stuck: a tool is refused for a turn"}),
        (without("ANSWER", phantom.judge), {"phantom action"}),
        (without("ANSWER", empty.judge), {"empty turn", "empty: the run ends"}),
        (without("ANSWER", continuation.judge), {"continuation", "truncated: the run ends"}),
        (without("ANSWER", output.judge), {"output schema", "output schema: the run ends"}),
        (without("PACE", max_steps.judge), {"max_steps"}),
        (without("PACE", budget_hint.judge), {"budget hint"}),
        (without("ALWAYS", cancel.judge), {"cancel"}),
        (without("ALWAYS", quarantine.judge), {QUARANTINE}),
        (without("ALWAYS", deadline.judge), {"deadline"}),
        (never("treadle.core.decide.make_room"), {"context: a full one is made shorter"}),
    ],
)
def test_a_guard_that_is_taken_away_is_missed(
    patch: Patch, missed: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.surfaces.cli.doctor_guards.PATIENCE", 0.7)
    patch(monkeypatch)
    assert missed <= asleep()


@pytest.mark.parametrize("guard", ["quota: tokens", "quota: tool calls", "quota: credits", "budget: cost"])
def test_accounts_that_are_not_kept_are_missed(guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where = "for_calls" if guard == "quota: tool calls" else "for_a_model_call"
    for module in list_of_users(where):
        monkeypatch.setattr(module, where, nothing)
    monkeypatch.setattr("treadle.surfaces.cli.doctor_guards.PATIENCE", 0.7)
    assert guard in asleep()


def nothing(*_: object, **__: object) -> None:
    """Nothing is reserved."""


def list_of_users(name: str) -> list[Any]:
    """The modules of the engine that know a function by its name."""
    return [module for key, module in sys.modules.items() if key.startswith("treadle.") and hasattr(module, name)]


# ── The command ──


def found(rows: list[Any]) -> dict[str, tuple[str, str]]:
    return {row["about"]: (row["state"], row["found"]) for row in rows if "about" in row}


def test_an_empty_home_is_well_and_is_not_made(shell: Shell) -> None:
    async def story() -> None:
        done = await shell("doctor", "--json")
        assert done.code == 0, done
        what = found(done.json)
        assert what["home"][0] == "note"
        assert what["provider anthropic"][0] == "note"
        assert {row["guard"] for row in done.json if "guard" in row} == ALL
        assert not shell.home.exists()
        told = await shell("doctor")
        assert told.code == 0
        assert "NOT ARMED" not in told.out
        assert "provider anthropic: To use it, set ANTHROPIC_API_KEY." in told.err

    asyncio.run(story())


def test_what_is_wrong_is_said_and_is_the_exit_code(shell: Shell) -> None:
    shell.configure()
    shell.home.chmod(0o755)
    shell.write("agents/broken/config.yaml", "name: broken\nmodel: 5\n")
    shell.write("agents/lost/config.yaml", "name: lost\nmodel: nowhere/m\n")
    shell.write("treadle.db", "no database at all" * 100)

    async def story() -> None:
        done = await shell("doctor", "--json")
        assert done.code == 1
        what = found(done.json)
        assert {about for about, (state, _) in what.items() if state == "wrong"} == {
            "home",
            "database",
            "agent broken",
            "agent lost",
        }
        assert what["default model"] == ("ok", "fake/m")
        advice = {row["about"]: row["advice"] for row in done.json if "about" in row}
        assert "treadle restore" in advice["database"]
        assert "treadle agents edit broken" in advice["agent broken"]
        told = await shell("doctor")
        assert (told.code, told.err.count("chmod 700")) == (1, 1)

    asyncio.run(story())


def test_whoever_is_to_judge_and_is_not_there_is_named(shell: Shell) -> None:
    shell.configure()
    shell.write("agents/own/config.yaml", "name: own\nmodel: fake/m\n")
    for name, checker, analyzer in (
        ("lead", "qualty-checker", "nobody"),
        ("fine", "quality-checker", "own"),
        ("bare", "null", "error-analyzer"),
    ):
        judges = f"quality: {{checker: {checker}}}\nerrors: {{analyzer: {analyzer}}}\n"
        shell.write(f"agents/{name}/config.yaml", f"name: {name}\nmodel: fake/m\n{judges}")

    async def story() -> None:
        done = await shell("doctor", "--json")
        judged = {about: state for about, (state, *_) in found(done.json).items() if " of " in about}
        assert judged == {"quality.checker of lead": "wrong", "errors.analyzer of lead": "wrong"}
        assert done.code == 1
        told = await shell("doctor")
        assert "`qualty-checker`" in told.out
        assert "Name one that is there, or quality-checker" in told.err

    asyncio.run(story())


def test_settings_that_cannot_be_read_leave_the_rest(shell: Shell) -> None:
    shell.write("config.yaml", "providers: 5\n")

    async def story() -> None:
        done = await shell("doctor", "--json")
        assert done.code == 1
        assert found(done.json)["settings"][0] == "wrong"
        assert {row["guard"] for row in done.json if "guard" in row} == ALL

    asyncio.run(story())


def test_keys_are_never_shown(shell: Shell, tmp_path: Path) -> None:
    shell.environment["OPENAI_API_KEY"] = "sk-canary-canary-canary"
    shell.write("config.yaml", "providers: {mine: {base_url: 'http://u:canary@127.0.0.1:9/v1', api_key: canary}}\n")

    async def story() -> None:
        for arguments in (("doctor",), ("doctor", "--json")):
            done = await shell(*arguments)
            assert "canary" not in done.out + done.err
        assert found(done.json)["provider openai"][0] == "ok"

    asyncio.run(story())
