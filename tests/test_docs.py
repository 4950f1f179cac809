"""The documentation is complete and current: generated pages, links, indexes, commands, settings and words."""

import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from tests.documentation import DOCS, PAGES, ROOT, WRITTEN, blocks, commands, name_of
from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.surfaces.cli.app import name_command
from treadle.surfaces.cli.command_table import find_command

README_LINES = 200
VARIABLE = re.compile(r'"(TREADLE_[A-Z_]+|OTEL_[A-Z_]+)"')
AVOIDED = re.compile(
    r"\b(whoever|nobody|somebody|what came of|is to be had|let go of|takes? up|taken up|so long as|"
    r"without a double|for good|goes on|go on with|keeping house)\b",
    re.IGNORECASE,
)
"""The worst of the words to avoid."""


@pytest.fixture
def generated(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The generated pages, by their names."""
    monkeypatch.setattr(sys, "path", [str(DOCS), *sys.path])
    return runpy.run_path(str(DOCS / "generate.py"))["pages"]()


def test_generated_pages_are_current(generated: dict[str, str]) -> None:
    for name, text in generated.items():
        assert (DOCS / "reference" / name).read_text() == text, f"{name}: run `python docs/generate.py`"


def test_readme_fits_its_limit() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        if anchor:
            assert anchor in anchors(linked), target


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", WRITTEN, ids=name_of)
def test_named_source_files_exist(page: Path) -> None:
    """Every path such as `core/decide.py` or `tests/crash` in code quotes is a file or folder of the repository."""
    named = re.findall(r"`((?:[a-z_0-9]+/)+[a-z_0-9]*(?:\.(?:py|sql|md|yaml))?)`", page.read_text())
    tops = {path.name for path in (ROOT / "src" / "treadle").iterdir()} | {"src", "tests", "bench", "docs"}
    ours = [path for path in named if path.split("/")[0] in tops]
    roots = (ROOT, ROOT / "src" / "treadle")
    assert [path for path in ours if not any((root / path).exists() for root in roots)] == []


def test_index_lists_every_page() -> None:
    index = (DOCS / "README.md").read_text()
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} - {"README.md"}
    records = {page for page in pages if page.startswith("design/0")}
    assert {page for page in pages - records if f"]({page})" not in index} == set()


def test_design_index_lists_every_record() -> None:
    index = (DOCS / "design" / "README.md").read_text()
    records = sorted(path.name for path in (DOCS / "design").glob("0*.md"))
    assert [name for name in records if f"]({name})" not in index] == []
    assert [name[:4] for name in records] == [f"{number:04}" for number in range(1, len(records) + 1)]


def test_every_setting_is_described(generated: dict[str, str]) -> None:
    undescribed = re.findall(r"^\| `(\S+)` \|.*\|  \|$", generated["settings.md"], re.MULTILINE)
    assert undescribed == []


def test_every_environment_variable_is_described() -> None:
    page = (DOCS / "configuration.md").read_text()
    used = {name for path in (ROOT / "src").rglob("*.py") for name in VARIABLE.findall(path.read_text())}
    assert {name for name in used if f"`{name}`" not in page} == set()


def test_every_metric_is_described(generated: dict[str, str]) -> None:
    source = (ROOT / "src" / "treadle" / "telemetry" / "metric_families.py").read_text()
    page = generated["metrics.md"]
    assert {name for name in re.findall(r'"(treadle_\w+)"', source) if f"| `{name}` |" not in page} == set()


def test_the_layout_for_contributors_lists_every_package_and_surface() -> None:
    [layout] = re.findall(r"^```\n(src/treadle/\n.*?)^```", (ROOT / "CONTRIBUTING.md").read_text(), re.M | re.S)
    packages = [path.parent for path in (ROOT / "src" / "treadle").glob("*/__init__.py")]
    surfaces = [path.parent for path in (ROOT / "src" / "treadle" / "surfaces").glob("*/__init__.py")]
    assert [each.name for each in (*packages, *surfaces) if f"{each.name}/" not in layout] == []


@pytest.mark.parametrize("page", WRITTEN, ids=name_of)
def test_commands_and_options_exist(page: Path) -> None:
    for block in (*blocks(page, "console"), *blocks(page, "bash")):
        shown = commands(block.text) if block.language == "console" else block.text.splitlines()
        for line in shown:
            if found := re.match(r"(?:\w+=\S+ )*(?:\.venv/bin/)?treadle (.*)", line):
                check_command(shlex.split(found[1], comments=True))


def check_command(words: list[str]) -> None:
    if words[:1] == ["--version"]:
        return
    words = list(name_command(words)) if words else ["chat"]
    command = find_command(words)
    assert command is not None, words
    known = {flag for option in command.options for flag in option.flags} | {"--help"}
    assert {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)} <= known, words


@pytest.mark.parametrize("page", [DOCS / "editors.md", *sorted((DOCS / "channels").glob("*.md"))], ids=name_of)
def test_a_page_that_starts_from_nothing_installs_the_terminal_ui_that_chooses_the_model(page: Path) -> None:
    [extras] = re.findall(r"pip install 'treadle\[([\w,]+)\]'", page.read_text())
    assert "treadle chat" in page.read_text()
    assert "tui" in extras.split(",")


@pytest.mark.parametrize("page", WRITTEN, ids=name_of)
def test_configuration_examples_are_valid(page: Path, tmp_path: Path) -> None:
    for block in blocks(page, "yaml"):
        if found := re.match(r"# ((?:agents/\w+/)?config\.yaml)\n", block.text):
            path = tmp_path / found[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
            home = Home(tmp_path)
            home.config()
            for name in home.agents():
                home.agent(name)


def test_agent_example_shows_every_setting_with_its_default(tmp_path: Path) -> None:
    [block] = [each for each in blocks(DOCS / "agents.md", "yaml") if "# every setting" in each.text]
    folder = tmp_path / "agents" / "researcher"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(block.text)
    assert Home(tmp_path).agent("researcher") == AgentSpec("researcher", "office/large")
    assert all(re.search(rf"^{field}:", block.text, re.MULTILINE) for field in AgentSpec.__struct_fields__)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_pages_do_not_use_avoided_words(page: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.DOTALL)
    assert [found[0] for found in AVOIDED.finditer(prose)] == []
