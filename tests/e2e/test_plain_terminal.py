"""The plain command line in a real terminal."""

import sys
from pathlib import Path

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
def test_one_line_tells_what_is_awaited_and_disappears(tmp_path: Path) -> None:
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
