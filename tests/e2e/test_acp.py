"""`treadle acp` as editors use it: the official SDK's client, real processes, a scripted endpoint, kill -9."""

import asyncio
import base64
import json
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from acp import image_block, resource_block, resource_link_block, text_block
from acp.schema import (
    ClientCapabilities,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    EnvVariable,
    McpServerStdio,
    TextResourceContents,
)

from tests.e2e.editor import TREADLE, Editor, choose, open_editor
from tests.e2e.scripted_endpoint import ScriptedEndpoint, calls, says, serve, write_home
from tests.fake_endpoint import PAUSE, Answer, Behaviour, Policy, Request, Silence, delta, refuses
from tests.patience import until

AUTO = """\
name: default
model: fake/m
tools: [bash, read_file, write_file, edit_file, clarify, agent_spawn, update_plan]
approvals: {default: auto}
sandbox: {mode: off}
"""
ASK = AUTO.replace("auto", "ask")
WAITS = "until test -e go; do sleep 0.05; done"
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 20).decode()


class Stage:
    """A home, a folder and an endpoint."""

    def __init__(self, folder: Path, endpoint: ScriptedEndpoint, environment: dict[str, str]) -> None:
        self.folder, self.endpoint, self.environment = folder, endpoint, environment

    @property
    def home(self) -> Path:
        return Path(self.environment["TREADLE_HOME"])

    async def run(self, *arguments: str, code: int = 0) -> str:
        """Run another command of the user to its end."""
        process = await asyncio.create_subprocess_exec(
            TREADLE,
            *arguments,
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), 240)
        assert process.returncode == code, err.decode()
        return out.decode()


MakeStage = Callable[..., Stage]


@pytest.fixture
def stage(tmp_path: Path) -> Generator[MakeStage]:
    with ExitStack() as opened:

        def make(*script: Behaviour, agent: str = AUTO, policy: Policy | None = None) -> Stage:
            endpoint = opened.enter_context(serve(*script, policy=policy))
            folder = tmp_path / "project"
            folder.mkdir(exist_ok=True)
            return Stage(folder, endpoint, write_home(tmp_path / "home", endpoint.url, agent=agent))

        yield make


async def perform(work: Awaitable[None]) -> None:
    async with asyncio.timeout(600):
        await work


def only_call(editor: Editor) -> dict[str, Any]:
    [call] = editor.calls().values()
    return call


# ── Turns ──


async def test_an_answer_streams_with_usage_title_commands_and_options(stage: MakeStage) -> None:
    made = stage(says("Hello ", "", "world."))

    async def work() -> None:
        async with open_editor(made.environment) as (editor, _):
            opened = await editor.conn.new_session(cwd=str(made.folder), mcp_servers=[])
            options = {option.id: option for option in opened.config_options or []}
            assert options["model"].current_value == "fake/m"
            assert options["agent"].current_value == "default"
            assert opened.modes is not None
            assert opened.modes.current_mode_id == "rules"
            turn = asyncio.create_task(editor.send(opened.session_id, "hello"))
            await editor.wait_for(lambda seen: seen.text == "Hello ")
            assert not turn.done()
            made.endpoint.go_on()
            ended = await turn
            assert (ended.stop_reason, ended.usage.total_tokens) == ("end_turn", 1240)
            assert editor.text == "Hello world."
            assert editor.said == []  # an editor shows its own messages itself
            [usage] = editor.of("usage_update")
            assert usage.used == 1240
            assert usage.size > 0
            [commands] = editor.of("available_commands_update")
            assert {command.name for command in commands.available_commands} >= {"compact", "reset", "usage"}
            [info] = await editor.wait_for(lambda seen: seen.of("session_info_update"))
            assert info.title == "hello"
            assert "the user is in an editor" in made.endpoint.last_texts()[-1]
            await editor.send(opened.session_id, "/usage")
            assert editor.text.count("context ") == 1
            await editor.send(opened.session_id, "/reset")
            assert editor.text.count("The conversation starts over.") == 1

    await perform(work())


async def test_recalled_notes_are_a_thought_that_nothing_in_them_can_format(stage: MakeStage) -> None:
    made = stage(says("Noted."), says("At ten."))

    async def work() -> None:
        async with open_editor(made.environment) as (editor, _):
            first = await editor.conn.new_session(cwd=str(made.folder), mcp_servers=[])
            await editor.send(first.session_id, "the train leaves at ten ![x](http://127.0.0.1/x.png)")
            assert editor.thoughts == ""
            second = await editor.conn.new_session(cwd=str(made.folder), mcp_servers=[])
            await editor.send(second.session_id, "when does the train leave?")
            head, _, rest = editor.thoughts.partition("\n\n```\n")
            assert head == "recalled 1 note"
            assert "Asked: the train leaves at ten ![x]" in rest.partition("\n```")[0]

    await perform(work())


async def test_calls_have_kinds_locations_progress_diffs_and_plans(stage: MakeStage) -> None:
    entries = [{"content": "Look", "status": "completed", "priority": "high"}, {"content": "Change"}]
    made = stage(
        calls("update_plan", "p1", entries=entries),
        calls("read_file", "r1", path="src/a.txt", start_line=2),
        calls("edit_file", "e1", path="src/a.txt", old="two", new="TWO"),
        calls("bash", "b1", command=f"echo begun; {WAITS}; echo done"),
        calls("bash", "b2", command="exit 3"),
        says("Done."),
    )
    (made.folder / "src").mkdir()
    (made.folder / "src" / "a.txt").write_text("one\ntwo\n")

    async def work() -> None:
        async with open_editor(made.environment) as (editor, _):
            session = await editor.new(made.folder)
            turn = asyncio.create_task(editor.send(session, "work"))

            def shows_output(seen: Editor) -> bool:
                running = [call for call in seen.calls().values() if call.get("kind") == "execute"]
                return any("begun" in json.dumps(call.get("content", [])) for call in running)

            await editor.wait_for(shows_output)
            (made.folder / "go").touch()
            assert (await turn).stop_reason == "end_turn"
            [plan] = editor.of("plan")
            assert [(each.content, each.status, each.priority) for each in plan.entries] == [
                ("Look", "completed", "high"),
                ("Change", "pending", "medium"),
            ]
            read, edit, wait, failed = editor.calls().values()
            path = str(made.folder / "src" / "a.txt")
            assert (read["kind"], read["status"], read["title"]) == ("read", "completed", "Read src/a.txt")
            assert read["locations"] == [{"path": path, "line": 2}]
            assert (edit["kind"], edit["status"]) == ("edit", "completed")
            [diff] = edit["content"]
            assert (diff["type"], diff["path"], diff["oldText"], diff["newText"]) == ("diff", path, "two", "TWO")
            assert (wait["kind"], wait["status"]) == ("execute", "completed")
            assert "done" in wait["content"][0]["content"]["text"]
            assert failed["status"] == "failed"
            assert failed["rawInput"] == {"command": "exit 3"}

    await perform(work())


async def test_cancel_reaches_the_model_call_and_the_tools(stage: MakeStage) -> None:
    made = stage(Silence(), calls("bash", command=f"touch begun; {WAITS}"), says("Still here."))

    async def work() -> None:
        async with open_editor(made.environment) as (editor, _):
            session = await editor.new(made.folder)
            turn = asyncio.create_task(editor.send(session, "think"))
            await until(lambda: bool(made.endpoint.requests))
            await editor.conn.cancel(session_id=session)
            assert (await turn).stop_reason == "cancelled"
            turn = asyncio.create_task(editor.send(session, "run"))
            await editor.wait_for(lambda seen: any(c["status"] == "in_progress" for c in seen.calls().values()))
            await until(lambda: (made.folder / "begun").exists())
            await editor.conn.cancel(session_id=session)
            assert (await turn).stop_reason == "cancelled"
            assert only_call(editor)["status"] == "failed"
            assert (await editor.send(session, "and now?")).stop_reason == "end_turn"
            assert editor.text.endswith("Still here.")

    await perform(work())


async def test_a_prompt_during_a_prompt_is_refused_and_the_first_one_completes(stage: MakeStage) -> None:
    made = stage(says("A", "", "B"))

    async def work() -> None:
        async with open_editor(made.environment) as (editor, _):
            session = await editor.new(made.folder)
            turn = asyncio.create_task(editor.send(session, "one"))
            await editor.wait_for(lambda seen: seen.text == "A")
            error = await editor.fails(editor.send(session, "two"))
            assert error.code == -32600
            assert "in progress" in str(error)
            made.endpoint.go_on()
            assert (await turn).stop_reason == "end_turn"
            assert editor.text == "AB"

    await perform(work())


async def test_images_files_and_links_reach_the_model(stage: MakeStage) -> None:
    made = stage(says("Seen."))

    async def work() -> None:
        async with open_editor(made.environment) as (editor, _):
            session = await editor.new(made.folder)
            file = TextResourceContents(
                uri=f"file://{made.folder}/a%20b.py", text="x = 1", mime_type="text/x-python"
            )
            blocks: list[Any] = [
                text_block("Look at"),
                resource_link_block("c.py", f"file://{made.folder}/c.py"),
                resource_block(file),
                image_block(PIXEL, "image/png"),
            ]
            await editor.conn.prompt(session_id=session, prompt=blocks)
            content = made.endpoint.requests[-1].json["messages"][-1]["content"]
            text = "".join(part.get("text", "") for part in content)
            assert "Look at @c.py @a b.py" in text
            assert "Attached file a b.py:\nx = 1" in text
            assert any(part["type"] == "image_url" for part in content)

    await perform(work())


async def test_a_reply_that_is_cut_off_is_marked_and_starts_again(stage: MakeStage) -> None:
    cut = Answer([delta(role="assistant", content="Half an ans"), PAUSE], ending="cut")
    made = stage(cut, says("Whole."), agent=f"{AUTO}retry: {{base_ms: 1}}\n")

    async def work() -> None:
        async with open_editor(made.environment) as (editor, _):
            session = await editor.new(made.folder)
            turn = asyncio.create_task(editor.send(session, "hello"))
            await editor.wait_for(lambda seen: seen.text == "Half an ans")
            made.endpoint.go_on()
            assert (await turn).stop_reason == "end_turn"
            assert "cut off" in editor.text
            assert editor.text.endswith("Whole.")
            assert len({update.message_id for update in editor.of("agent_message_chunk")}) == 2

    await perform(work())


# ── Approvals and questions ──


async def test_an_edit_is_approved_in_the_editor_as_a_diff(stage: MakeStage) -> None:
    made = stage(
        calls("write_file", "w1", path="a.txt", content="new\n"),
        calls("write_file", "w2", path="a.txt", content="newer\n"),
        calls("bash", "b1", command="rm -rf a\u200b.txt"),
        says("Done."),
        agent=ASK,
    )
    (made.folder / "a.txt").write_text("old\n")

    def answer(call: Any, options: Any) -> str:
        kinds = [option.kind for option in options]
        if call.kind == "execute":
            assert kinds == ["allow_once", "reject_once"]
            return "deny"
        assert kinds == ["allow_once", "allow_always", "reject_once"]
        return "allow-edits"

    async def work() -> None:
        async with open_editor(made.environment, answer=answer) as (editor, _):
            session = await editor.new(made.folder)
            assert (await editor.send(session, "write")).stop_reason == "end_turn"
            assert (made.folder / "a.txt").read_text() == "newer\n"
            (asked, _), (command, _) = editor.permissions
            diff = asked.content[0]
            assert (diff.path, diff.old_text, diff.new_text) == (str(made.folder / "a.txt"), "old\n", "new\n")
            assert "<U+200B>" in command.content[0].content.text  # nothing is hidden from the reviewer
            first, second, denied = editor.calls().values()
            assert (first["status"], second["status"], denied["status"]) == ("completed", "completed", "failed")

    await perform(work())


PATCH = """\
*** Begin Patch
*** Delete File: old.txt
*** Update File: a.txt
*** Move to: b.txt
@@
-two
+2
*** Update File: c.txt
*** Move to: d.txt
*** End Patch"""
DELETION = "*** Begin Patch\n*** Delete File: d.txt\n*** End Patch"


async def test_a_patch_is_shown_with_its_deletions_and_moves(stage: MakeStage) -> None:
    made = stage(
        calls("apply_patch", "p1", input=PATCH),
        calls("apply_patch", "p2", input=DELETION),
        says("Done."),
        agent=ASK.replace("[bash", "[apply_patch, bash"),
    )
    for name, text in {"old.txt": "gone\n", "a.txt": "one\ntwo\n", "c.txt": "kept\n"}.items():
        (made.folder / name).write_text(text)

    def show(call: dict[str, Any]) -> list[tuple[str, ...]]:
        return [
            (part["content"]["text"],)
            if part["type"] == "content"
            else (Path(part["path"]).name, part.get("oldText"), part["newText"])
            for part in call["content"]
        ]

    async def work() -> None:
        async with open_editor(made.environment, answer=choose("allow-once")) as (editor, _):
            session = await editor.new(made.folder)
            assert (await editor.send(session, "patch")).stop_reason == "end_turn"
            patch, deletion = editor.calls().values()
            asked = [call.model_dump(mode="json", by_alias=True) for call, _ in editor.permissions]
            expected = [
                ("Delete old.txt",),
                ("old.txt", "gone\n", ""),
                ("Move a.txt to b.txt",),
                ("b.txt", "two", "2"),
                ("Move c.txt to d.txt",),
            ]
            assert show(patch) == expected
            assert show(asked[0])[: len(expected)] == expected
            assert patch["title"] == "Delete old.txt, Move a.txt to b.txt, Move c.txt to d.txt"
            assert (patch["kind"], patch["status"], deletion["kind"]) == ("edit", "completed", "delete")
            names = [Path(each["path"]).name for each in patch["locations"]]
            assert names == ["old.txt", "a.txt", "b.txt", "c.txt", "d.txt"]
            assert sorted(os.listdir(made.folder)) == ["b.txt"]
        async with open_editor(made.environment) as (editor, _):
            await editor.conn.load_session(cwd=str(made.folder), session_id=session, mcp_servers=[])
            _, deletion = editor.calls().values()
            assert show(deletion) == [("Delete d.txt",)]  # what it contained is not known any more

    await perform(work())


async def test_a_line_is_allowed_for_the_session_in_the_editor(stage: MakeStage) -> None:
    made = stage(
        calls("bash", "b1", command="echo x | tee -a a.txt"),
        calls("bash", "b2", command="echo x | tee -a a.txt"),
        says("Done."),
        agent=ASK,
    )

    def answer(call: Any, options: Any) -> str:
        assert options[1].name == "Allow for this session: exactly this command"
        return "allow-session"

    async def work() -> None:
        async with open_editor(made.environment, answer=answer) as (editor, _):
            session = await editor.new(made.folder)
            assert (await editor.send(session, "write")).stop_reason == "end_turn"
            assert len(editor.permissions) == 1
            assert (made.folder / "a.txt").read_text() == "x\nx\n"

    await perform(work())


async def test_the_terminal_decides_first_and_the_request_is_withdrawn(stage: MakeStage) -> None:
    made = stage(calls("bash", command="echo approved"), says("Done."), agent=ASK)

    async def work() -> None:
        async with open_editor(made.environment) as (editor, _):
            session = await editor.new(made.folder)
            turn = asyncio.create_task(editor.send(session, "run it"))
            await editor.wait_for(lambda seen: seen.permissions)
            [approval] = [json.loads(line) for line in (await made.run("approvals", "list", "--json")).splitlines()]
            await made.run("approvals", "approve", approval["approval_id"])
            assert (await turn).stop_reason == "end_turn"
            [request] = [each for each in editor.raw if each.get("method") == "session/request_permission"]
            [withdrawn] = [each for each in editor.raw if each.get("method") == "$/cancel_request"]
            assert withdrawn["params"] == {"requestId": request["id"]}
            assert only_call(editor)["status"] == "completed"

    await perform(work())


async def test_cancel_withdraws_the_permission_request(stage: MakeStage) -> None:
    made = stage(calls("bash", command="touch never"), agent=ASK)

    async def work() -> None:
        async with open_editor(made.environment) as (editor, _):
            session = await editor.new(made.folder)
            turn = asyncio.create_task(editor.send(session, "run it"))
            await editor.wait_for(lambda seen: seen.permissions)
            await editor.conn.cancel(session_id=session)
            assert (await turn).stop_reason == "cancelled"
            assert [each for each in editor.raw if each.get("method") == "$/cancel_request"]
            assert not (made.folder / "never").exists()
            assert (await made.run("approvals", "list", "--json")).strip() == ""

    await perform(work())


async def test_the_mode_decides_which_calls_need_approval(stage: MakeStage) -> None:
    made = stage(
        calls("write_file", "w1", path="a.txt", content="1"),
        calls("bash", "b1", command="true"),
        says("One."),
        calls("bash", "b2", command="touch x"),
        says("Two."),
        calls("bash", "b3", command="true"),
        says("Three."),
        agent=ASK,
    )

    async def work() -> None:
        async with open_editor(made.environment, answer=choose("allow-once")) as (editor, _):
            session = await editor.new(made.folder)
            await editor.conn.set_session_mode(session_id=session, mode_id="accept_edits")
            await editor.send(session, "one")
            assert [call.kind for call, _ in editor.permissions] == ["execute"]
            error = await editor.fails(editor.conn.set_session_mode(session_id=session, mode_id="auto"))
            assert "needs a sandbox" in str(error)
            await editor.conn.set_config_option(session_id=session, config_id="mode", value="plan")
            assert editor.of("current_mode_update")[-1].current_mode_id == "plan"
            await editor.send(session, "two")
            assert len(editor.permissions) == 1, "plan mode refuses the command"
            await editor.conn.set_session_mode(session_id=session, mode_id="ask")
            await editor.send(session, "three")
            assert len(editor.permissions) == 2
            error = await editor.fails(editor.conn.set_session_mode(session_id=session, mode_id="yolo"))
            assert "there is no mode `yolo`" in str(error)

    await perform(work())


@pytest.mark.parametrize("way", ["form", "options", "chat"])
async def test_a_question_is_answered_in_the_editor(stage: MakeStage, way: str) -> None:
    options = [] if way == "chat" else ["red", "blue"]
    made = stage(calls("clarify", question="Which colour?", options=options), says("As you like."))
    form = ClientCapabilities(elicitation=ElicitationCapabilities(form=ElicitationFormCapabilities()))

    async def work() -> None:
        capabilities = form if way == "form" else None
        async with open_editor(made.environment, answer=choose("option-1"), capabilities=capabilities) as (
            editor,
            _,
        ):
            editor.form_answer = "blue"
            session = await editor.new(made.folder)
            assert (await editor.send(session, "paint")).stop_reason == "end_turn"
            if way == "chat":
                assert "Which colour?" in editor.text
                assert (await editor.send(session, "blue")).stop_reason == "end_turn"
            assert editor.text.endswith("As you like.")
            assert "blue" in made.endpoint.last_texts()[-1]
            assert bool(editor.forms) == (way == "form")

    await perform(work())


# ── Sessions ──


async def test_a_session_continues_after_kill_9_and_is_shown_again(stage: MakeStage) -> None:
    made = stage(
        calls("write_file", "w1", path="a.txt", content="x"),
        says("First answer."),
        calls("clarify", "q1", question="?"),
        says("Second answer."),
    )

    async def work() -> None:
        async with open_editor(made.environment) as (editor, process):
            session = await editor.new(made.folder)
            await editor.send(session, "first")
            turn = asyncio.create_task(editor.send(session, "second"))
            await turn
            process.kill()
            await process.wait()
        async with open_editor(made.environment) as (again, _):
            listed = await again.conn.list_sessions(cwd=str(made.folder))
            [info] = listed.sessions
            assert (info.session_id, info.cwd, info.title) == (session, str(made.folder), "first")
            await again.conn.load_session(cwd=str(made.folder), session_id=session, mcp_servers=[])
            assert again.said == ["first", "second"]
            assert "First answer." in again.text
            write = next(call for call in again.calls().values() if call["kind"] == "edit")
            assert (write["status"], write["content"][0]["newText"]) == ("completed", "x")
            await again.wait_for(lambda seen: seen.text.endswith("?"))
            assert (await again.send(session, "yes")).stop_reason == "end_turn"
            assert again.text.endswith("Second answer.")
            assert "yes" in made.endpoint.last_texts()[-1]

    await perform(work())


async def test_a_run_killed_in_a_model_call_continues_when_the_session_is_loaded(stage: MakeStage) -> None:
    made = stage(says("Lost", "", " text."), says("Recovered."))

    async def work() -> None:
        async with open_editor(made.environment) as (editor, process):
            session = await editor.new(made.folder)
            turn = asyncio.create_task(editor.send(session, "begin"))
            await editor.wait_for(lambda seen: seen.text == "Lost")
            process.kill()
            await process.wait()
            turn.cancel()
        async with open_editor(made.environment) as (again, _):
            await again.conn.load_session(cwd=str(made.folder), session_id=session, mcp_servers=[])
            await again.wait_for(lambda seen: "Recovered." in seen.text)
            assert again.said == ["begin"]

    await perform(work())


@pytest.mark.parametrize("way", ["end of input", "SIGTERM"])
async def test_a_run_continues_in_the_background_after_the_editor_exits(stage: MakeStage, way: str) -> None:
    made = stage(calls("bash", command=f"touch begun; {WAITS}"), says("Finished alone."))

    async def work() -> None:
        async with open_editor(made.environment) as (editor, process):
            session = await editor.new(made.folder)
            turn = asyncio.create_task(editor.send(session, "work"))
            await until(lambda: (made.folder / "begun").exists())
            if way == "SIGTERM":
                process.send_signal(signal.SIGTERM)
            else:
                assert process.stdin is not None
                process.stdin.close()
            (made.folder / "go").touch()
            await process.wait()
            assert process.returncode == 0
            turn.cancel()
        async with open_editor(made.environment) as (again, _):
            await again.conn.load_session(cwd=str(made.folder), session_id=session, mcp_servers=[])
            await again.wait_for(lambda seen: "Finished alone." in seen.text)

    await perform(work())


async def test_a_session_continues_in_the_terminal_and_its_events_appear_in_the_editor(stage: MakeStage) -> None:
    made = stage(says("In the editor."), says("In the terminal."), says("Back again."))

    async def work() -> None:
        async with open_editor(made.environment) as (editor, _):
            session = await editor.new(made.folder)
            await editor.send(session, "one")
            assert "In the terminal." in await made.run("run", "--session", session, "two")
            await editor.wait_for(lambda seen: "In the terminal." in seen.text)
            assert editor.said == ["two"]
            await editor.send(session, "three")
            assert [text.rpartition("\n")[2] for text in made.endpoint.last_texts() if "one" in text]
            assert editor.text.endswith("Back again.")
        assert "three" in await made.run("sessions", "show", session)

    await perform(work())


async def test_two_editors_on_one_session_see_the_same_and_decide_once(stage: MakeStage) -> None:
    made = stage(calls("bash", command="echo once >> log"), says("Done."), says("More."), agent=ASK)

    async def work() -> None:
        async with open_editor(made.environment) as (left, _), open_editor(made.environment) as (right, _):
            session = await left.new(made.folder)
            turn = asyncio.create_task(left.send(session, "run it"))
            await left.wait_for(lambda seen: seen.permissions)
            right.answer = choose("allow-once")
            await right.conn.load_session(cwd=str(made.folder), session_id=session, mcp_servers=[])
            assert right.said == ["run it"]
            assert (await turn).stop_reason == "end_turn"
            await left.wait_for(lambda seen: [m for m in seen.raw if m.get("method") == "$/cancel_request"])
            await right.wait_for(lambda seen: seen.text.endswith("Done."))
            assert (made.folder / "log").read_text() == "once\n"
            await right.send(session, "and more")
            await left.wait_for(lambda seen: seen.text.endswith("More."))
            assert left.said == ["and more"]

    await perform(work())


async def test_a_prompt_steers_the_run_of_another_editor(stage: MakeStage) -> None:
    made = stage(calls("bash", command=f"touch begun; {WAITS}"), says("Turned left."))

    async def work() -> None:
        async with open_editor(made.environment) as (left, _), open_editor(made.environment) as (right, _):
            session = await left.new(made.folder)
            first = asyncio.create_task(left.send(session, "go"))
            await until((made.folder / "begun").exists)
            again = await left.fails(
                left.conn.load_session(cwd=str(made.folder), session_id=session, mcp_servers=[])
            )
            assert "in progress" in str(again)
            await right.conn.load_session(cwd=str(made.folder), session_id=session, mcp_servers=[])
            second = asyncio.create_task(right.send(session, "turn left"))
            await left.wait_for(lambda seen: seen.said == ["turn left"])
            (made.folder / "go").touch()
            assert (await first).stop_reason == "end_turn"
            assert (await second).stop_reason == "end_turn"
            assert right.said == ["go"]
            assert left.text == right.text == "Turned left."
            assert made.endpoint.last_texts()[-1].endswith("turn left")

    await perform(work())


async def test_a_child_run_asks_in_the_editor(stage: MakeStage) -> None:
    made = stage(
        calls("agent_spawn", agent="default", message="write it"),
        calls("write_file", "w1", path="child.txt", content="x"),
        says("Child done."),
        says("Parent done."),
        agent=AUTO.replace("{default: auto}", "{rules: [{tool: write_file, do: ask}]}"),
    )

    async def work() -> None:
        async with open_editor(made.environment, answer=choose("allow-once")) as (editor, _):
            session = await editor.new(made.folder)
            assert (await editor.send(session, "delegate")).stop_reason == "end_turn"
            assert (made.folder / "child.txt").read_text() == "x"
            [(asked, _)] = editor.permissions
            assert asked.title == "Write child.txt"
            assert {call["status"] for call in editor.calls().values()} == {"completed"}

    await perform(work())


async def test_a_server_takes_the_home_over_during_a_prompt(stage: MakeStage) -> None:
    made = stage(calls("bash", command=f"touch begun; {WAITS}"), says("Same turn."), says("Next turn."))

    async def work() -> None:
        async with open_editor(made.environment) as (editor, _):
            session = await editor.new(made.folder)
            turn = asyncio.create_task(editor.send(session, "go"))
            await until((made.folder / "begun").exists)
            server = await asyncio.create_subprocess_exec(
                TREADLE,
                "serve",
                "--port",
                "0",
                "--json",
                env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **made.environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            try:
                log = made.home / "logs" / "acp.log"
                await until(lambda: "Home: leaving" in log.read_text())
                (made.folder / "go").touch()
                assert (await turn).stop_reason == "end_turn"
                assert editor.text == "Same turn."
                assert (await editor.send(session, "on")).stop_reason == "end_turn"
                assert editor.text == "Same turn.Next turn."
            finally:
                server.terminate()
                await server.wait()

    await perform(work())


async def test_prompts_wait_while_the_owner_of_the_home_changes(stage: MakeStage) -> None:
    def answer(request: Request) -> Behaviour:
        return says(f"Answer to {request.json['messages'][-1]['content'][-1]}.")

    made = stage(policy=answer)

    async def work() -> None:
        log = made.home / "logs" / "acp.log"

        def count_losses() -> int:
            return log.read_text().count("Home: lost")

        async with open_editor(made.environment) as (editor, _):
            session = await editor.new(made.folder)
            server = await asyncio.create_subprocess_exec(
                TREADLE, "serve", "--port", "0", "--json",
                env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **made.environment},
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            try:
                await until(lambda: count_losses() == 1)
                assert (await editor.send(session, "1")).stop_reason == "end_turn"
                server.terminate()
                await server.wait()
                assert (await editor.send(session, "2")).stop_reason == "end_turn"
                assert editor.text == "Answer to 1.Answer to 2."
            finally:
                if server.returncode is None:
                    server.terminate()
                    await server.wait()

    await perform(work())


async def test_sessions_are_attached_resumed_and_closed(stage: MakeStage) -> None:
    made = stage(says("Served."), says("A", "", "B"), says("Again."))

    async def work() -> None:
        server = await asyncio.create_subprocess_exec(
            TREADLE, "serve", "--port", "0", "--json",
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **made.environment},
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            assert server.stdout is not None
            await server.stdout.readline()
            async with open_editor(made.environment) as (editor, _):
                session = await editor.new(made.folder)
                assert (await editor.send(session, "hello")).stop_reason == "end_turn"
                assert editor.text == "Served."
                turn = asyncio.create_task(editor.send(session, "more"))
                await editor.wait_for(lambda seen: seen.text == "Served.A")
                await editor.conn.close_session(session_id=session)
                assert (await turn).stop_reason == "cancelled"
                error = await editor.fails(editor.send(session, "closed?"))
                assert (error.code, "not open" in str(error)) == (-32002, True)
                seen = len(editor.updates)
                await editor.conn.resume_session(cwd=str(made.folder), session_id=session, mcp_servers=[])
                assert [update for update in editor.updates[seen:] if "chunk" in update.session_update] == []
                assert (await editor.send(session, "again")).stop_reason == "end_turn"
                assert editor.text.endswith("Again.")
        finally:
            server.terminate()
            await server.wait()

    await perform(work())


async def test_the_chosen_model_and_agent_are_kept(stage: MakeStage) -> None:
    def answer(request: Request) -> Behaviour:
        return says(f"I am {request.json['model']}.")

    made = stage(policy=answer)
    other = made.home / "agents" / "other"
    other.mkdir(parents=True)
    (other / "config.yaml").write_text(AUTO.replace("name: default", "name: other").replace("fake/m", "fake/o"))

    async def work() -> None:
        async with open_editor(made.environment) as (editor, _):
            session = await editor.new(made.folder)
            await editor.conn.set_config_option(session_id=session, config_id="model", value="fake/big")
            await editor.send(session, "who?")
            assert editor.text == "I am big."
            changed = await editor.conn.set_config_option(session_id=session, config_id="agent", value="other")
            assert changed is not None
            assert {option.id: option.current_value for option in changed.config_options}["model"] == "fake/o"
            await editor.send(session, "who?")
            assert editor.text.endswith("I am o.")
            error = await editor.fails(
                editor.conn.set_config_option(session_id=session, config_id="agent", value="nobody")
            )
            assert "nobody" in str(error)
            error = await editor.fails(
                editor.conn.set_config_option(session_id=session, config_id="model", value="nowhere/x")
            )
            assert "no provider is called `nowhere`" in str(error)
            empty = await editor.new(made.folder)
            await editor.conn.set_config_option(session_id=empty, config_id="model", value="fake/kept")
        async with open_editor(made.environment) as (again, _):
            for session_id, model in ((session, "fake/o"), (empty, "fake/kept")):
                loaded = await again.conn.load_session(cwd=str(made.folder), session_id=session_id, mcp_servers=[])
                assert loaded is not None
                options = {option.id: option.current_value for option in loaded.config_options or []}
                assert options["model"] == model

    await perform(work())


# ── Bad input ──


async def test_wrong_requests_get_clear_errors_and_the_connection_lives_on(stage: MakeStage) -> None:
    made = stage(says("Fine."))

    async def work() -> None:
        async with open_editor(made.environment) as (editor, _):
            conn, folder = editor.conn, str(made.folder)
            relative = await editor.fails(conn.new_session(cwd="project", mcp_servers=[]))
            assert (relative.code, "absolute path" in str(relative)) == (-32602, True)
            missing = await editor.fails(conn.new_session(cwd=f"{folder}/none", mcp_servers=[]))
            assert (missing.code, "does not exist" in str(missing)) == (-32602, True)
            unknown = await editor.fails(conn.load_session(cwd=folder, session_id="ses_none", mcp_servers=[]))
            assert (unknown.code, "There is no session ses_none" in str(unknown)) == (-32002, True)
            odd = await editor.fails(conn.load_session(cwd=folder, session_id="../../etc", mcp_servers=[]))
            assert odd.code == -32002
            closed = await editor.fails(editor.send("ses_none", "hello"))
            assert closed.code == -32002
            session = await editor.new(made.folder)
            huge = await editor.fails(editor.send(session, "x" * 5_000_000))
            assert (huge.code, "at most 128000" in str(huge)) == (-32602, True)
            blank = await editor.fails(editor.send(session, "   "))
            assert "empty" in str(blank)
            command = await editor.fails(editor.send(session, "/compcat"))
            assert "Did you mean /compact?" in str(command)
            image = await editor.fails(conn.prompt(session_id=session, prompt=[image_block("???", "image/png")]))
            assert "not base64" in str(image)
            assert (await editor.send(session, "still there?")).stop_reason == "end_turn"

    await perform(work())


def test_lines_that_are_not_requests_get_errors(stage: MakeStage) -> None:
    made = stage()
    lines = [
        b"\xff\xfe{}", b"{not json", b"[]", b"[" * 100_000, b'{"jsonrpc":"2.0","id":{"a":1},"method":"initialize"}',
        b'{"jsonrpc":"2.0","id":1}', b'{"jsonrpc":"2.0","id":2,"method":"no/such"}',
        b'{"jsonrpc":"2.0","id":3,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}',
        b'{"jsonrpc":"2.0","id":4,"method":"session/new","params":{"cwd":5}}',
        b'{"jsonrpc":"2.0","method":"no/such/notification"}', b"",
        b'{"jsonrpc":"2.0","id":5,"method":"initialize","params":{"protocolVersion":99}}',
        b'{"jsonrpc":"2.0","id":6,"method":"session/prompt","params":{"sessionId":"a"}}',
        b'{"jsonrpc":"2.0","id":7,"method":"session/close","params":{"sessionId":"\\ud800 half"}}',
    ]  # fmt: skip
    done = subprocess.run(
        [TREADLE, "acp"],
        input=b"\n".join(lines),
        capture_output=True,
        env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **made.environment},
        timeout=240,
        check=True,
    )
    assert done.stderr == b""
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    codes = sorted((str(each["id"]), each["error"]["code"]) for each in answers if "error" in each)
    refused = [("None", -32700), ("None", -32700), ("None", -32700), ("None", -32600), ("None", -32600)]
    known = [("1", -32600), ("2", -32601), ("3", -32600), ("4", -32602), ("6", -32602), ("7", -32002)]
    assert codes == [*known, *refused]
    by_id = {each["id"]: each for each in answers}
    assert by_id[5]["result"]["protocolVersion"] == 1
    assert "no/such" in by_id[2]["error"]["message"]
    assert "cwd" in by_id[4]["error"]["message"]
    assert "prompt" in by_id[6]["error"]["message"]


def test_nothing_but_the_protocol_is_on_standard_output(stage: MakeStage) -> None:
    made = stage()
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
    source, target = made.folder / "in", made.folder / "out"
    source.write_text(json.dumps(request) + "\n")
    with source.open() as given, target.open("w") as written:  # files, which an event loop cannot wait for
        subprocess.run(
            [TREADLE, "acp"], stdin=given, stdout=written, timeout=240, check=True,
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **made.environment},
        )  # fmt: skip
    [answer] = [json.loads(line) for line in target.read_text().splitlines()]
    assert answer["result"]["agentInfo"]["name"] == "treadle"
    log = made.home / "logs" / "acp.log"
    assert log.stat().st_mode & 0o777 == 0o600


async def test_a_home_without_a_model_says_what_to_do(tmp_path: Path) -> None:
    environment = {"TREADLE_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}

    async def work() -> None:
        async with open_editor(environment) as (editor, _):
            error = await editor.fails(editor.conn.new_session(cwd=str(tmp_path), mcp_servers=[]))
            assert error.code == -32000
            assert "Run `treadle` in a terminal" in str(error)
            error = await editor.fails(editor.conn.authenticate(method_id="setup"))
            assert "No model is set" in str(error)
            (tmp_path / "home" / "config.yaml").write_text("defaults: {model: anthropic/claude-x}\n")
            assert await editor.conn.authenticate(method_id="setup") is not None
            session = await editor.new(tmp_path)
            error = await editor.fails(editor.send(session, "hello"))
            assert error.code == -32000
            assert "ANTHROPIC_API_KEY" in str(error)

    await perform(work())


async def test_a_run_that_fails_is_an_error_with_its_reason(stage: MakeStage) -> None:
    made = stage(refuses(401, "bad key"))

    async def work() -> None:
        async with open_editor(made.environment) as (editor, _):
            session = await editor.new(made.folder)
            error = await editor.fails(editor.send(session, "hello"))
            assert error.code == -32603
            assert "401" in str(error) or "key" in str(error)

    await perform(work())


async def test_mcp_servers_of_the_editor_are_refused_with_a_message(stage: MakeStage) -> None:
    made = stage(says("Fine."))
    server = McpServerStdio(
        name="evil", command="/bin/touch", args=[str(made.folder / "started")],
        env=[EnvVariable(name="TOKEN", value="secret-value")],
    )  # fmt: skip

    async def work() -> None:
        async with open_editor(made.environment) as (editor, _):
            opened = await editor.conn.new_session(cwd=str(made.folder), mcp_servers=[server])
            await editor.send(opened.session_id, "hello")
            assert f"treadle mcp add evil -- /bin/touch {made.folder}/started" in editor.text
            assert "secret-value" not in editor.text
            assert not (made.folder / "started").exists()

    await perform(work())
