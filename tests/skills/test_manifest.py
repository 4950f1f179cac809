"""SKILL.md: we and the validator of the format accept the same skills, and the shipped ones are among them."""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skills_ref import validate  # pyright: ignore[reportMissingTypeStubs] -- it ships none

from tests.patience import HANG_SECONDS
from treadle.skills.manifest import InvalidSkill, SkillManifest, parse_body, parse_manifest

SHIPPED = Path(__file__).parents[2] / "src" / "treadle" / "skills" / "shipped"
LONG = "d" * 1024
WIDE = "\uff4f\uff4e\uff45"
"""Reads as `one`, and is the same when it is normalised."""


class Case(NamedTuple):
    label: str
    text: str
    folder: str = "one"


def make_manifest(*lines: str) -> str:
    return "\n".join(["---", *lines, "---", "Body."])


GOOD = [
    Case("plain", make_manifest("name: one", "description: Does it.")),
    Case("all keys", make_manifest(
        "name: one", "description: x", "license: MIT", "compatibility: any", "metadata:", "  a: b",
        "allowed-tools: x y",
    )),
    Case("no body", "---\nname: one\ndescription: x\n---"),
    Case("letters of other languages", make_manifest("name: résumé-2", "description: x"), "résumé-2"),
    Case("digits only", make_manifest("name: 123", "description: x"), "123"),
    Case("what looks like another type is text", make_manifest("name: one", "description: true")),
    Case("longest name", make_manifest(f"name: {'a' * 64}", "description: x"), "a" * 64),
    Case("longest description", make_manifest("name: one", f"description: {LONG}")),
    Case("folded description", make_manifest("name: one", "description: >", "  one", "  two")),
    Case("longest compatibility", make_manifest("name: one", "description: x", f"compatibility: {'c' * 500}")),
    Case("quoted", make_manifest("name: 'one'", 'description: "a: b # c"')),
    Case("Windows line ends", "---\r\nname: one\r\ndescription: x\r\n---\r\nBody.\r\n"),
    Case("comment", make_manifest("# why", "name: one", "description: x # because")),
    Case("list of tools", make_manifest("name: one", "description: x", "allowed-tools:", "  - a", "  - b")),
    Case("a line in the body", make_manifest("name: one", "description: x") + "\n\n---\n\nmore"),
    Case("compatible letters", make_manifest(f"name: {WIDE}", "description: x")),
]  # fmt: skip
BAD = [
    Case("empty file", ""),
    Case("no frontmatter", "# One\n"),
    Case("not closed", "---\nname: one\ndescription: x\n"),
    Case("byte order mark", "\ufeff" + make_manifest("name: one", "description: x")),
    Case("no name", make_manifest("description: x")),
    Case("no description", make_manifest("name: one")),
    Case("empty name", make_manifest("name:", "description: x")),
    Case("empty description", make_manifest("name: one", "description: '  '")),
    Case("another name", make_manifest("name: two", "description: x")),
    Case("capitals", make_manifest("name: One", "description: x"), "One"),
    Case("hyphen first", make_manifest("name: -one", "description: x"), "-one"),
    Case("hyphen last", make_manifest("name: one-", "description: x"), "one-"),
    Case("two hyphens", make_manifest("name: o--ne", "description: x"), "o--ne"),
    Case("underscore", make_manifest("name: o_ne", "description: x"), "o_ne"),
    Case("space", make_manifest("name: o ne", "description: x"), "o ne"),
    Case("dot", make_manifest("name: o.ne", "description: x"), "o.ne"),
    Case("line break", make_manifest('name: "o\\nne"', "description: x"), "o\nne"),
    Case("change of direction", make_manifest('name: "o\\u202ene"', "description: x"), "o\u202ene"),
    Case("too long a name", make_manifest(f"name: {'a' * 65}", "description: x"), "a" * 65),
    Case("too long a description", make_manifest("name: one", f"description: {LONG}d")),
    Case("too long a compatibility", make_manifest("name: one", "description: x", f"compatibility: {'c' * 501}")),
    Case("compatibility is a list", make_manifest("name: one", "description: x", "compatibility:", "  - a")),
    Case("description is a mapping", make_manifest("name: one", "description:", "  a: b")),
    Case("unknown key", make_manifest("name: one", "description: x", "colour: red")),
    Case("key twice", make_manifest("name: one", "description: x", "description: y")),
    Case("no mapping", make_manifest("- name", "- one")),
    Case("a word", make_manifest("one")),
    Case("alias", make_manifest("name: one", "description: &a x", "license: *a")),
    Case("tag", make_manifest("name: one", "description: !!python/object:os.system x")),
    Case("flow mapping", make_manifest("name: one", "description: x", "metadata: {a: b}")),
    Case("flow list", make_manifest("name: one", "description: x", "allowed-tools: [a, b]")),
    Case("no YAML", make_manifest("name: one", "description: 'x")),
    Case("tab", make_manifest("name: one", "description: x", "metadata:", "\ta: b")),
]
STRICTER = [
    Case("an end of YAML", make_manifest("name: one", "description: x", "...")),
    Case("a line break of old", make_manifest("name: one", "description: a\u0085b")),
    Case("a control character", make_manifest("name: one", "description: a\x07b")),
    Case("a fence in a value", make_manifest("description: a --- b", "name: one")),
    Case("a folder in other letters", make_manifest(f"name: {WIDE}", "description: x"), WIDE),
    Case("a letter that is not seen", make_manifest("name: one\u115f", "description: x"), "one\u115f"),
    Case("a tool that is not seen", make_manifest("name: one", "description: x", "allowed-tools: bash\u3164")),
    Case("huge frontmatter", make_manifest("name: one", "description: x", f"license: {'x' * 20_000}")),
    Case("huge body", make_manifest("name: one", "description: x") + "x" * 300_000),
    Case("tools in a mapping", make_manifest("name: one", "description: x", "allowed-tools:", "  a: b")),
]


def label(case: Case) -> str:
    return case.label.replace(" ", "_")


def is_accepted_by_validator(tmp_path: Path, case: Case) -> bool:
    folder = tmp_path / case.folder
    folder.mkdir()
    (folder / "SKILL.md").write_bytes(case.text.encode())
    return validate(folder) == []


def is_accepted_here(case: Case) -> bool:
    try:
        parse_manifest(case.text.encode(), case.folder)
    except InvalidSkill:
        return False
    return True


@pytest.mark.parametrize("case", GOOD, ids=label)
def test_manifests_that_the_validator_accepts_are_accepted(case: Case, tmp_path: Path) -> None:
    assert is_accepted_by_validator(tmp_path, case)
    assert is_accepted_here(case)


@pytest.mark.parametrize("case", BAD, ids=label)
def test_manifests_that_the_validator_refuses_are_refused(case: Case, tmp_path: Path) -> None:
    with pytest.raises(InvalidSkill) as refused:
        parse_manifest(case.text.encode(), case.folder)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300
    assert not is_accepted_by_validator(tmp_path, case)


@pytest.mark.parametrize("case", STRICTER, ids=label)
def test_manifests_are_refused_where_we_are_stricter(case: Case) -> None:
    assert not is_accepted_here(case)


@pytest.mark.parametrize("folder", sorted(SHIPPED.iterdir()), ids=lambda folder: folder.name)
def test_shipped_skills_are_valid(folder: Path) -> None:
    command = [Path(sys.executable).with_name("agentskills"), "validate", folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS)
    assert done.returncode == 0, done.stderr
    content = (folder / "SKILL.md").read_bytes()
    assert parse_manifest(content, folder.name).name == folder.name
    assert parse_body(content).startswith("# ")


@pytest.mark.parametrize(
    ("written", "tools"),
    [
        ("", ()),
        ("read_file grep", ("read_file", "grep")),
        ("Read, Grep", ("Read", "Grep")),
        ("Bash(git add:*) Read", ("Bash(git add:*)", "Read")),
        ("a a", ("a",)),
    ],
)
def test_allowed_tools_are_parsed(written: str, tools: tuple[str, ...]) -> None:
    text = make_manifest("name: one", "description: x", f"allowed-tools: {written}")
    assert parse_manifest(text.encode(), "one").tools == tools


def test_a_description_is_one_line_and_inert() -> None:
    text = make_manifest("name: one", r'description: "a\n\n## System\e[31m\u202e\u2028 b"')
    assert parse_manifest(text.encode(), "one") == SkillManifest("one", "a ## System<U+001B>[31m<U+202E> b")


def test_yaml_anchors_and_deep_nesting_are_refused() -> None:
    bomb = [
        "name: one",
        "description: x",
        "metadata:",
        "  a: &a [x, x, x]",
        *(f"  b{n}: [*a, *a]" for n in range(9)),
    ]
    with pytest.raises(InvalidSkill, match="line 5: anchors"):
        parse_manifest(make_manifest(*bomb).encode(), "one")
    deep = ["name: one", "description: x", "metadata:", *(f"{' ' * n}a:" for n in range(1, 100))]
    with pytest.raises(InvalidSkill, match="nested too deeply"):
        parse_manifest(make_manifest(*deep).encode(), "one")


@settings(deadline=None)
@given(st.binary(max_size=400) | st.text(max_size=300).map(lambda text: f"---\n{text}\n---\n".encode()))
def test_any_bytes_give_a_manifest_or_an_error(content: bytes) -> None:
    try:
        said = parse_manifest(content, "one")
    except InvalidSkill:
        return
    assert said.name == "one"
    assert "\n" not in said.description


LINES = st.sampled_from((
    "name: one", "description: x", "description: a: b", "name: 'one' # c", "license: MIT", "metadata:", "  a: b",
    "  - c", "- x", "  c:", "    d: e", "# c", "", "description: |", "  text", "? x", ": y", "description: 'x",
    "  'y", "<<: x", "license: ~", "license: !x y", "license: *a", "license: &a", "description: @x", "license: {",
    "}", "license: []", "\t", "license:x", "description: - a", 'license: "\\x07"',
    "description: é", "description: >-", "compatibility: 1", "colour: red",
))  # fmt: skip


@settings(deadline=None, derandomize=True)
@given(st.lists(LINES, max_size=6), st.booleans())
def test_generated_manifests_are_judged_as_by_the_validator(lines: list[str], is_begun: bool) -> None:
    case = Case("", make_manifest(*(("name: one", "description: >") if is_begun else ()), *lines))
    with TemporaryDirectory() as folder:
        assert is_accepted_here(case) == is_accepted_by_validator(Path(folder), case)
