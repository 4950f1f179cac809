"""The plain command line in a real terminal."""

import sys
from pathlib import Path

from tests.audit.plugin import AUDIT
from tests.e2e.scripted_endpoint import says, serve, write_home
from tests.e2e.tmux import needs_tmux, open_terminal

TREADLE = str(Path(sys.executable).parent / "treadle")


@needs_tmux
def test_an_empty_home_says_that_it_has_no_runs(tmp_path: Path) -> None:
    environment = {"TREADLE_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    with open_terminal([TREADLE, "runs", "list"], tmp_path, environment) as terminal:
        screen = terminal.wait_for("No runs yet")
        assert all(len(line) <= 80 for line in screen.splitlines())


@needs_tmux
def test_a_terminal_is_audited_for_executions(tmp_path: Path) -> None:
    show = "import os; from tests.audit.hook import VARIABLE; print('audit:', os.environ[VARIABLE][-20:])"
    with open_terminal([sys.executable, "-c", show], Path.cwd(), {"HOME": str(tmp_path)}) as terminal:
        terminal.wait_for(f"audit: {str(AUDIT.log)[-20:]}")


@needs_tmux
def test_a_progress_line_is_shown_while_waiting_and_then_removed(tmp_path: Path) -> None:
    with serve(says("First **words** here.\n\nThen ", "", "the rest.")) as endpoint:
        environment = write_home(tmp_path / "home", endpoint.url)
        with open_terminal([TREADLE, "run", "Hello."], tmp_path, environment) as terminal:
            waiting = terminal.wait_for(lambda screen: "fake/m · " in screen and "tokens · Ctrl-C" in screen)
            lines = [line for line in waiting.splitlines() if line.strip()]
            assert lines[-1].startswith("fake/m · "), "it is below what was printed"
            assert any(line.strip() == "First words here." for line in lines)
            endpoint.go_on()
            screen = terminal.wait_for("the rest.")
            assert "Ctrl-C interrupts" not in screen
            assert "Then the rest." in screen


WITHOUT_EXTRA = """\
import importlib.util, sys
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "textual" else find_spec(name, package)
sys.modules["textual"] = None
from treadle.surfaces.cli import main
sys.exit(main())
"""


@needs_tmux
def test_a_missing_extra_prints_help_and_how_to_install_it(tmp_path: Path) -> None:
    environment = {"TREADLE_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    python = [sys.executable, "-c", WITHOUT_EXTRA]
    with open_terminal(python, tmp_path, environment, columns=160, rows=80) as terminal:
        screen = terminal.wait_for("pip install 'treadle[tui]'")
        assert "usage: treadle" in screen.lower()
    with open_terminal([*python, "chat"], tmp_path, environment, columns=160) as terminal:
        screen = terminal.wait_for("pip install 'treadle[tui]'")
        assert "Traceback" not in screen
