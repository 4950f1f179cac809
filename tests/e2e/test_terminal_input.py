"""What people do with the keyboard, the mouse, the clipboard and their editor, in a real terminal."""

import re
import time
from pathlib import Path

from rich.cells import cell_len

from tests.e2e.scripted_endpoint import calls, says
from tests.e2e.terminal_stage import READY, MakeStage, send
from tests.e2e.tmux import PATIENCE_SECONDS, Terminal, needs_tmux
from tests.fake_endpoint import Behaviour, Request

pytestmark = needs_tmux


def repeat(request: Request) -> Behaviour:
    content = next(m["content"] for m in reversed(request.json["messages"]) if m["role"] == "user")
    said = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    typed = re.sub(r"^\[[^\n\]]*\]\n?", "", said)  # without the time, which the engine puts before it
    return says(f"You said {typed}.")


def write_editor(folder: Path, script: str) -> str:
    path = folder / "editor"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_pickers_take_the_keys_that_are_typed_at_once(stage: MakeStage) -> None:
    made = stage(policy=repeat)
    for text in ("about apples", "about pears"):
        made.run("run", text)
    (made.folder.parent / "home" / "agents" / "writer").mkdir(parents=True)
    (made.folder.parent / "home" / "agents" / "writer" / "config.yaml").write_text("name: writer\nmodel: fake/m\n")
    with made.open(columns=100) as terminal:
        terminal.send("F2", *"apples", "Enter")
        terminal.wait_for("You said about apples.")
        terminal.send("F3", *"fake/other", "Enter", *"hello", "Enter")
        terminal.wait_for("You said hello.")
        assert made.endpoint.requests[-1].json["model"] == "other"
        terminal.send("F4", *"writer", "Enter", *"again", "Enter")
        terminal.wait_for("You said again.")
        assert "writer" in terminal.read_screen().splitlines()[-1]


def test_file_names_are_completed_unless_they_are_ignored(stage: MakeStage) -> None:
    made = stage(policy=repeat)
    (made.folder / ".gitignore").write_text("*.log\n!kept.log\n")
    (made.folder / "src").mkdir()
    (made.folder / "src" / ".ignore").write_text("generated_*\n")
    for name in ("src/parser.py", "src/generated_parser.py", "src/parser.log", "src/kept.log"):
        (made.folder / name).write_text("x = 1")
    with made.open() as terminal:
        terminal.type("read @pars")
        screen = terminal.wait_for("src/parser.py")
        assert "generated_parser" not in screen
        assert "parser.log" not in screen
        terminal.send("Tab")
        terminal.wait_for("read @src/parser.py")
        terminal.type("and @kep")
        terminal.wait_for("src/kept.log")
        terminal.send("Enter", "Enter")
        terminal.wait_for("You said read @src/parser.py and @src/kept.log")


def test_the_mouse_opens_a_call_and_scrolls(stage: MakeStage) -> None:
    made = stage(calls("bash", command="seq 101 140"), says("Counted."))
    with made.open() as terminal:
        send(terminal, "count")
        screen = terminal.wait_for("Counted.")
        terminal.wait_for(READY)
        row = next(index for index, line in enumerate(screen.splitlines()) if "seq 101 140" in line)
        terminal.point(6, row)
        terminal.wait_for("103")
        terminal.point(6, 4, 65)  # the wheel, down
        terminal.point(6, 4, 64)
        terminal.wait_for("101")


def test_the_editor_has_the_terminal_while_the_run_continues(stage: MakeStage, tmp_path: Path) -> None:
    made = stage(says("First part", "", " and second part."), policy=repeat)
    go = tmp_path / "go"
    editor = write_editor(
        tmp_path,
        f'test -t 0 && test -t 1 && echo "the editor is open"\nuntil test -e {go}; do sleep 0.05; done\n'
        'printf "%s, edited\\nsecond line\\n" "$(cat "$1")" > "$1"',
    )
    with made.open(VISUAL=editor) as terminal:
        send(terminal, "begin")
        terminal.wait_for("First part")
        terminal.type("a draft")
        terminal.wait_for("a draft")
        terminal.send("C-g")
        screen = terminal.wait_for("the editor is open")
        assert "First part" not in screen
        made.endpoint.go_on()
        terminal.send("C-c")  # for the editor; it ends a shell script, and not the UI
        terminal.wait_for("and second part.")
        terminal.wait_for("a draft")
        go.touch()
        terminal.send("C-g")
        terminal.wait_for("second line")
        screen = terminal.wait_for("a draft, edited")
        assert "the editor is open" not in screen
        terminal.send("Enter")
        terminal.wait_for("You said a draft, edited")
        assert made.endpoint.last_texts()[-1].endswith("a draft, edited\nsecond line")


def test_a_failing_editor_loses_nothing(stage: MakeStage, tmp_path: Path) -> None:
    made = stage(policy=repeat)
    scripts = {"exit 3": "ended with 3", 'rm "$1"': "cannot be read"}
    for script, problem in scripts.items():
        with made.open(VISUAL=write_editor(tmp_path, script), columns=160) as terminal:
            terminal.type("precious words")
            terminal.wait_for("precious words")
            terminal.send("C-g")
            terminal.wait_for(problem)
            terminal.type(" and more")
            terminal.send("Enter")
            terminal.wait_for("You said precious words and more.")
    with made.open(VISUAL="/no/such/editor", columns=160) as terminal:
        terminal.type("precious words")
        terminal.wait_for("precious words")
        terminal.send("C-g")
        terminal.wait_for("cannot be started")
        assert "│ precious words" in terminal.read_screen()


def test_an_answer_and_its_code_are_copied_to_the_clipboard(stage: MakeStage) -> None:
    answer = "Some **bold** words.\n\n```python\nx = 'é日'\n```\n"
    made = stage(says(answer))
    with made.open() as terminal:
        send(terminal, "begin")
        terminal.wait_for("bold words.")
        terminal.wait_for(READY)
        terminal.send("C-y")
        terminal.wait_for("Copied: the last answer")
        assert read_clipboard(terminal).strip() == answer.strip()
        terminal.send(*"/copy", "Space", *"code", "Enter")
        terminal.wait_for("Copied: the last code block")
        assert read_clipboard(terminal, "x = ").strip() == "x = 'é日'"


def read_clipboard(terminal: Terminal, beginning: str = "Some") -> str:
    """Return the clipboard, once it begins with a text."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := terminal.read_clipboard()).startswith(beginning):
        assert time.monotonic() < deadline, found
    return found


def test_keys_that_come_late_and_in_bursts_keep_their_order(stage: MakeStage) -> None:
    """A slow connection delivers one key at a time, then many at once, also while an answer streams."""
    made = stage(says("A long answer", "", " has ended."), policy=repeat)
    with made.open() as terminal:
        send(terminal, "begin")
        terminal.wait_for("A long answer")
        for end in range(1, len("slow") + 1):
            terminal.type("slow"[end - 1])
            terminal.wait_for(f"│ {'slow'[:end]}")
        terminal.send("Space", *"tpying", *["Left"] * 4, "BSpace", "Right", "p")
        terminal.send("Home", *"very", "Space", "End", "!")
        terminal.wait_for("very slow typing!")
        terminal.send("Tab")  # after the run
        terminal.wait_for("queued: very slow typing!")
        made.endpoint.go_on()
        terminal.wait_for("has ended.")
        terminal.wait_for("You said very slow typing!")
        terminal.send(*"one", "Enter", *"two", "C-j", *"three", "Up", "Home", *"x")
        terminal.wait_for("You said one.")
        terminal.wait_for(lambda screen: "│ xtwo" in screen and "│ three" in screen)


def test_wide_combining_and_right_to_left_text_stays_whole(stage: MakeStage) -> None:
    """It arrives as it was typed, it can be edited, and lines with it are as wide as others."""
    made = stage(policy=repeat)
    text = "日本語 cafe\u0301 العربية עברית 한국어 ok"
    with made.open() as terminal:
        terminal.type(f"{text}x")
        terminal.wait_for("okx")
        terminal.send("BSpace")
        screen = terminal.wait_for(lambda screen: "ok " in screen and "okx" not in screen)
        lines = [line for line in screen.splitlines() if line.startswith(("│", "╭", "╰"))]
        assert len({cell_len(line.rstrip()) for line in lines}) == 1, screen
        terminal.send("Home", *["Right"] * 3, *"!", "Enter")
        terminal.wait_for("You said 日本語!")
        assert made.endpoint.last_texts()[-1].endswith(text.replace("日本語", "日本語!"))
        answer = next(line for line in terminal.read_screen().splitlines() if "You said" in line)
        for part in ("日本語!", "cafe\u0301", "العربية", "עברית", "한국어 ok."):
            assert part in answer


def test_alt_enter_begins_a_line_also_while_an_answer_streams(stage: MakeStage) -> None:
    """Terminals send Escape and Enter for it."""
    made = stage(says("One word,", "", " and another."), says("Both lines."))
    with made.open() as terminal:
        terminal.type("first")
        terminal.type("\x1b\r")
        terminal.type("second")
        terminal.wait_for("second")
        assert not made.endpoint.requests
        terminal.send("Enter")
        terminal.wait_for("One word,")
        terminal.type("third")
        terminal.type("\x1b\r")
        terminal.type("fourth")
        terminal.wait_for("fourth")
        assert "steered" not in terminal.read_screen()
        terminal.send("Enter")
        terminal.wait_for("steered")
        made.endpoint.go_on()
        terminal.wait_for("Both lines.")
        said = [str(request.json["messages"]) for request in made.endpoint.requests]
        assert "first\\nsecond" in said[0]
        assert "third\\nfourth" in said[-1]


def test_the_command_line_begins_a_conversation(stage: MakeStage) -> None:
    """With a message of several words, with the latest session, with a model, and with a choice of sessions."""
    made = stage(policy=repeat)
    with made.open("talk about apples", ready="You said talk about apples.") as terminal:
        terminal.send("C-d")
        terminal.wait_for("Open this session again:", history=True)
    with made.open("-c", "and pears", ready="You said and pears.") as terminal:
        assert "apples" in terminal.read_screen()
    with made.open("chat", "-m", "fake/other", "plums", ready="You said plums.") as terminal:
        assert made.endpoint.requests[-1].json["model"] == "other"
    with made.open("-r", ready="talk about apples") as terminal:
        terminal.send(*"apples", "Enter")
        terminal.wait_for("You said and pears.")
    assert "You said grapes." in made.run("-p", "grapes")
