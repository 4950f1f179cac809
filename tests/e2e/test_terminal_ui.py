"""The terminal UI in a real terminal, against a scripted endpoint."""

import os
import pty
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.e2e.scripted_endpoint import calls, says
from tests.e2e.terminal_stage import ASK, READY, TREADLE, MakeStage, send
from tests.e2e.tmux import needs_tmux
from tests.fake_endpoint import Behaviour, Request, Silence, refuses

pytestmark = needs_tmux


def test_an_answer_streams_as_markdown_and_stays_in_the_scrollback(stage: MakeStage) -> None:
    made = stage(says("# Title\n\nSome **bold** words", "", " and more.\n\n```python\nx = 1\n```\n"))
    with made.open() as terminal:
        send(terminal, "hello")
        screen = terminal.wait_for(lambda shown: "Some bold words" in shown and "answering" in shown)
        assert "and more" not in screen
        made.endpoint.go_on()
        screen = terminal.wait_for("x = 1")
        assert "**" not in screen
        assert "```" not in screen
        terminal.wait_for(READY)
        terminal.send("C-d")
        after = terminal.wait_for("treadle chat --session", history=True)
        assert "Some bold words and more." in after


def test_messages_steer_and_queue_and_a_queued_one_can_be_withdrawn(stage: MakeStage) -> None:
    made = stage(
        calls("bash", command="until test -e go; do sleep 0.05; done"),
        says("Turned left."),
        says("And later this."),
    )
    with made.open() as terminal:
        send(terminal, "begin")
        terminal.wait_for("running")
        send(terminal, "turn left")
        terminal.wait_for("steered")
        for text in ("afterwards", "never"):
            terminal.type(text)
            terminal.wait_for(f"│ {text}")
            terminal.send("Tab")
            terminal.wait_for(f"queued: {text}")
        terminal.send("M-Up")
        terminal.wait_for(lambda screen: "queued: never" not in screen and "│ never" in screen)
        terminal.send("C-c")
        (made.folder / "go").touch()
        terminal.wait_for("Turned left.")
        screen = terminal.wait_for("And later this.")
        assert "▌ afterwards" in screen
        assert "never" not in screen
        assert made.endpoint.last_texts()[-1].endswith("afterwards")


def test_a_run_is_interrupted_resumed_and_cancelled(stage: MakeStage) -> None:
    made = stage(Silence(), says("Resumed."), Silence())
    with made.open() as terminal:
        send(terminal, "begin")
        terminal.wait_for("thinking")
        terminal.send("Escape")
        terminal.wait_for("Interrupted.")
        terminal.send("Enter")
        terminal.wait_for("Resumed.")
        send(terminal, "again")
        terminal.wait_for("thinking")
        terminal.send("Escape")
        terminal.wait_for("● interrupted")
        terminal.send("Escape")
        terminal.wait_for("cancelled")
        terminal.wait_for(READY)


def shows_approval_of(text: str) -> Callable[[str], bool]:
    """Return whether the panel asks for a call."""
    return lambda screen: f"│ command: {text}" in screen and "1 approve" in screen


def test_calls_are_approved_edited_and_denied_with_a_note(stage: MakeStage) -> None:
    made = stage(
        calls("bash", command="echo one > first"),
        calls("bash", "c2", command="echo two > second"),
        calls("bash", "c3", command="echo three > third"),
        says("All three answered."),
        agent=ASK,
    )
    with made.open(rows=40) as terminal:
        send(terminal, "begin")
        terminal.wait_for(shows_approval_of("echo one > first"))
        terminal.send("1")
        terminal.wait_for(shows_approval_of("echo two > second"))
        assert (made.folder / "first").read_text() == "one\n"
        terminal.send("2")
        terminal.wait_for("edit the arguments")
        terminal.type(" edited")
        terminal.wait_for("│ echo two > second edited")
        terminal.send("Enter")
        terminal.wait_for(shows_approval_of("echo three > third"))
        assert (made.folder / "second").read_text() == "two edited\n"
        terminal.send("3")
        terminal.wait_for("Why not?")
        terminal.type("1 word: never")
        terminal.wait_for("│ 1 word: never")
        terminal.send("Enter")
        screen = terminal.wait_for("All three answered.")
        assert not (made.folder / "third").exists()
        assert "1 word: never" in screen
        assert any("1 word: never" in text for text in made.endpoint.last_texts())


def test_an_approval_decided_on_another_surface_closes(stage: MakeStage) -> None:
    made = stage(calls("bash", command="echo elsewhere"), says("Decided."), agent=ASK)
    with made.open(rows=40) as terminal:
        send(terminal, "begin")
        terminal.wait_for("1 approve")
        approval = made.run("approvals", "list", "--json").split('"approval_id":"')[1].split('"')[0]
        made.run("approvals", "deny", approval, "--note", "from the other terminal")
        screen = terminal.wait_for("Decided.")
        assert "1 approve" not in screen


def test_a_question_is_answered_with_its_number(stage: MakeStage) -> None:
    made = stage(calls("clarify", question="Which colour?", options=["red", "green"]), says("Green it is."))
    with made.open() as terminal:
        send(terminal, "begin")
        terminal.wait_for("1 red")
        terminal.send("2")
        terminal.wait_for("Green it is.")
        assert any("green" in text for text in made.endpoint.last_texts())


def test_a_message_from_another_surface_appears(stage: MakeStage) -> None:
    made = stage(says("First."), says("Second, for the other one."))
    with made.open() as terminal:
        send(terminal, "begin")
        terminal.wait_for("First.")
        terminal.wait_for(READY)
        made.run("run", "--session", "last", "from elsewhere")
        screen = terminal.wait_for("Second, for the other one.")
        assert "▌ from elsewhere" in screen


def test_reopening_after_kill_shows_the_run_in_its_current_state(stage: MakeStage) -> None:
    made = stage(says("Before the crash."), Silence(), says("After the crash."))
    with made.open() as terminal:
        send(terminal, "begin")
        terminal.wait_for("Before the crash.")
        send(terminal, "and then")
        terminal.wait_for("thinking")
        process = terminal.read_process_id()
        os.kill(process, signal.SIGKILL)
        wait_until(lambda: not is_alive(process))
    with made.open("chat", "--session", "last", ready="Before the crash.") as terminal:
        screen = terminal.wait_for("After the crash.")
        assert "▌ and then" in screen


def test_the_ui_survives_the_death_of_the_owner(stage: MakeStage) -> None:
    made = stage(Silence(), says("Taken over."))
    variables = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **made.environment}
    owner = subprocess.Popen([TREADLE, "run", "begin"], cwd=made.folder, env=variables, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: bool(made.endpoint.requests))
        with made.open("chat", "--session", "last", ready="thinking") as terminal:
            terminal.type("my draft")
            terminal.wait_for("my draft")
            owner.send_signal(signal.SIGKILL)
            owner.wait()
            screen = terminal.wait_for("Taken over.")
            assert "my draft" in screen
    finally:
        owner.kill()
        owner.wait()


def test_the_ui_attaches_in_place_when_a_server_takes_the_home(stage: MakeStage) -> None:
    made = stage(says("Before."), says("From the server."))
    variables = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **made.environment}
    with made.open() as terminal:
        send(terminal, "begin")
        terminal.wait_for("Before.")
        words = [TREADLE, "serve", "--port", "0"]
        server = subprocess.Popen(words, cwd=made.folder, env=variables, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            assert "serves" in server.stdout.readline()
            terminal.wait_for("Attached")
            send(terminal, "once more")
            terminal.wait_for("From the server.")
        finally:
            server.kill()
            server.communicate()


def test_a_run_continues_in_the_background_after_leaving(stage: MakeStage) -> None:
    made = stage(calls("bash", command="until test -e go; do sleep 0.05; done"), says("Finished alone."))
    with made.open() as terminal:
        send(terminal, "begin")
        terminal.wait_for("running")
        terminal.send("C-d")
        terminal.wait_for("Continue in the background")
        terminal.send("1")
        terminal.wait_for("Moving the run to the background")
        (made.folder / "go").touch()
        terminal.wait_for("continues in the background", history=True)
    wait_until(lambda: "completed" in made.run("runs", "list"))


def test_quitting_parks_the_run_and_reopening_resumes_it(stage: MakeStage) -> None:
    made = stage(Silence(), says("Resumed after parking."))
    with made.open() as terminal:
        send(terminal, "begin")
        terminal.wait_for("thinking")
        terminal.send("C-d")
        terminal.wait_for("Park it")
        terminal.send("2")
        terminal.wait_for("is parked", history=True)
    with made.open("chat", "--session", "last", ready="interrupted") as terminal:
        terminal.send("Enter")
        terminal.wait_for("Resumed after parking.")


def test_an_unreachable_provider_shows_a_banner_and_keeps_the_input(stage: MakeStage) -> None:
    made = stage(*[refuses(503, {"error": {"message": "the model is overloaded"}})] * 3, says("Back again."))
    with made.open(columns=120) as terminal:
        send(terminal, "begin")
        terminal.wait_for(lambda screen: "Retrying in" in screen and "overloaded" in screen)
        terminal.type("kept")
        terminal.wait_for("kept")
        screen = terminal.wait_for("Back again.")
        assert "kept" in screen


def test_hostile_text_is_inert(stage: MakeStage) -> None:
    codes, markup = "\x1b]0;owned\x07\x1b[2J\x1b[31mred \u202eevil", "[bold red]markup[/] [@click=app.quit]x[/]"
    hostile = f"{codes} {markup} 日本語 e\u0301 العربية"
    made = stage(says(f"{hostile}\n\nEnd of it."))
    with made.open() as terminal:
        send(terminal, "begin")
        screen = terminal.wait_for("End of it.")
        assert "␛[31mred <U+202E>evil [bold red]markup[/] [@click=app.quit]x[/] 日本語" in " ".join(screen.split())
        assert "العربية" in screen


def test_a_long_paste_and_a_long_output_survive_a_resize(stage: MakeStage) -> None:
    made = stage(says("Read it."), calls("bash", command="seq -f %.30f 1 5000"), says("Counted."))
    pasted = "\n".join(f"line {number} of the pasted text" for number in range(3500))
    assert len(pasted) > 100_000
    with made.open() as terminal:
        terminal.paste(pasted)
        terminal.wait_for("pasted text, 3500 lines")
        send(terminal, "read this")
        terminal.wait_for("Read it.")
        assert made.endpoint.last_texts()[-1].count("of the pasted text") == 3500
        send(terminal, "count")
        terminal.wait_for("Counted.")
        terminal.send("F6")
        terminal.wait_for("lines 1 to 22 of")
        terminal.send("PPage", "NPage", "NPage", "Up")
        terminal.wait_for(lambda screen: "lines 42 to 63 of" in screen and "│ 42.0000" in screen)
        terminal.send("End")
        terminal.wait_for(lambda screen: "to 5000 of 5000" in screen and "│ 5000.0000" in screen)
        terminal.send("q", "C-o")
        terminal.wait_for(lambda screen: "Counted." in screen)
        terminal.resize(50, 14)
        terminal.wait_for(
            lambda screen: "Counted." in screen and all(len(line) <= 50 for line in screen.split("\n"))
        )
        terminal.resize(160, 48)
        terminal.wait_for(lambda screen: max(map(len, screen.split("\n"))) > 100 and "Counted." in screen)
        send(terminal, "more")
        terminal.wait_for("Done.")


def test_no_color_and_a_dumb_terminal_are_respected(stage: MakeStage) -> None:
    made = stage(says("Some **bold** words."), says("Plain words."))
    with made.open(NO_COLOR="1") as terminal:
        send(terminal, "begin")
        terminal.wait_for("Some bold words.")
        coloured = [
            code for code in terminal.read_screen(escapes=True).split("\x1b[")[1:] if code.startswith(("38", "48"))
        ]
        assert coloured == []
    with made.open("chat", TERM="dumb", ready="Type a message") as terminal:
        terminal.type("hello")
        terminal.send("Enter")
        terminal.wait_for("Plain words.")


def test_the_inline_chat_approves_and_never_uses_the_alternate_screen(stage: MakeStage) -> None:
    made = stage(calls("bash", command="echo inline > made"), says("Line by **line**."), agent=ASK)
    with made.open("chat", "--inline", ready="Type a message") as terminal:
        terminal.type("begin")
        terminal.send("Enter")
        terminal.wait_for("1 approve")
        terminal.type("1")
        terminal.send("Enter")
        screen = terminal.wait_for("Line by line.", history=True)
        assert "> begin" in screen
        assert (made.folder / "made").exists()
        terminal.send("C-d")
        terminal.wait_for("Open this session again", history=True)


def test_the_first_start_leads_into_set_up(stage: MakeStage, tmp_path: Path) -> None:
    made = stage(policy=_greet)
    home = tmp_path / "home"
    (home / "agents" / "default" / "config.yaml").unlink()
    (home / "config.yaml").write_text(f"providers: {{fake: {{base_url: '{made.endpoint.url}'}}}}\n")
    with made.open(ready="Choose a model") as terminal:
        terminal.type("fake/m")
        terminal.wait_for("use this name")
        terminal.send("Enter")
        terminal.wait_for(READY)
        terminal.wait_for("default · fake/m")
        send(terminal, "hello")
        terminal.wait_for("Hello from the chosen model.")
    assert "fake/m" in (home / "config.yaml").read_text()


def test_the_first_start_takes_a_key_without_showing_it(stage: MakeStage, tmp_path: Path) -> None:
    made = stage(policy=_greet)
    home = tmp_path / "home"
    (home / "agents" / "default" / "config.yaml").unlink()
    (home / "config.yaml").unlink(missing_ok=True)
    with made.open(ready="Choose a model") as terminal:
        terminal.type("address of a server")
        terminal.wait_for("any OpenAI-compatible API")
        terminal.send("Enter")
        terminal.wait_for("Address, for example")
        terminal.send("Escape")
        terminal.wait_for("No model is set yet.")
        terminal.type("address of a server")
        terminal.send("Enter")
        terminal.wait_for("Address, for example")
        terminal.type(made.endpoint.url)
        terminal.send("Enter")
        terminal.wait_for("Key of the server")
        terminal.type("sk-some-key-123")
        terminal.wait_for("••••")
        assert "sk-some-key-123" not in terminal.read_screen()
        terminal.send("Escape")
        terminal.wait_for("No model is set yet.")
        terminal.send("Escape")
    assert not (home / "config.yaml").exists()


def test_sessions_are_searched_opened_renamed_and_forked(stage: MakeStage) -> None:
    made = stage(policy=_repeat)
    for text in ("about apples", "about pears"):
        made.run("run", text)
    with made.open(columns=100, rows=30) as terminal:
        terminal.send("F2")
        terminal.wait_for(lambda screen: "about apples" in screen and "about pears" in screen)
        terminal.type("apples")
        terminal.wait_for(lambda screen: "about pears" not in screen)
        terminal.send("C-e")
        terminal.wait_for("Enter renames")
        terminal.type(" and more")
        terminal.send("Enter")
        terminal.wait_for("about apples and more   default")
        terminal.type("apples")
        terminal.send("Enter")
        terminal.wait_for("You said about apples.")
        terminal.type("/fork")
        terminal.send("Enter")
        terminal.wait_for("Fork from which message?")
        terminal.send("Enter")
        terminal.wait_for("fork from this message")
        terminal.type(" today")
        terminal.send("Enter")
        terminal.wait_for("You said about apples today.")


def test_a_slow_connection_loses_no_key(stage: MakeStage) -> None:
    """Type in pieces with pauses inside of escape sequences, as a slow connection delivers them."""
    made = stage(says("Slow but whole."))
    with made.open() as terminal:
        for piece in ("sl", "ow mess", "age"):
            terminal.type(piece)
        terminal.send("Left", "Left", "End")
        terminal.wait_for("slow message")
        terminal.send("Enter")
        terminal.wait_for("Slow but whole.")
        assert made.endpoint.last_texts()[-1].endswith("slow message")


def is_alive(process: int) -> bool:
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(process)], check=False, capture_output=True, text=True)
    return found.stdout.strip()[:1] not in ("", "Z")


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited 60 s"
        time.sleep(0.1)


def _greet(request: Request) -> Behaviour:
    return says("Hello from the chosen model.")


def _repeat(request: Request) -> Behaviour:
    return says(f"You said {_last_user(request)}.")


def _last_user(request: Request) -> str:
    said = [message["content"] for message in request.json["messages"] if message["role"] == "user"]
    text = said[-1] if isinstance(said[-1], str) else "".join(part.get("text", "") for part in said[-1])
    return next(line for line in text.split("\n") if line.startswith("about"))


def test_the_ui_ends_when_its_terminal_closes_without_a_signal(stage: MakeStage) -> None:
    """Reading from such a terminal returns at once, for ever."""
    made = stage(says("Hello."))
    outer, inner = pty.openpty()
    process = subprocess.Popen(
        [TREADLE],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        env={**os.environ, **made.environment, "TERM": "xterm-256color"},
        cwd=made.folder,
        start_new_session=True,
    )
    os.close(inner)
    try:
        shown = b""
        while b"F1" not in shown:
            shown += os.read(outer, 65536)
        os.close(outer)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
