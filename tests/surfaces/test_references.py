"""Commands take a unique beginning of an id, `last`, or a name."""

from typing import Any

import pytest

from tests.fake_endpoint import FakeEndpoint, says
from tests.surfaces.shell import Shell
from tests.surfaces.terminal import against
from treadle.domain.errors import UsageError
from treadle.surfaces.home_access.references import find_listed

OLD, NEW = f"whk_{'1' * 12}{'0' * 20}", f"whk_{'12' * 6}{'0' * 20}"


def test_an_id_is_found_by_its_beginning_and_by_its_age() -> None:
    def find(reference: str) -> str:
        return find_listed(reference, "whk", [NEW, OLD], "webhook", "webhooks")

    assert (find(OLD), find("whk_1111"), find("1212"), find("last")) == (OLD, OLD, NEW, NEW)
    assert find("whk_none") == "whk_none", "the operation reports it"
    with pytest.raises(UsageError, match="`1111` matches several things: "):
        find_listed("1111", "whk", [OLD, f"{OLD[:-1]}1"], "thing", "things")
    with pytest.raises(UsageError, match="There are no webhooks yet"):
        find_listed("last", "whk", [], "webhook", "webhooks")
    with pytest.raises(UsageError, match="The name of the webhook is empty"):
        find(" ")


def test_a_session_with_a_chosen_id_is_found_by_its_beginning(shell: Shell) -> None:
    shell.configure()

    @against(shell, says("Hello."))
    async def _(server: FakeEndpoint) -> None:
        assert (await shell("run", "--session", "mychat", "Say hello.")).code == 0
        assert (await shell("sessions", "show", "mych", "--json")).json[0]["session_id"] == "mychat"
        short = await shell("runs", "show", "01a")
        assert "`01a` is too short for an id. Type at least 4 digits." in short.complaint


async def test_schedules_webhooks_tokens_and_memories_have_short_names(shell: Shell) -> None:
    async def one(*words: str) -> Any:
        done = await shell(*words, "--json")
        assert done.code == 0, done.err
        return done.json[0]

    shell.configure()
    schedule = await one("schedules", "add", "15m", "Look.")
    short = schedule["schedule_id"][:16]
    assert short in (await shell("schedules", "list")).out
    assert schedule["schedule_id"] not in (await shell("schedules", "list")).out
    assert (await one("schedules", "pause", short))["paused"]
    assert not (await one("schedules", "resume", "last"))["paused"]
    assert (await one("schedules", "remove", short))["schedule_id"] == schedule["schedule_id"]

    hook = await one("hooks", "add", "tracker")
    assert hook["hook_id"] not in (await shell("hooks", "list")).out
    assert (await one("hooks", "rotate", "tracker"))["hook_id"] == hook["hook_id"]
    assert (await one("hooks", "remove", hook["hook_id"][4:16]))["hook_id"] == hook["hook_id"]

    webhook = await one("webhooks", "add", "https://hooks.example.com/x")
    assert webhook["webhook_id"] not in (await shell("webhooks", "list")).out
    assert (await shell("webhooks", "dead", "last")).code == 0
    assert (await one("webhooks", "retry", webhook["webhook_id"][:16]))["events"] == 0
    assert (await one("webhooks", "remove", "last"))["webhook_id"] == webhook["webhook_id"]

    token = await one("tokens", "create", "laptop")
    assert (await one("tokens", "revoke", "last"))["token_id"] == token["token_id"]

    memory = await one("memory", "add", "The release is on Friday.")
    assert (await one("memory", "pin", "last"))["memories"] == [memory["memory_id"]]
    assert (await one("memory", "forget", memory["memory_id"][:16]))["forgotten"] == [memory["memory_id"]]
