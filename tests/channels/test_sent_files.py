"""Files that agents send: in answers, and with `send_message`, within the agent's rights and the limits."""

from pathlib import Path
from typing import Any

from tests.channels.fake_slack import APP_TOKEN, TOKEN, FakeSlack, serve_fake_slack
from tests.channels.home import AGENT, Chat, chatting, write_home
from tests.channels.test_sending import RECIPIENTS
from tests.channels.test_slack import ANNA as SLACK_ANNA
from tests.channels.test_telegram import ANNA
from tests.engine.running import opened
from treadle.channels.answer_files import collect_files
from treadle.domain.agents import AgentSpec
from treadle.domain.events import ToolCallEnd, ToolCallError
from treadle.domain.messages import user
from treadle.operations.submissions import Submission
from treadle.ports.channel import FileRefused, OutgoingFile
from treadle.testing.channels import PNG
from treadle.testing.models import FunctionModel, ScriptedModel, ask, call, say

READER = AGENT + "tools: [read_file, send_message]\n"


def fill_workspace(folder: Path) -> None:
    workspace = folder / "home" / "workspaces" / "hero"
    workspace.mkdir(parents=True)
    (workspace / "chart.png").write_bytes(PNG)
    (workspace / "my report.pdf").write_bytes(b"%PDF-1.7")
    (workspace / "big.bin").write_bytes(b"x" * 2000)
    (workspace / ".env").write_text("PASSWORD=hunter2")
    (folder / "outside.txt").write_text("outside")
    (workspace / "link.txt").symlink_to(folder / "outside.txt")
    (workspace / "leak.txt").write_text("the token is 7000000001:AAfake-token-of-the-fake-server")


def list_sent_files(chat: Chat) -> list[tuple[str, bytes]]:
    return [(each["text"], each["data"]) for each in chat.fake.sent if "data" in each]


async def test_an_answer_sends_the_files_that_it_shows(tmp_path: Path) -> None:
    answer = "Here: ![the chart](chart.png) and ![](my%20report.pdf). In code: `![x](chart.png)`"
    async with chatting(tmp_path, ScriptedModel(say(answer)), agent=READER) as chat:
        fill_workspace(tmp_path)
        await chat.admit(ANNA)
        await chat.fake.write(ANNA, "draw")
        await chat.fake.wait_for(lambda: len(list_sent_files(chat)) == 2)
        assert chat.fake.texts(ANNA) == [
            "Here: the chart and my report.pdf. In code: ![x](chart.png)",
            "[photo chart.png]",
            "[document my report.pdf]",
        ]
        assert [data for _, data in list_sent_files(chat)] == [PNG, b"%PDF-1.7"]


async def test_an_answer_sends_nothing_that_the_agent_may_not_read(tmp_path: Path) -> None:
    names = (".env", "link.txt", "../config.yaml", "/etc/passwd", "leak.txt", "missing.png", "big.bin")
    answer = "\n".join(f"![{name}]({name})" for name in names) + "\n![web](https://example.com/x.png)"
    limits = {"sent_file_bytes": 1000}
    async with chatting(tmp_path, ScriptedModel(say(answer)), agent=READER, limits=limits) as chat:
        fill_workspace(tmp_path)
        await chat.admit(ANNA)
        await chat.fake.write(ANNA, "leak")
        [text] = await chat.fake.wait_for(lambda: [each for each in chat.fake.texts(ANNA) if "(not sent" in each])
        assert text.count("(not sent: ") == len(names)
        assert "it has more than 1000 bytes" in text
        assert "it contains the value of a secret" in text
        assert list_sent_files(chat) == []


async def test_an_agent_without_file_tools_sends_no_files(tmp_path: Path) -> None:
    for agent in (AGENT, READER + "approvals: {default: ask}\n"):
        folder = tmp_path / str(len(agent))
        async with chatting(folder, ScriptedModel(say("![c](chart.png)")), agent=agent) as chat:
            fill_workspace(folder)
            await chat.admit(ANNA)
            await chat.fake.write(ANNA, "draw")
            await chat.says(ANNA, "c (not sent: the agent may not read it without an approval)")
            assert list_sent_files(chat) == []


async def test_a_failed_upload_does_not_repeat_the_message(tmp_path: Path) -> None:
    busy = {"error_code": 429, "description": "Too Many Requests", "parameters": {"retry_after": 0.1}}
    async with chatting(
        tmp_path, ScriptedModel(say("![a](chart.png) ![b](my%20report.pdf)")), agent=READER
    ) as chat:
        fill_workspace(tmp_path)
        await chat.admit(ANNA)
        chat.fake.errors["sendDocument"] = [busy]
        chat.fake.errors["sendPhoto"] = [
            {"error_code": 400, "description": "Bad Request: PHOTO_INVALID_DIMENSIONS"}
        ] * 2
        await chat.fake.write(ANNA, "draw")
        await chat.fake.wait_for(lambda: len(list_sent_files(chat)) == 2)
        assert chat.fake.texts(ANNA) == ["a b", "[document chart.png]", "[document my report.pdf]"]


async def test_send_message_sends_files(tmp_path: Path) -> None:
    model = ScriptedModel(
        ask(call("send_message", to="telegram:anna", text="secret", files=[".env"])),
        ask(call("send_message", to="telegram:anna", text="look", files=["chart.png"])),
        say("sent"),
    )
    recipients = {"anna": {**RECIPIENTS["anna"], "approval": "auto"}}
    async with chatting(tmp_path, model, agent=READER, recipients=recipients) as chat:
        fill_workspace(tmp_path)
        service = chat.engine.context.service
        spec = chat.engine.context.agents.find("hero")
        ticket = await service.submit(Submission(spec, user("send it")))
        ended = [each.data async for each in service.events(ticket.run_id)]
        assert len([each for each in ended if isinstance(each, ToolCallEnd | ToolCallError)]) == 2
        await chat.fake.wait_for(lambda: list_sent_files(chat))
        assert chat.fake.texts(ANNA) == ["look", "[photo chart.png]"]


async def test_slack_gets_files_after_the_answer(tmp_path: Path) -> None:
    fake = FakeSlack()
    async with serve_fake_slack(fake):
        settings = {"token": "{{vault:BOT}}", "app_token": "{{vault:APP}}", "url": fake.url}
        channels = {"slack": {"agent": "hero", "settings": settings}}
        write_home(tmp_path, channels, {"BOT": TOKEN, "APP": APP_TOKEN}, READER)
        fill_workspace(tmp_path)
        async with opened(tmp_path, FunctionModel(lambda _: say("see ![chart](chart.png)"))) as engine:
            manager: Any = engine.context.channels()
            await manager.store.save_person(SLACK_ANNA)
            async with manager.run_in_background():
                await fake.write("UANNA", "draw")
                await fake.wait_for(lambda: len(fake.sent) == 2)
        assert [each["text"] for each in fake.sent] == ["see chart", "[file chart.png]"]
        assert [each["data"] for each in fake.files.values()] == [PNG]


class EveryFile:
    """A source that has each file."""

    def judge(self, agent: AgentSpec, path: str) -> Any:
        return "auto"

    async def read(self, agent: AgentSpec, path: str, max_bytes: int) -> OutgoingFile:
        if path == "bad":
            raise FileRefused("no")
        return OutgoingFile(path, "text/plain", b"x")


async def test_a_few_files_named_outside_of_code_are_sent() -> None:
    text = '```\n![a](a)\n```\n![b](b) ![c](<c d> "t") ![bad](bad) ![](e) ~ ![x](data:image/png;base64,x) ![f](f)'
    found, files = await collect_files(text, AgentSpec("hero"), EveryFile(), 3, 10)
    assert [file.name for file in files] == ["b", "c d", "e"]
    assert "![a](a)" in found
    assert "bad (not sent: no)" in found
    assert "f (not sent: an answer may have 3 files)" in found
    assert "![x](data:" in found
