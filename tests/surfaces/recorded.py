"""The commands whose output is recorded, in the order in which one user might type them.

    python -m tests.surfaces.recorded

records all of them again, at both widths, into `tests/surfaces/recordings`. Read the difference before you commit
it: it is what users will see."""

import asyncio
import json
import tempfile
from pathlib import Path
from shutil import copy

from tests.fake_endpoint import Behaviour, calls, fragment, says
from tests.mcp.homes import PYTHON, SERVERS, read_tools
from tests.surfaces.recording import Invocation, Recorder, split_by_group
from tests.surfaces.shell import Shell
from tests.surfaces.terminal import CTRL_C, CTRL_D

WIDTHS = (80, 200)
FOLDER = Path(__file__).with_name("recordings")
ANSWER = "The release is on **Friday**, after the review of the notes."
LONG = (
    "Please compare the release notes of the last three versions and tell me which changes a careful administrator "
    "has to know before the upgrade on Friday."
)
CONFIG = """\
providers: {{fake: {{base_url: '{url}'}}}}
defaults: {{model: fake/m}}
models: {{fake/m: {{context_window: 128000, prices: {{input: 1.25, output: 10}}}}}}
channels:
  team:
    platform: telegram
    agent: default
    settings: {{token: "{{{{vault:TELEGRAM_TOKEN}}}}", url: "http://127.0.0.1:9"}}
"""
PARENT = """\
name: parent
memory: {remember: false}
model: fake/m
tools: [agent_spawn, write_file]
retry: {attempts: 0}
approvals: {default: auto}
"""


def configure(shell: Shell) -> None:
    """Write the settings of a home with two agents, a skill and a server to import."""
    shell.home.mkdir(mode=0o700)
    shell.configure_careful()
    default = shell.home / "agents" / "default" / "config.yaml"
    default.write_text(f"{default.read_text()}\nmemory: {{remember: false, embedder: none}}\n")
    shell.write("config.yaml", CONFIG.format(url=shell.url))
    shell.write("agents/parent/config.yaml", PARENT)
    skill = "---\nname: release-notes\ndescription: Write the notes of a release.\n---\n\nList what users notice.\n"
    shell.write("skills/release-notes/SKILL.md", skill)
    servers = {"mcpServers": {"docs": {"command": "docs-server", "args": ["--stdio"]}}}
    shell.write("other.mcp.json", json.dumps(servers))


def asks(tool: str, **arguments: object) -> Behaviour:
    """Return a model reply with a tool call and token counts."""
    return calls(fragment(0, "c1", tool, json.dumps(arguments)))


def write_memories(home: Path) -> None:
    lines = [{"text": f"Fact {number} about the release.", "agent": "default"} for number in (1, 2)]
    (home / "memories.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def write_server(home: Path) -> None:
    tools = read_tools()[:2]
    servers = home.parent / "project" / "servers"
    servers.mkdir()
    (servers / "tools.json").write_text(json.dumps(tools))
    copy(SERVERS / "plain.py", servers)


def write_dataset(home: Path) -> None:
    (home / "cases.jsonl").write_text('{"item": {"input": "When is the release?", "expected": "Friday"}}\n')


EVALUATION = ((r"eva_[0-9a-f]+", "eva_0000000000000000"), (r"\d{4}-\d\d-\d\d|now|\d+ \w+ ago", "2027-01-15"))
DURATION = ((r"\d+\.\d+ s\b", "0.1 s"),)
MACHINE = (
    (r"(?m)^((sandbox|embedder|local weights) +\w+ +\w+ +).*(\n {30}.*)*", r"\1…"),
    (r"checking .*\ntesting .*\n", ""),
    (r"[\d.]+ MB", "0.4 MB"),
)
ESTIMATES = (
    (r'"input_estimate":\d+,"cost_estimate":[\d.]+', '"input_estimate":500,"cost_estimate":0.1'),
    (r"about \d+ tokens", "about 500 tokens"),
    (r'"workspace":"/[^"\n]*…', '"workspace":"/…'),
)
"""They depend on the path of the folder."""
INVOCATIONS = (
    # ── Before there is anything ──
    Invocation("runs list"),
    Invocation("sessions list"),
    Invocation("approvals list"),
    Invocation("memory list"),
    Invocation("tokens list"),
    Invocation("schedules list"),
    Invocation("hooks list"),
    Invocation("webhooks list"),
    Invocation("vault list"),
    Invocation("usage"),
    # ── Runs ──
    Invocation('run "When is the release?"', (says(ANSWER),)),
    Invocation(f'run "{LONG}"', (says("Nothing to do."),)),
    Invocation('run -a parent "Write the note."', (
        asks("agent_spawn", message="Write the note into note.txt."),
        asks("write_file", path="note.txt", content="hello"),
        says("Written."),
        says("The note is written."),
    )),
    Invocation('run "Delete the old notes."', (asks("bash", command="rm -r notes"),), (("Run it?", "l\n"),)),
    Invocation('run "Ask me."', (asks("clarify", question="Which version?"),), (("your answer:", CTRL_D),)),
    Invocation("runs list"),
    Invocation("runs list --agent parent --state completed"),
    Invocation("runs show {run:1}"),
    Invocation("runs show last"),
    Invocation("runs tree {run:4}"),
    Invocation("runs steps {run:4}"),
    Invocation("runs events {run:1}", hide=ESTIMATES),
    Invocation("runs prompt {run:1}", hide=ESTIMATES),
    Invocation("runs replay {run:1}"),
    Invocation("runs diff {run:1} {run:2}"),
    Invocation('runs fork {run:1} --message "And the one after it?"', (says("In spring."),)),
    Invocation('runs answer {run:3} c1 "Version 2."', (says("Version 2 it is."),)),
    # ── Evaluations ──
    Invocation("eval feedback {run:1} good"),
    Invocation("eval add {run:1}"),
    Invocation("eval run parent", (
        asks("write_file", path="note.txt", content="hello"),
        says("Written."),
    ), hide=EVALUATION),
    Invocation("eval list", hide=EVALUATION),
    Invocation("eval show parent", hide=EVALUATION),
    Invocation("eval export parent"),
    Invocation("eval import ../home/cases.jsonl --suite imported", prepare=write_dataset),
    # ── Approvals ──
    Invocation("approvals list"),
    Invocation("approvals show last"),
    Invocation('approvals deny last --note "Keep them."', (says("I keep them."),)),
    Invocation(
        'run "Write a note."', (asks("write_file", path="a.txt", content="one\ntwo\n"),), (("Run it?", "l\n"),)
    ),
    Invocation("approvals approve last", (says("The note is written."),)),
    Invocation("runs files last"),
    Invocation("runs undo-files last --dry-run"),
    Invocation('run "Clean up."', (asks("bash", command="rm -r old"),), (("Run it?", "l\n"),)),
    Invocation("runs resume last", (), (("Run it?", CTRL_C),)),
    Invocation("runs cancel last"),
    # ── Sessions ──
    Invocation("sessions list"),
    Invocation("sessions show {ses:1}"),
    Invocation('sessions rename {ses:1} "The date of the release"'),
    Invocation('sessions model "The date of the release" fake/other'),
    Invocation('sessions mode "The date of the release" plan'),
    Invocation("sessions show last"),
    Invocation("sessions delete {ses:2}", (), (("[y/N]", "n\n"),)),
    Invocation("sessions delete {ses:6} --yes"),
    Invocation("usage"),
    Invocation("usage --by model"),
    Invocation("prune --older-than 2h --dry-run"),
    Invocation("prune --older-than 10d", (), ()),
    # ── Agents and models ──
    Invocation("agents list"),
    Invocation("agents create reviewer --model fake/m --tools read_file,bash"),
    Invocation("agents show parent"),
    Invocation("agents edit reviewer"),
    Invocation("agents label reviewer production"),
    Invocation("agents restore reviewer production"),
    Invocation("agents history reviewer", hide=((r"\d{4}-\d\d-\d\d +\S+ +file", "2027-01-15  ada     file"),)),
    Invocation("agents diff reviewer"),
    Invocation("agents state reviewer paused"),
    Invocation("agents list"),
    Invocation("agents delete reviewer", (), (("[y/N]", "y\n"),)),
    Invocation("models list", hide=((r"probing .*\n", ""),)),
    Invocation("models show fake/m"),
    Invocation("models test fake/m", (says("ready"),), hide=DURATION),
    Invocation("models pull nonsense"),
    # ── Memory ──
    Invocation('memory add --pinned "The team releases on Fridays, after two people have reviewed the notes."'),
    Invocation('memory add "Anna likes short answers." --user anna'),
    Invocation("memory list"),
    Invocation('memory search "When does the team release?"'),
    Invocation("memory unpin {mem:1}"),
    Invocation("memory pin {mem:1}"),
    Invocation("memory assign anna {mem:1}"),
    Invocation("memory export"),
    Invocation("memory import ../home/memories.jsonl", prepare=write_memories),
    Invocation("memory forget {mem:1}"),
    # ── Skills, servers, channels and plugins ──
    Invocation("skills list"),
    Invocation("skills show release-notes"),
    Invocation("skills approve release-notes", (), (("[y/N]", "y\n"),)),
    Invocation("skills list"),
    Invocation("skills remove release-notes"),
    Invocation("mcp list"),
    Invocation(
        "mcp add plain --no-network --readable servers -- "
        f"{PYTHON} {{folder}}/project/servers/plain.py {{folder}}/project/servers/tools.json",
        dialog=(("[y/N]", "y\n"),), prepare=write_server, hide=DURATION,
    ),
    Invocation("mcp list", hide=((rf"{PYTHON} /\S+", "python plain.py …"),)),
    Invocation("mcp show plain"),
    Invocation("mcp test plain", hide=DURATION),
    Invocation("mcp approve plain --yes"),
    Invocation("mcp login plain"),
    Invocation("mcp import ../home/other.mcp.json", (), (("[y/N]", "y\n"),)),
    Invocation("mcp remove docs"),
    Invocation("mcp serve", (), (("", CTRL_D),)),
    Invocation("channels list"),
    Invocation("channels pair team", hide=((r"Send \w{8} ", "Send ABCDEFGH "),)),
    Invocation("channels approve team:4711 --grant direct"),
    Invocation("channels test team"),
    Invocation("channels revoke team 4711"),
    Invocation("channels revoke nowhere 4711"),
    Invocation("plugins list"),
    Invocation("plugins approve audit"),
    Invocation("plugins revoke audit"),
    # ── Secrets and tokens ──
    Invocation(
        "vault set GITHUB_TOKEN --agent default",
        dialog=(("(not shown): ", "s3cr3t-value\n"), ("Once more: ", "s3cr3t-value\n")),
    ),
    Invocation("vault list"),
    Invocation("vault grant GITHUB_TOKEN --agent parent --tool bash"),
    Invocation("vault list"),
    Invocation("vault revoke GITHUB_TOKEN --agent parent"),
    Invocation("vault rotate"),
    Invocation("vault remove GITHUB_TOKEN"),
    Invocation("tokens create laptop --scope read --scope run --expires 90d"),
    Invocation("tokens create phone --agent default"),
    Invocation("tokens list"),
    Invocation("tokens revoke laptop"),
    Invocation("tokens list"),
    # ── Automation ──
    Invocation('schedules add "0 9 * * 1-5" "Summarise the issues of the last day, and send that to the team"'),
    Invocation('schedules add 15m "Look at the queue."'),
    Invocation("schedules list"),
    Invocation("schedules next -n 3"),
    Invocation("schedules pause {sch:2}"),
    Invocation("schedules resume {sch:2}"),
    Invocation("schedules remove {sch:2}"),
    Invocation('hooks add tracker --message "Issue {{payload.issue.title}} was opened."'),
    Invocation("hooks list"),
    Invocation("hooks rotate {hok:1}"),
    Invocation("hooks remove {hok:1}"),
    Invocation("webhooks add https://hooks.example.com/treadle --event run_end --event approval_requested"),
    Invocation("webhooks list"),
    Invocation("webhooks dead {whk:1}"),
    Invocation("webhooks retry {whk:1}"),
    Invocation("webhooks remove {whk:1}"),
    # ── The home ──
    Invocation("backup ../home.tar"),
    Invocation("restore ../home.tar"),
    Invocation("migrate sqlite:///../home/treadle.db sqlite:///other.db"),
    Invocation("worker"),
    Invocation("open --print"),
    Invocation(
        "serve --port 0",
        dialog=(("code=", CTRL_C),),
        hide=((r"treadle: channel team(?s:.*?)TELEGRAM_TOKEN\n", ""), (r"\^C", "")),
    ),
    Invocation("openapi", hide=((r"(?s)(.{200}).*", r"\1 …"),)),
    Invocation("completion bash"),
    Invocation("--version"),
    Invocation("--help"),
    Invocation("runs --help"),
    Invocation("run --help"),
    Invocation("runs lsit"),
    Invocation("runs list --nonsense"),
    Invocation("doctor --offline", has_real_time=True, hide=MACHINE),
    Invocation("chat --inline", (), (("", CTRL_D),)),
    Invocation("acp", (), (("", CTRL_D),)),
    Invocation("init --yes"),
)  # fmt: skip


async def record(folder: Path, columns: int) -> dict[str, str]:
    """Return the recordings at a width: file names and texts."""
    texts = await Recorder(folder, columns).record(INVOCATIONS, configure)
    return dict(split_by_group(INVOCATIONS, texts))


def read_recordings(columns: int) -> dict[str, str]:
    """Return the recordings of the repository."""
    return {file.name: file.read_bytes().decode() for file in (FOLDER / str(columns)).iterdir()}


def write_recordings() -> None:
    """Record everything again."""
    for columns in WIDTHS:
        with tempfile.TemporaryDirectory() as folder:
            found = asyncio.run(record(Path(folder), columns))
        place = FOLDER / str(columns)
        place.mkdir(parents=True, exist_ok=True)
        for file in place.iterdir():
            file.unlink()
        for name, text in found.items():
            (place / name).write_text(text)


if __name__ == "__main__":
    write_recordings()
