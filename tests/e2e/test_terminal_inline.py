"""The chat line by line in a real terminal: set-up, long input, edited arguments and leaving."""

from pathlib import Path

from tests.e2e.scripted_endpoint import calls, says
from tests.e2e.terminal_stage import ASK, MakeStage
from tests.e2e.tmux import Terminal, needs_tmux
from tests.fake_endpoint import Silence
from tests.patience import until

pytestmark = needs_tmux
HINT = "Type a message"


def enter(terminal: Terminal, text: str) -> None:
    terminal.type(text)
    terminal.send("Enter")


def test_the_first_start_on_a_dumb_terminal_leads_into_set_up(stage: MakeStage, tmp_path: Path) -> None:
    made = stage()
    (tmp_path / "home" / "agents" / "default" / "config.yaml").unlink()
    config = tmp_path / "home" / "config.yaml"
    config.write_text(f"providers: {{fake: {{base_url: '{made.endpoint.url}'}}}}\n")
    with made.open(TERM="dumb", ready="or provider/model-id:") as terminal:
        enter(terminal, "nonsense")
        terminal.wait_for("Write a number of the list")
        enter(terminal, "fake/m")
        terminal.wait_for(HINT)
        assert "fake/m" in config.read_text()
        enter(terminal, "hello")
        terminal.wait_for("Done.")


def test_a_line_that_the_terminal_cuts_is_not_sent(stage: MakeStage) -> None:
    made = stage(says("Read."))
    with made.open("chat", "--inline", ready=HINT) as terminal:
        terminal.paste("x" * 6000 + "\n")
        terminal.wait_for("has cut the line", history=True)
        terminal.paste("".join(f"{'y' * 3000}\\\n" for _ in range(3)) + "end\n")
        terminal.wait_for("Read.", history=True)
    (request,) = made.endpoint.requests
    assert "\n".join(["y" * 3000] * 3) in made.endpoint.last_texts()[-1]
    assert "x" * 100 not in str(request.json)


def test_arguments_are_edited_on_several_lines_and_never_sent_as_messages(stage: MakeStage) -> None:
    made = stage(calls("write_file", path="x.txt", content="a"), says("Done."), agent=ASK)
    with made.open("chat", "--inline", ready=HINT) as terminal:
        enter(terminal, "go")
        terminal.wait_for("1 approve")
        enter(terminal, "2")
        terminal.wait_for("arguments as JSON")
        terminal.paste('{\n  "path": oops,\n  "content": "wrong"\n}\n')
        terminal.wait_for("not valid JSON")
        enter(terminal, "")
        terminal.wait_for(lambda screen: screen.count("1 approve") == 2)
        enter(terminal, "2")
        terminal.paste('{\n  "path": "x.txt",\n  "content": "changed"\n}\n')
        terminal.wait_for("Done.")
    assert (made.folder / "x.txt").read_text() == "changed"
    assert "oops" not in str([request.json for request in made.endpoint.requests])


async def test_leaving_during_a_run_asks_whether_it_continues(stage: MakeStage) -> None:
    made = stage(Silence(), calls("write_file", path="x.txt", content="a"), says("Done."), agent=ASK)
    with made.open("chat", "--inline", ready=HINT) as terminal:
        enter(terminal, "go")
        await until(lambda: bool(made.endpoint.requests))
        terminal.send("C-d")
        terminal.wait_for("A run is in progress")
        enter(terminal, "")
        enter(terminal, "/quit")
        terminal.wait_for(lambda screen: screen.count("Park it") == 2)
        enter(terminal, "2")
        terminal.wait_for("is parked", history=True)
    with made.open("chat", "--inline", "--session", "last", ready=HINT) as terminal:
        terminal.wait_for("Interrupted")
        enter(terminal, "")
        terminal.wait_for("1 approve")
        terminal.send("C-d")
        terminal.wait_for("A run waits for you")
        enter(terminal, "3")
        terminal.wait_for("Open this session again", history=True)
    assert "cancelled" in made.run("runs", "list")


def test_recalled_notes_are_announced_with_the_command_that_shows_them(stage: MakeStage) -> None:
    made = stage(says("Noted."), says("At ten."))
    made.run("run", "the train leaves at ten")
    with made.open("chat", "--inline", ready=HINT) as terminal:
        enter(terminal, "when does the train leave?")
        terminal.wait_for("At ten.")
        terminal.wait_for("recalled 1 note")
        terminal.wait_for("to read them: treadle runs prompt run_")
