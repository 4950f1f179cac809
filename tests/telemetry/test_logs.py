"""Log lines: one per record, without secrets, and with the ID of their run."""

import json
import logging
import stat
from collections.abc import Generator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import treadle
from tests.engine.running import agent
from tests.telemetry.watched import look, watched
from treadle.domain.errors import ConfigError
from treadle.engine.null_ports import NoVault
from treadle.ports.vault import VaultError
from treadle.telemetry.logs import WITHHELD, JsonLogFormatter, PrivateLogFile, RunLog, escape_unprintable
from treadle.telemetry.settings import Telemetry
from treadle.testing.models import ScriptedFailure, ScriptedModel, ask, call, say
from treadle.vault.redactor import SecretRedactor
from treadle.vault.store import SecretGrant, VaultStore

SECRET = "correct horse battery"


class OneSecret(NoVault):
    redactor = SecretRedactor([("KEY", SECRET)])  # pyright: ignore[reportAssignmentType] -- one that has something to do


class UnreadableVault(NoVault):
    @property
    def redactor(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride] -- it fails when it is asked
        raise VaultError("no key fits")


def line(message: str, *arguments: object, vault: NoVault | None = None, **more: Any) -> str:
    record = logging.LogRecord("treadle.test", logging.WARNING, __file__, 1, message, arguments, None)
    vars(record).update(more)
    return JsonLogFormatter(vault or NoVault(), RunLog()).format(record)


@given(st.text(alphabet=st.characters(codec=None)))
def test_any_text_is_one_printable_line_with_the_same_content(text: str) -> None:
    made = line("%s", text)
    assert made.isprintable(), "no control character, no change of direction, no line break of any kind"
    said = json.loads(made)["message"]
    assert said == "".join("\ufffd" if "\ud800" <= each <= "\udfff" or each == "\0" else each for each in text)


def test_invisible_characters_are_written_as_numbers() -> None:
    assert (
        escape_unprintable('"a\u202eb\x7f\x85\u2028\U000e0041"') == '"a\\u202eb\\u007f\\u0085\\u2028\\udb40\\udc41"'
    )
    assert json.loads(escape_unprintable('"\U000e0041"')) == "\U000e0041"


def test_a_line_has_its_time_level_logger_and_run() -> None:
    said = json.loads(line("hello", created=0.5, run_id="run_1"))
    assert said == {
        "time": "1970-01-01T00:00:00.500Z",
        "level": "warning",
        "logger": "treadle.test",
        "message": "hello",
        "run_id": "run_1",
    }


def test_secrets_and_tokens_are_redacted_in_every_field() -> None:
    try:
        raise ValueError(f"it was {SECRET}")
    except ValueError as error:
        caught = (ValueError, error, error.__traceback__)
    made = line("%s and trd_abcDEF123456", SECRET, vault=OneSecret(), agent=f"x {SECRET}", exc_info=caught)
    assert SECRET not in made
    assert "abcDEF" not in made
    said = json.loads(made)
    assert said["message"] == "[redacted:KEY] and [redacted]"
    assert said["agent"] == "x [redacted:KEY]"
    assert said["error"].endswith("ValueError: it was [redacted:KEY]")
    assert "Traceback" in said["error"]


@pytest.mark.parametrize(
    "text",
    [
        "GET /v1/events?token=trd_abcDEF123456",
        "Authorization: Bearer abcDEF123456",
        "bearer  abcDEF123456",
        "basic abcDEF123456=",
    ],
)
def test_no_token_is_ever_written(text: str) -> None:
    assert "abcDEF" not in line(text)


def test_plain_words_stay_as_they_are() -> None:
    assert json.loads(line("basic authentication, of the bearer certificate"))["message"].endswith(
        "bearer certificate"
    )


def test_a_log_line_is_withheld_if_the_vault_cannot_be_read() -> None:
    assert json.loads(line("hello", vault=UnreadableVault()))["message"] == WITHHELD


def test_an_endless_text_is_truncated() -> None:
    assert len(line("x" * 1_000_000)) < 21_000


def test_the_file_is_private_and_bounded(tmp_path: Path) -> None:
    handler = PrivateLogFile(tmp_path / "logs" / "treadle.log", size=500, kept=2)
    handler.setFormatter(JsonLogFormatter(NoVault(), RunLog()))
    for number in range(40):
        handler.emit(logging.LogRecord("x", logging.INFO, "", 1, "line %d", (number,), None))
    handler.close()
    files = sorted((tmp_path / "logs").iterdir())
    assert [file.name for file in files] == ["treadle.log", "treadle.log.1", "treadle.log.2"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert stat.S_IMODE((tmp_path / "logs").stat().st_mode) == 0o700
    assert all(file.stat().st_size <= 500 for file in files)
    assert json.loads(files[0].read_text().splitlines()[-1])["message"] == "line 39"


def test_a_full_disk_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    handler = PrivateLogFile(Path("/dev/full"))
    for _ in range(3):
        handler.handle(logging.LogRecord("x", logging.INFO, "", 1, "hello", (), None))
    with suppress(OSError):  # what is left to be written
        handler.close()
    assert capsys.readouterr().err == (
        "treadle: writing to the log /dev/full failed, lines are lost: [Errno 28] No space left on device\n"
    )


# ── Of runs ──


@pytest.fixture
def restore_loggers() -> Generator[None, None, None]:
    """Restore the loggers of this process after a test."""
    root, ours = logging.getLogger(), logging.getLogger("treadle")
    before = (root.handlers.copy(), ours.level)
    yield
    assert (root.handlers, ours.level) == before


async def test_the_start_and_end_of_runs_are_logged_with_their_owners(
    tmp_path: Path, restore_loggers: None
) -> None:
    @treadle.tool
    async def grumble() -> str:
        """Log something."""
        logging.getLogger("somebody.else").warning("I am here\nand there")
        return "grumbled"

    model = ScriptedModel(
        ask(call("grumble"), call("look", place="nowhere")),
        ScriptedFailure("overloaded", "busy", True, retry_after=0.0),
        say("done"),
    )

    async with watched(tmp_path, model, Telemetry(log_file=True)) as engine:
        result = await engine.run(agent(tools=[grumble, look]), "go")
    lines = [json.loads(line) for line in (tmp_path / "home" / "logs" / "treadle.log").read_text().splitlines()]
    about = {"run_id": result.run_id, "session_id": result.session_id, "agent": "hero"}
    assert [{name: said[name] for name in about} for said in lines] == [about] * len(lines)
    run = f"run {result.run_id[:16]} of hero"
    assert [(said["level"], said["logger"], said["message"]) for said in lines] == [
        ("warning", "somebody.else", "I am here\nand there"),
        ("info", "treadle.runs", f"{run}: call of look failed (failed)"),
        ("info", "treadle.runs", f"{run}: model call failed (overloaded): busy"),
        ("info", "treadle.runs", lines[-1]["message"]),
    ]
    assert lines[-1]["message"].startswith(f"{run} ended: completed, 2 steps, ")


async def test_standard_error_is_json_on_request(
    tmp_path: Path, restore_loggers: None, capsys: pytest.CaptureFixture[str]
) -> None:
    async with watched(tmp_path, ScriptedModel(say("done")), Telemetry(log_json=True)) as engine:
        await engine.run(agent(), "go")
    [said] = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert " of hero ended: completed, 1 step, " in said["message"]
    assert not (tmp_path / "home" / "logs").exists()


async def test_a_log_that_cannot_be_written_is_reported_before_the_start(
    tmp_path: Path, restore_loggers: None
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "logs").write_text("in the way")

    async def scenario() -> None:
        async with watched(tmp_path, ScriptedModel(), Telemetry(log_file=True)):
            pass

    with pytest.raises(ConfigError, match=r"logs/treadle.log: the log cannot be written"):
        await scenario()


async def test_a_secret_that_a_tool_logs_is_redacted(tmp_path: Path, restore_loggers: None) -> None:
    with closing(VaultStore(tmp_path / "home", {})) as vault:
        vault.put("TOKEN", SECRET, (SecretGrant("hero"),))

    @treadle.tool
    async def careless(text: str) -> str:
        """Log what it is given."""
        try:
            raise ValueError(f"cannot use {text}")
        except ValueError:
            logging.getLogger("careless").exception("given %s, or %s", text, text.encode().hex())
        return "done"

    model = ScriptedModel(ask(call("careless", text="{{vault:TOKEN}}")), say("done"))

    async with watched(tmp_path, model, Telemetry(log_file=True)) as engine:
        await engine.run(agent(tools=[careless]), "go")
    written = (tmp_path / "home" / "logs" / "treadle.log").read_text()
    assert SECRET not in written
    assert SECRET.encode().hex() not in written
    first = json.loads(written.splitlines()[0])
    assert first["message"] == "given [redacted:TOKEN], or [redacted:TOKEN]"
    assert first["error"].endswith("ValueError: cannot use [redacted:TOKEN]")


def test_processes_that_share_a_log_file_rotate_it_once_and_lose_no_line(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "treadle.log"
    files = [PrivateLogFile(path, size=1000, kept=50) for _ in range(3)]
    for number in range(300):
        files[number % 3].handle(logging.makeLogRecord({"msg": f"line {number:04}"}))
    for each in files:
        each.close()
    written = [*path.parent.glob("treadle.log*")]
    lines = [text for each in written for text in each.read_text().splitlines()]
    assert sorted(lines) == [f"line {number:04}" for number in range(300)]
    assert all(each.stat().st_size <= 1000 for each in written)
    assert len(written) == 3, "each file was filled before the next"
