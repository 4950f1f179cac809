"""What a user does in the first hour, as one script: `python -m tests.e2e.first_hour [TIMES]`.

The terminal UI runs in tmux against a scripted endpoint, which does what each message says. Every action waits for
what it should show. The command prints each action, and how many there were."""

import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.e2e.scripted_endpoint import calls, says, serve, write_home
from tests.e2e.terminal_stage import Stage, send
from tests.e2e.tmux import Terminal
from tests.fake_endpoint import Behaviour, Request, Silence

AGENT = """\
name: default
model: fake/m
tools: [bash, read_file, grep, glob, write_file, edit_file, update_plan, clarify]
approvals: {default: ask, rules: [{tool: read_file, do: auto}, {tool: grep, do: auto}, {tool: glob, do: auto},
  {tool: update_plan, do: auto}, {tool: clarify, do: auto}]}
"""
MIN_ACTIONS = 40


def answer(request: Request) -> Behaviour:
    """Return what the last message of the user asks the model for."""
    messages = request.json["messages"]
    last, lines = messages[-1], list[str]()
    for message in messages:
        content = message["content"] if message["role"] == "user" else ""
        text = content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
        lines += [each for each in text.splitlines() if each and not each.startswith("(")]
    line = lines[-1]
    if last["role"] == "tool":
        return says(f"Done: {line[:40]}.")
    word, _, rest = line.partition(" ")
    number = len(messages)
    match word:
        case "run":
            return calls("bash", f"b{number}", command=rest)
        case "write":
            return calls("write_file", f"w{number}", path=rest, content=f"{rest}\nsecond\n")
        case "search":
            return calls("grep", f"g{number}", pattern=rest)
        case "ask":
            return calls("clarify", f"q{number}", question=rest, options=["red", "blue"])
        case "plan":
            steps = [{"content": "look around", "status": "completed"}, {"content": rest, "status": "in_progress"}]
            return calls("update_plan", f"p{number}", entries=steps)
        case "think":
            return Silence()
        case _:
            return says(f"You said **{line}**.")


class FirstHour:
    """A terminal with the UI, and the actions so far."""

    def __init__(self, stage: Stage, terminal: Terminal) -> None:
        self.stage, self.terminal = stage, terminal
        self.count = 0
        self._since = time.monotonic()

    def did(self, action: str) -> None:
        self.count += 1
        now = time.monotonic()
        print(f"  {self.count:2}  {now - self._since:5.1f} s  {action}", flush=True)
        self._since = now

    def sees(self, text: str) -> str:
        return self.terminal.wait_for(lambda screen: text in " ".join(screen.split()))

    def misses(self, text: str) -> str:
        return self.terminal.wait_for(lambda screen: text not in " ".join(screen.split()))

    def says(self, text: str) -> None:
        send(self.terminal, text)

    def types(self, text: str) -> None:
        self.terminal.type(text)
        self.sees(f"│ {text[-60:]}")

    def presses(self, *keys: str) -> None:
        self.terminal.send(*keys)

    def ready(self) -> None:
        self.sees("○ ready")


def talk(user: FirstHour) -> None:
    user.sees("ready ask")
    user.did("open the UI: it is ready, and the mode is shown")
    user.says("hello")
    user.sees("You said hello.")
    user.ready()
    user.did("send a message and read the answer as Markdown")
    user.presses("F1")
    user.sees("Keys and commands")
    user.did("open the help")
    user.presses("Escape")
    user.misses("Keys and commands")
    user.did("close the help")
    user.terminal.type("first line")
    user.presses("M-Enter")
    user.terminal.type("second line")
    user.sees("second line")
    user.presses("Enter")
    user.sees("You said second line.")
    user.ready()
    user.did("write a message of two lines with Alt-Enter")
    user.presses("Up")
    user.sees("│ second line")
    user.presses("C-c")
    user.did("take the last message from the history, and clear it")
    user.presses("C-r")
    user.sees("history")
    user.terminal.type("hel")
    user.sees("history")
    user.presses("Escape")
    user.misses("history")
    user.did("search the history")
    user.terminal.type("look at @not")
    user.sees("notes.md")
    user.presses("Tab")
    user.sees("@notes.md")
    user.presses("C-c")
    user.did("complete the name of a file")
    user.terminal.paste("a long line that is pasted\n" * 300)
    user.sees("pasted text")
    user.presses("BSpace")
    user.misses("pasted text,")
    user.did("paste a long text, and remove it")


def approve(user: FirstHour) -> None:
    user.says("run touch one")
    user.sees("1 approve")
    user.presses("1")
    user.sees("Done: run touch one.")
    user.ready()
    user.did("approve a command")
    user.says("run touch two")
    user.sees("1 approve")
    user.presses("3")
    user.sees("Why not?")
    user.types("not now")
    user.presses("Enter")
    user.sees("Done: run touch two.")
    assert not (user.stage.folder / "two").exists()
    user.ready()
    user.did("deny a command with a note")
    user.says("run echo three")
    user.sees("1 approve")
    user.presses("2")
    user.sees("edit the arguments")
    user.presses("Escape")
    user.sees("1 approve")
    user.presses("Escape")
    user.sees("Left for later")
    user.presses("F5")
    user.sees("1 approve")
    user.did("leave an approval for later, and come back with F5")
    user.presses("4")
    user.sees("Done: run echo three.")
    user.ready()
    user.did("allow a command for the session")
    user.says("run echo three")
    user.terminal.wait_for(lambda screen: screen.count("Done: run echo three.") > 1)
    user.ready()
    user.did("run it again without a question")
    user.says("ask Which colour?")
    user.sees("1 red")
    user.presses("2")
    user.sees("→ blue")
    user.ready()
    user.did("answer a question")
    user.says("search needle")
    user.sees("2 matching lines in 1 file")
    user.ready()
    user.did("see how much a search has found")
    user.says("run seq 30; false")
    user.sees("1 approve")
    user.presses("1")
    user.sees("exit code 1")
    user.ready()
    user.did("see the exit code and the end of a failed command")


def change_modes(user: FirstHour) -> None:
    user.presses("BTab")
    user.sees("ready accept edits")
    user.did("choose the mode accept edits with Shift-Tab")
    user.says("write free.txt")
    user.sees("Done: write free.txt.")
    assert (user.stage.folder / "free.txt").exists()
    user.ready()
    user.did("let it write a file without a question")
    user.says("write .envrc")
    user.sees("1 approve")
    user.presses("3")
    user.sees("Why not?")
    user.presses("Enter")
    user.sees("Done: write .envrc.")
    user.ready()
    user.did("be asked about a protected file nevertheless")
    user.presses("BTab")
    user.sees("ready plan")
    user.says("write planned.txt")
    user.sees("Done: write planned.txt.")
    assert not (user.stage.folder / "planned.txt").exists()
    user.ready()
    user.did("have it refused in plan mode")
    user.says("run ls")
    user.terminal.wait_for(lambda screen: "Done: run ls." in screen)
    user.ready()
    user.did("let it look around in plan mode without a question")
    user.says("/mode ask")
    user.sees("ready ask")
    user.did("choose a mode by its name")
    user.says("write asked.txt")
    user.sees("4 all edits")
    user.presses("4")
    user.sees("Done: write asked.txt.")
    user.sees("ready accept edits")
    user.did("allow all edits in this workspace with key 4")
    user.says("/mode ask")
    user.sees("ready ask")


def steer(user: FirstHour) -> None:
    folder = user.stage.folder
    user.says("plan wait for it")
    user.sees("▸ wait for it")
    user.sees("Done: plan wait for it.")
    user.ready()
    user.did("see a plan as a checklist")
    user.says("run until test -e go; do sleep 0.1; done")
    user.sees("1 approve")
    user.presses("1")
    user.sees("running")
    user.says("be quick")
    user.sees("steered")
    user.did("steer a run")
    user.types("afterwards")
    user.presses("Tab")
    user.sees("queued: afterwards")
    user.did("queue a message")
    user.presses("M-Up")
    user.misses("queued: afterwards")
    user.presses("C-c")
    user.did("take it back")
    (folder / "go").touch()
    user.sees("You said be quick.")
    user.ready()
    user.says("think hard")
    user.sees("thinking")
    user.presses("Escape")
    user.sees("● interrupted")
    user.did("interrupt a run")
    user.presses("Enter")
    user.sees("thinking")
    user.did("resume it")
    user.presses("Escape")
    user.sees("● interrupted")
    user.presses("Escape")
    user.sees("cancelled")
    user.ready()
    user.did("cancel it")


def look(user: FirstHour) -> None:
    user.presses("C-o")
    user.sees("Tool calls are shown in detail.")
    user.presses("C-o")
    user.sees("Tool calls are shown in short.")
    user.did("show and hide details")
    user.presses("F6")
    user.sees("Esc closes")
    user.presses("Escape")
    user.ready()
    user.did("show the whole output of a call")
    user.says("/cost")
    user.sees("Cost of this session")
    user.did("see the cost")
    user.says("hello again")
    user.sees("You said hello again.")
    user.ready()
    user.says("/copy")
    user.sees("Copied")
    user.did("copy the answer")
    user.says("/export notes/session.md")
    user.sees("Exported to")
    user.did("export the session")
    user.says("/rename My first hour")
    user.sees("Renamed to")
    user.did("rename the session")
    user.says("/theme light")
    user.sees("Theme: light.")
    user.says("/theme dark")
    user.sees("Theme: dark.")
    user.did("change the theme and back")
    user.terminal.resize(80, 24)
    user.sees("ready ask")
    user.terminal.resize(120, 40)
    user.sees("ready ask")
    user.did("resize the terminal and back")
    user.says("/nonsense")
    user.sees("There is no command /nonsense")
    user.presses("C-c")
    user.did("mistype a command")
    user.says("/new")
    user.sees("New session.")
    user.did("begin a new session")
    user.presses("F2")
    user.sees("My first hour")
    user.terminal.type("first hour")
    user.presses("Enter")
    user.sees("You said hello again.")
    user.did("open the first session again")


def leave(user: FirstHour) -> None:
    user.presses("C-c")
    user.sees("Press Ctrl-C again to quit.")
    user.presses("C-c")
    user.terminal.wait_for("treadle chat --session", history=True)
    user.did("quit: the transcript stays, with the command that opens it again")


def come_back(user: FirstHour) -> None:
    user.sees("You said hello again.")
    user.sees("ready ask")
    user.did("continue the latest session with -c: its conversation and its mode are there")


@contextmanager
def open_stage(folder: Path) -> Generator[Stage]:
    work, home = folder / "work", folder / "home"
    work.mkdir()
    (work / "notes").mkdir()
    (work / "notes.md").write_text("a needle\nand hay\nanother needle\n")
    with serve(policy=answer) as endpoint:
        yield Stage(work, endpoint, write_home(home, endpoint.url, agent=AGENT))


def perform() -> int:
    """Do everything once, and return the number of actions."""
    folder = Path(tempfile.mkdtemp(prefix="first-hour-"))
    with ExitStack() as opened:
        opened.callback(shutil.rmtree, folder, ignore_errors=True)
        stage = opened.enter_context(open_stage(folder))
        with stage.open(columns=120, rows=40) as terminal:
            user = FirstHour(stage, terminal)
            for part in (talk, approve, change_modes, steer, look, leave):
                part(user)
        with stage.open("-c", columns=120, rows=40) as terminal:
            user.terminal = terminal
            come_back(user)
    return user.count


def main() -> None:
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    for number in range(times):
        began = time.monotonic()
        count = perform()
        load = re.sub(r"\s", " ", " ".join(f"{each:.1f}" for each in os.getloadavg()))
        print(f"time {number + 1} of {times}: {count} actions in {time.monotonic() - began:.0f} s, load {load}")
        assert count >= MIN_ACTIONS, count


if __name__ == "__main__":
    main()
