"""Parsing, help and completion of commands."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from tests.surfaces.shell import COMMAND
from treadle.surfaces.cli.app import run
from treadle.surfaces.cli.command_line import Argument, Group, Option
from treadle.surfaces.cli.command_table import COMMANDS, all_commands, find_command, load_group
from treadle.surfaces.cli.commands.completion import offers

given: dict[str, Any] = {}
group = Group("things")


@group.command("make")
def make(
    name: Annotated[
        str, Argument(metavar="NAME", help="Its name.", suggest=lambda text: [("one", ""), ("two", "")])
    ],
    more: Annotated[list[Path] | None, Argument(metavar="[FILE…]")] = None,
    count: Annotated[int, Option("-n", "--count", min=1, max=9, help="How many.")] = 3,
    kind: Annotated[Literal["big", "small"] | None, Option(help="Which kind.")] = None,
    tag: Annotated[list[str] | None, Option(metavar="TAG", help="May be repeated.")] = None,
    sure: Annotated[bool | None, Option("--yes/--no", help="Whether.")] = None,
    json: Annotated[bool, Option("--json", help="As JSON.")] = False,
) -> None:
    """Make a thing. It is made at once.

    A longer description."""
    given.update(locals())


def parse_line(*words: str) -> dict[str, Any]:
    given.clear()
    with pytest.raises(SystemExit) as ended:
        group.run(["make", *words])
    assert ended.value.code == 0
    return dict(given)


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        group.run(words)
    assert stopped.value.code == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err


def test_values_are_read_by_their_types() -> None:
    assert parse_line("x") == {
        "name": "x", "more": None, "count": 3, "kind": None, "tag": None, "sure": None, "json": False,
    }  # fmt: skip
    all_given = parse_line(
        "--tag", "a", "x", "-n", "5", "--kind=big", "f1", "--tag=b", "f2", "--no", "--json"
    )  # options may stand anywhere
    assert all_given == {
        "name": "x", "more": [Path("f1"), Path("f2")], "count": 5, "kind": "big", "tag": ["a", "b"],
        "sure": False, "json": True,
    }  # fmt: skip
    assert parse_line("--yes", "x")["sure"] is True
    assert parse_line("--", "--json")["name"] == "--json"
    assert parse_line("-")["name"] == "-"
    assert parse_line("-5 degrees", "-n5")["name"] == "-5 degrees"
    assert parse_line("- a list", "--tag", "-")["tag"] == ["-"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("make",), "Missing: NAME."),
        (("make", "x", "--count", "many"), "--count: `many` is not a whole number."),
        (("make", "x", "--count", "10"), "--count: `10` is not between 1 and 9."),
        (("make", "x", "--kind", "odd"), "--kind: `odd` is not one of big, small."),
        (("make", "x", "--nonsense=1"), "No such option: --nonsense."),
        (("make", "x", "-z"), "No such option: -z."),
        (("make", "x", "--tag"), "--tag: expected one argument."),
        (("mkae", "x"), "There is no command `treadle things mkae`. Did you mean `make`?"),
    ],
)
def test_a_mistake_is_reported_in_one_line(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    assert refusal(capsys, *words).startswith(f"treadle: {message}")


def test_help_shows_every_parameter_within_the_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    group.run(["make", "--help"])
    text = capsys.readouterr().out
    assert text.startswith(
        "Usage: treadle things make [OPTIONS] NAME [FILE…]\n\nMake a thing. It is made at once.\n\nA longer"
    )
    for part in ("NAME", "-n, --count INT", "Default: 3.", "--kind big|small", "--yes/--no", "--json"):
        assert part in text
    assert max(map(len, text.splitlines())) <= 60


def test_every_command_has_help_for_itself_and_for_each_parameter(capsys: pytest.CaptureFixture[str]) -> None:
    for command in all_commands():
        assert command.summary, command.path
        for each in command.parameters:
            assert each.declared.help or getattr(each.declared, "hidden", False), (command.path, each.name)
        run([*command.path.split(), "--help"])
        assert capsys.readouterr().out.startswith(f"Usage: treadle {command.path}")
        assert find_command(command.path.split()) is not None


def test_the_summary_of_a_command_is_the_first_sentence_of_its_help() -> None:
    for name, entry in COMMANDS.items():
        assert load_group(entry).commands[name].summary.startswith(entry.summary.rstrip(".")), name


def test_completion_offers_commands_options_and_values() -> None:
    assert [word for word, _ in offers(["ru"])] == ["run", "runs"]
    assert "list" in [word for word, _ in offers(["runs", ""])]
    assert [word for word, _ in offers(["memory", "add", "--ki"])] == ["--kind"]
    assert [word for word, _ in offers(["memory", "add", "--kind", ""])] == ["long_term", "journal"]
    assert [word for word, _ in offers(["completion", "b"])] == ["bash"]
    assert offers(["nonsense", ""]) == []


def test_bash_completes_a_command(tmp_path: Path) -> None:
    script = (
        f'eval "$({COMMAND} completion bash)"; treadle() {{ {COMMAND} "$@"; }}; '
        'COMP_WORDS=(treadle sess); COMP_CWORD=1; _treadle; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.split() == ["sessions"]


def test_help_imports_no_parser() -> None:
    heavy = {"argparse", "inspect", "asyncio", "msgspec", "yaml", "aiohttp", "apsw"}
    code = (
        "import sys; sys.argv = ['treadle', '--help']\nfrom treadle.surfaces.cli import main\nmain()\n"
        f"assert not {heavy} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
