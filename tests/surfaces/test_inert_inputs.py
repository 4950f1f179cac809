"""Inputs and outputs that must not act: anchors in settings, hard links to the home, long pages, terminal codes."""

import os
from pathlib import Path

import msgspec
import pytest

from tests.surfaces.shell import Shell
from treadle.config.home import Home
from treadle.domain.errors import ConfigError
from treadle.ports.tool import ToolError
from treadle.surfaces.cli.commands.vault import describe_grant_risks
from treadle.surfaces.terminal.text import inert_json
from treadle.tools.files.workspace import open_workspace
from treadle.tools.web.fetch import MAX_HTML_BYTES, _format_page, _read_text  # pyright: ignore[reportPrivateUsage] -- without a network
from treadle.tools.web.http_fetch import FetchedPage

BOMB = "a: &a [x, x]\nb: &b [*a, *a]\n"


@pytest.mark.parametrize(
    "text", [BOMB, "defaults: &d {model: x}\n", "defaults: {<<: {model: x}}\n", "server: *x\n"]
)
def test_anchors_aliases_and_merge_keys_are_refused_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"line \d+: .*not accepted; write the value") as refused:
        Home(tmp_path).config()
    assert "\n" not in str(refused.value)


def test_anchor_characters_in_quoted_text_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("house_rules: 'a & b * c << d'\n")
    assert Home(tmp_path).config().house_rules == "a & b * c << d"


def test_a_hard_link_to_a_file_of_the_home_is_protected(tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    (home / "deep").mkdir(parents=True)
    work.mkdir()
    (home / "deep" / "vault.db").write_text("canary")
    os.link(home / "deep" / "vault.db", work / "harmless.txt")
    (work / "a").write_text("own")
    os.link(work / "a", work / "b")
    with open_workspace(work, (home,)) as workspace:
        with pytest.raises(ToolError, match="Treadle's own"), workspace.locate("harmless.txt"):
            pass
        assert workspace.is_hidden("harmless.txt", workspace.root)
        with workspace.locate("b") as place:
            os.close(place.open())


def test_only_the_first_megabyte_of_a_page_is_parsed_and_a_note_says_so() -> None:
    body = b"<html><p>first</p>" + b"<!-- " + b"x" * MAX_HTML_BYTES + b" --><p>last</p>"
    page = FetchedPage(url="https://x.example/", content_type="text/html", charset="utf-8", body=body, cut=False)
    text = _read_text(page)
    assert "first" in text
    assert "last" not in text
    assert "the rest was not read" in _format_page(page, text, 1000)


def test_json_lines_contain_no_terminal_control_sequences() -> None:
    value = {"text": "\x1b[31m\x07\x9b31m\x7f\u202eevil\u200b\u2066x\ufeff größe"}
    line = inert_json(msgspec.json.encode(value))
    assert not any(sign in line.decode() for sign in "\x1b\x07\x9b\x7f\u202e\u200b\u2066\ufeff")
    assert "größe" in line.decode()
    assert msgspec.json.decode(line) == value


async def test_exported_memories_are_inert(shell: Shell) -> None:
    shell.configure()
    line = {"agent": "default", "kind": "long_term", "text": "a \x9b31m \u202e word"}
    imported = await shell("memory", "import", "-", stdin=msgspec.json.encode(line))
    assert imported.code == 0, imported.err
    exported = await shell("memory", "export")
    assert "word" in exported.out
    assert not any(sign in exported.out for sign in "\x9b\u202e")


def test_a_grant_says_what_its_tools_could_still_do() -> None:
    said = " ".join(describe_grant_risks("TOKEN", ("bash",)))
    assert "send it anywhere" in said
    assert "network" in said
    assert "--tool" in " ".join(describe_grant_risks("TOKEN", ("*",)))
    assert "bash" not in " ".join(describe_grant_risks("TOKEN", ("web_fetch",)))
