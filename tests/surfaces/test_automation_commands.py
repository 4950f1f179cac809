"""`treadle schedules`, `hooks` and `webhooks`, with and without a server that owns the home."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from standardwebhooks import Webhook

from tests.automation.receiver import receiver
from tests.automation.served import signed
from tests.fake_endpoint import FakeEndpoint, says
from tests.patience import HANG_SECONDS, until
from tests.surfaces.shell import Shell


@asynccontextmanager
async def serving(shell: Shell) -> AsyncGenerator[str, None]:
    """Start `treadle serve`, and yield its address."""
    process = shell.start("serve", "--port", "0", "--json")
    assert process.stdout is not None
    try:
        async with asyncio.timeout(HANG_SECONDS):
            yield json.loads(await asyncio.to_thread(process.stdout.readline))["url"]
    finally:
        process.terminate()
        await asyncio.to_thread(process.communicate, None, HANG_SECONDS)


async def test_schedules_are_kept_without_a_server(shell: Shell) -> None:
    shell.configure()
    assert "No schedules yet" in (await shell("schedules", "list")).err
    [made] = (await shell("schedules", "add", "0 9 * * 1-5", "Good morning", "--zone", "Asia/Tokyo", "--json")).json
    assert (await shell("schedules", "add", "15m", "look", "--session", "mine")).code == 0
    listed = (await shell("schedules", "list", "--json")).json
    assert [each["every"] for each in listed] == ["0 9 * * 1-5", "15m"]
    assert "Asia/Tokyo" in (await shell("schedules", "list")).out
    coming = (await shell("schedules", "next", "-n", "5", "--json")).json
    assert len(coming) == 5
    assert [each["at"] for each in coming] == sorted(each["at"] for each in coming)
    assert (await shell("schedules", "pause", made["schedule_id"])).code == 0
    assert (await shell("schedules", "list", "--json")).json[0]["paused"] is True
    assert (await shell("schedules", "resume", made["schedule_id"])).code == 0
    assert (await shell("schedules", "remove", made["schedule_id"])).code == 0
    assert len((await shell("schedules", "list", "--json")).json) == 1
    no_unit = await shell("schedules", "add", "15", "look")
    assert (no_unit.code, "`15` has no unit: write 15s" in no_unit.complaint) == (2, True)
    wrong = await shell("schedules", "add", "@daily", "look")
    assert wrong.code == 2
    assert "accepted: a time such as 15m, or a cron expression" in wrong.complaint
    unknown = await shell("schedules", "add", "60s", "look", "-a", "nobody")
    assert unknown.code == 2
    assert "No agent is called `nobody`" in unknown.complaint


async def test_the_server_fires_schedules_and_heartbeats_and_commands_attach_to_it(shell: Shell) -> None:
    async with FakeEndpoint(policy=lambda _: says("done")) as model:
        shell.url = model.url
        shell.configure()
        agent = "name: beating\nmodel: fake/m\nheartbeat: {every: 1, message: 'are you there?'}\n"
        shell.write("agents/beating/config.yaml", agent)
        async with serving(shell):
            [made] = (await shell("schedules", "add", "1s", "by the clock", "--json")).json

            def asked() -> set[str]:
                sent = [request.json["messages"][-1]["content"] for request in model.requests]
                return {text.rpartition("\n")[2] for text in sent}

            await until(lambda: {"by the clock", "are you there?"} <= asked())
            listed = {each["schedule_id"]: each for each in (await shell("schedules", "list", "--json")).json}
            assert listed[made["schedule_id"]]["run_id"] is not None
            assert listed["heartbeat-beating"]["is_heartbeat"] is True
            refused = await shell("schedules", "remove", "heartbeat-beating")
            assert "is defined in the file of the agent `beating`" in refused.complaint
            assert (await shell("schedules", "pause", "heartbeat-beating")).code == 0
            assert (await shell("schedules", "remove", made["schedule_id"])).code == 0
            unknown = await shell("schedules", "remove", made["schedule_id"])
            assert unknown.code == 2
            assert "There is no schedule" in unknown.complaint


async def _send(url: str, body: bytes, headers: dict[str, str]) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.post(url, data=body, headers=headers) as response:
        return response.status, await response.json(content_type=None)


@pytest.mark.parametrize("attached", [False, True], ids=["before the server", "through the server"])
async def test_a_run_of_an_inbound_webhook_is_sent_to_a_webhook(shell: Shell, attached: bool) -> None:
    async with FakeEndpoint(says("seen")) as model, receiver() as other:
        shell.url = model.url
        shell.configure()
        config = shell.home / "config.yaml"
        assert "allow_local" in (await shell("webhooks", "add", other.url)).err
        config.write_text(config.read_text().removesuffix("}") + ", webhooks: {allow_local: true}}")

        async def made() -> tuple[Any, Any]:
            text = ("--message", "issue {{payload.n}}", "--session", "issue-{{payload.n}}")
            hook = await shell("hooks", "add", "tracker", *text, "--json")
            webhook = await shell("webhooks", "add", other.url, "-e", "run_end", "--json")
            return hook.json[0], webhook.json[0]

        before = None if attached else await made()
        async with serving(shell) as url:
            hook, webhook = before or await made()
            assert hook["secret"] not in (await shell("hooks", "list", "--json")).out
            headers = signed(hook["secret"], "msg_1", b'{"n": 7}', time.time())
            status, ticket = await _send(url + hook["path"], b'{"n": 7}', headers)
            assert status == 202, ticket
            assert (await _send(url + hook["path"], b'{"n": 7}', headers))[0] == 202
            [received] = await other.until(1)
            sent = Webhook(webhook["secret"]).verify(received.body, received.headers)
            assert (sent["type"], sent["run_id"]) == ("run_end", ticket["run_id"])
            assert model.requests[0].json["messages"][-1]["content"] == "issue 7"
            assert (await shell("hooks", "rotate", hook["hook_id"])).out.startswith("whsec_")
            later = signed(hook["secret"], "msg_2", b"{}", time.time())
            assert (await _send(url + hook["path"], b"{}", later))[0] == 401
            assert (await shell("hooks", "remove", hook["hook_id"])).code == 0
            assert "has no undeliverable events" in (await shell("webhooks", "dead", webhook["webhook_id"])).err
            assert (await shell("webhooks", "retry", webhook["webhook_id"])).code == 0
            assert "delivered" in (await shell("webhooks", "list")).out
            assert (await shell("webhooks", "remove", webhook["webhook_id"])).code == 0
        assert "No inbound webhooks yet" in (await shell("hooks", "list")).err
        assert "No webhooks yet" in (await shell("webhooks", "list")).err


async def test_invalid_arguments_are_reported_in_one_line(shell: Shell) -> None:
    shell.configure()
    for arguments, told in (
        (("hooks", "add", "x", "--message", "{{code()}}"), "not a valid placeholder"),
        (("hooks", "remove", "hok_none"), "There is no inbound webhook hok_none"),
        (("hooks", "rotate", "hok_none"), "treadle hooks list"),
        (("webhooks", "add", "ftp://x"), "cannot be sent to"),
        (("webhooks", "add", "http://x", "-e", "token"), "No stored event is called token"),
        (("webhooks", "add", "http://x", "-a", "nobody"), "No agent is called `nobody`"),
        (("webhooks", "dead", "whk_none"), "There is no webhook whk_none"),
        (("webhooks", "retry", "whk_none"), "There is no webhook whk_none"),
    ):
        done = await shell(*arguments)
        assert done.code == 2, arguments
        assert told in done.complaint
