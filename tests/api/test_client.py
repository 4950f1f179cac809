"""The clients of the HTTP API, against a real server."""

import asyncio
from inspect import signature
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import encode

import treadle
from tests.fake_endpoint import FakeEndpoint, says
from tests.patience import HANG_SECONDS
from tests.surfaces.http.process import Serving
from tests.surfaces.http.served_home import serve_home, wants_a_file, write_home
from tests.surfaces.shell import Shell
from treadle.api.run_methods import RunMethods
from treadle.domain.errors import UnknownRun, UsageError
from treadle.domain.events import Token
from treadle.operations import sessions
from treadle.operations.requested_run import Overrides


async def test_an_async_client_runs_streams_and_lists(tmp_path: Path) -> None:
    async with (
        serve_home(tmp_path, *map(says, ("One.", "Two.", "Three.", "Four."))) as web,
        treadle.AsyncClient(web.url, token=web.token) as client,
    ):
        result = await client.run("one", "First?", key="k")
        assert (result.outcome, result.text) == ("completed", "One.")
        assert await client.submit("one", "First?", key="k") == result.run_id
        events = [event async for event in client.stream("one", "Second?", session=result.session_id)]
        assert "".join(event.data.text for event in events if isinstance(event.data, Token)) == "Two."
        assert events[-1].type == "run_end"
        third = await client.run("one", "Third?", resumed_from=result.run_id, after_current=True)
        assert (third.session_id, third.text) == (result.session_id, "Three.")

        def work() -> treadle.Result:
            with treadle.Client(web.url, token=web.token) as sync:
                return sync.run("one", "Fourth?", resumed_from=result.run_id, after_current=True)

        assert (await asyncio.to_thread(work)).session_id == result.session_id
        assert len(await client.list_runs(session=result.session_id)) == 4
        assert [each.runs for each in await client.list_sessions()] == [4]
        renamed = await client.call(sessions.RENAME, sessions.RenameSession(result.session_id, "Chat"))
        assert renamed.title == "Chat"
        with pytest.raises(UnknownRun):
            await client.show("run_none")


async def test_a_sync_client_decides_an_approval_and_sees_a_denied_call(tmp_path: Path) -> None:
    async with serve_home(tmp_path, wants_a_file(), says("I did not.")) as web:

        def work() -> treadle.Result:
            with treadle.Client(web.url, token=web.token) as client:
                run_id = client.submit("asking", "Write it.")
                for event in client.events(run_id):
                    if event.type == "approval_requested":
                        [waiting] = client.list_approvals(run_id)
                        client.decide(waiting.approval_id, "deny", note="Not today.")
                return client.wait(run_id)

        result = await asyncio.to_thread(work)
        assert (result.outcome, result.text) == ("completed", "I did not.")
        here = await web.engine.wait(result.run_id)
        assert [(call.tool, "Not today." in call.reason) for call in here.denied] == [("write_file", True)]
        assert (result.denied, result.blocked) == (here.denied, here.blocked) == (here.denied, ())


async def test_a_stream_resumes_after_the_server_was_killed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeEndpoint(policy=lambda _: says("Done.")) as endpoint:
            write_home(tmp_path / "home", endpoint.url)
            serving = Serving(Shell(tmp_path / "home"))
            await asyncio.to_thread(serving.start)
            async with treadle.AsyncClient(serving.url, token=serving.token, retry_seconds=HANG_SECONDS) as client:
                first = await client.submit("asking", "Wait for me.", session="ses_first")
                seen = [event.sequence async for event in client.events(first) if event.durable]
                serving.kill()
                resumed = asyncio.create_task(collect(client, first))
                await asyncio.to_thread(serving.start)
                assert await resumed == seen == sorted(set(seen))
                assert (await client.wait(first)).text == "Done."
            serving.stop()

    async def collect(client: treadle.AsyncClient, run_id: str) -> list[int]:
        return [event.sequence async for event in client.events(run_id) if event.durable]

    await scenario()


def test_a_client_that_is_not_open_says_how_to_open_it() -> None:
    client = treadle.Client("http://127.0.0.1:1")
    with pytest.raises(UsageError, match=r"with treadle\.Client"):
        client.show("run_1")
    with pytest.raises(UsageError, match=r"with treadle\.Client"):
        next(iter(client.events("run_1")))


def test_a_program_moves_to_a_server_by_changing_one_line() -> None:
    """The methods for reading and acting have one definition. Those that start runs take the same names."""
    here, there, sync = treadle.Engine, treadle.AsyncClient, treadle.Client
    shared = {name for name, found in vars(RunMethods).items() if not name.startswith("_") and callable(found)}
    assert len(shared) > 15
    assert {name for name in shared - {"call"} if getattr(here, name) is not getattr(there, name)} == set()
    for name in shared:
        parameters = list(signature(getattr(RunMethods, name)).parameters.values())
        assert list(signature(getattr(sync, name)).parameters.values()) == parameters, name
    for name in ("submit", "run", "stream", "stream_text", "stream_output", "wait", "events", "fork"):
        assert hasattr(here, name), name
        assert hasattr(there, name), name
        assert hasattr(sync, name), name


async def test_an_engine_and_a_client_read_the_same(tmp_path: Path) -> None:
    async with (
        serve_home(tmp_path, says("One."), wants_a_file(), says("I did not.")) as web,
        treadle.AsyncClient(web.url, token=web.token) as client,
    ):
        stream = client.stream_text("one", "First?")
        assert "".join([text async for text in stream]) == "One."
        waiting = await client.run("asking", "Write it.")
        assert (waiting.status, [each.tool for each in waiting.approvals]) == ("waiting", ["write_file"])
        assert waiting == await web.engine.wait(waiting.run_id)
        await client.decide(waiting.approvals[0].approval_id, False)
        result = await client.wait(waiting.run_id)
        for read in (
            methodcaller("show", result.run_id),
            methodcaller("list_runs", agent="asking"),
            methodcaller("list_sessions"),
            methodcaller("show_session", result.session_id),
            methodcaller("steps", result.run_id),
            methodcaller("transcript", result.run_id),
            methodcaller("messages", result.session_id),
            methodcaller("usage", by="model"),
            methodcaller("replay", result.run_id),
            methodcaller("compare", result.run_id, stream.run_id),
            methodcaller("list_approvals"),
            methodcaller("list_questions", result.run_id),
        ):
            assert encode(await read(client)) == encode(await read(web.engine)), read


async def test_clients_stream_the_answer_of_an_agent_with_an_output(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
    wanted = Overrides(output=schema)
    answer = says('{"title": "Looms"}')
    async with (
        serve_home(tmp_path, answer, answer, says("Looms.")) as web,
        treadle.AsyncClient(web.url, token=web.token) as client,
    ):
        stream = client.stream_output("one", "First?", overrides=wanted)
        assert [value async for value in stream][-1] == {"title": "Looms"}
        assert stream.result.outcome == "completed"

        def work() -> list[Any]:
            with treadle.Client(web.url, token=web.token) as sync:
                return list(sync.stream_output("one", "Second?", overrides=wanted))

        assert (await asyncio.to_thread(work))[-1] == {"title": "Looms"}
        assert [value async for value in client.stream_output("one", "Third?")] == []
