"""Forks over HTTP: who may make one, of what, and once for a key."""

from pathlib import Path

import msgspec
import pytest

from tests.surfaces.http.served_home import ServedHome, serve_home
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import UsageError
from treadle.domain.events import RunForked, RunQueued
from treadle.domain.ids import RunId, SessionId
from treadle.domain.messages import user
from treadle.domain.quotas import Quotas
from treadle.operations.forks import Fork
from treadle.operations.local_admin import FORK, ForkWhole
from treadle.operations.operation import LocalCaller
from treadle.operations.replays import REPLAY, ReplayRun
from treadle.operations.run_diff import diff
from treadle.operations.runs import SHOW, ShowRun
from treadle.operations.submissions import Submission
from treadle.remote.caller import RemoteCaller
from treadle.remote.connection import Address, Connection


async def run_to_end(web: ServedHome, agent: str = "one", **body: object) -> str:
    run_id = await web.begin(agent, **body)
    await web.until(run_id, "completed")
    return run_id


async def find_queued(web: ServedHome, run_id: str) -> RunQueued:
    [first] = await web.engine.service.page(RunId(run_id), 0, 1)
    assert isinstance(first.data, RunQueued)
    return first.data


async def test_a_fork_is_a_separate_run(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as web:
        old = await run_to_end(web)
        reply = await web.ask("POST", f"/v1/runs/{old}/fork", {"message": "Other.", "model": "fake/n"})
        assert reply.status == 202, reply
        assert reply.json["status"] == "pending"
        found = await web.until(reply.json["run_id"], "completed")
        assert found["session_id"] != (await web.ask("GET", f"/v1/runs/{old}")).json["session_id"]
        sent = web.endpoint.requests[-1].json
        assert (sent["model"], sent["messages"][-1]["content"]) == ("n", "Other.")
        plain = await web.ask("POST", f"/v1/runs/{old}/fork")
        assert plain.status == 202
        other = await web.ask("POST", f"/v1/runs/{old}/fork", {"step": 1, "agent": "two"})
        assert (await web.until(other.json["run_id"], "completed"))["agent"] == "two"
        assert web.endpoint.requests[-1].json["messages"][-1]["content"] == "Go."


async def test_the_same_key_makes_one_fork(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as web:
        old = await run_to_end(web)
        path, body = f"/v1/runs/{old}/fork", {"step": 1}
        one, two = [await web.ask("POST", path, body, Idempotency_Key="k") for _ in range(2)]
        assert one.json == two.json
        assert (await web.ask("POST", path, {}, Idempotency_Key="k")).status == 422
        assert len((await web.ask("GET", "/v1/runs")).json["items"]) == 2


async def test_an_invalid_fork_returns_a_problem(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as web:
        old = await run_to_end(web)
        path = f"/v1/runs/{old}/fork"
        wrong: tuple[object, ...] = (
            {"step": 0}, {"step": "one"}, {"message": ""}, {"model": ""}, {"unknown": 1}, "text", b"{",
        )  # fmt: skip
        for body in wrong:
            assert (await web.ask("POST", path, body)).status == 400, body
        assert (await web.ask("POST", path, {"step": 9})).problem == "UsageError"
        assert (await web.ask("POST", path, {"model": "nobody/there"})).problem == "UnknownModel"
        assert (await web.ask("POST", path, {"agent": "nobody"})).problem == "UnknownAgent"
        assert (await web.ask("POST", "/v1/runs/run_x/fork", {})).status == 404
        session = (await web.ask("GET", f"/v1/runs/{old}")).json["session_id"]
        command = await run_to_end(web, message="/pin this", session_id=session)
        assert (await web.ask("POST", f"/v1/runs/{command}/fork", {})).status == 409
        assert (await web.ask("POST", path, {"message": "x" * 128_001})).status == 413
        runs = (await web.ask("GET", "/v1/runs")).json["items"]
        assert len(runs) == 2, "nothing came of it"


async def test_a_token_forks_only_visible_runs(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as web:
        one, two = await run_to_end(web), await run_to_end(web, "two")
        session = (await web.ask("GET", f"/v1/runs/{two}")).json["session_id"]
        mixed = await run_to_end(web, "one", session_id=session)
        reader = await web.mint("read")
        limited = await web.mint("read", "run", agents=["one"])
        assert (await web.ask("POST", f"/v1/runs/{one}/fork", {}, reader)).status == 403
        assert (await web.ask("POST", f"/v1/runs/{one}/fork", {}, "")).status == 401
        assert (await web.ask("POST", f"/v1/runs/{one}/fork", {}, limited)).status == 202
        assert (await web.ask("POST", f"/v1/runs/{two}/fork", {}, limited)).problem == "UnknownRun"
        assert (await web.ask("POST", f"/v1/runs/{mixed}/fork", {}, limited)).problem == "UnknownRun"
        assert (await web.ask("POST", f"/v1/runs/{one}/fork", {"agent": "two"}, limited)).status == 404
        assert (await web.ask("POST", f"/v1/runs/{mixed}/fork", {})).status == 202


async def test_a_token_does_not_get_more_than_the_agent_has_today(tmp_path: Path) -> None:
    """The owner ran the agent in their own folder, with a tool that the agent does not have."""

    async with serve_home(tmp_path) as web:
        folder = tmp_path / "mine"
        folder.mkdir()
        more = msgspec.structs.replace(web.home.agent("one"), workspace=str(folder), tools=("write_file",))
        ticket = await web.engine.service.submit(Submission(more, user("Go."), SessionId("ses_mine")))
        await web.until(ticket.run_id, "completed")
        path = f"/v1/runs/{ticket.run_id}/fork"
        token = await web.mint("read", "run")
        by_token = (await web.ask("POST", path, {}, token)).json["run_id"]
        by_admin = (await web.ask("POST", path, {})).json["run_id"]
        await web.until(by_token, "completed")
        again = (await web.ask("POST", f"/v1/runs/{by_token}/fork", {}, token)).json["run_id"]
        spec: AgentSpec = (await find_queued(web, by_token)).agent
        assert (spec.workspace, spec.tools) == (None, ())
        assert (await find_queued(web, by_admin)).agent == more
        assert (await find_queued(web, again)).agent == spec
        assert (await find_queued(web, by_token)).token is not None
        for run_id in (by_token, by_admin, again):
            await web.until(run_id, "completed")
            events = await web.engine.service.page(RunId(run_id))
            assert any(isinstance(event.data, RunForked) for event in events)


async def test_the_quota_of_a_token_applies_to_its_forks(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as web:
        old = await run_to_end(web)
        token = await web.mint("read", "run", quotas=Quotas(max_llm_tokens_per_hour=1))
        reply = await web.ask("POST", f"/v1/runs/{old}/fork", {}, token)
        fork = await web.until(reply.json["run_id"], "failed")
        assert fork["outcome"] == "quota_exceeded"


async def test_a_run_is_replayed_for_tokens_that_may_see_it(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as web:
        one, two = await run_to_end(web), await run_to_end(web, "two")
        limited = await web.mint("read", agents=["one"])
        found = await web.ask("GET", f"/v1/runs/{one}/replay", token=limited)
        assert found.status == 200, found
        assert (found.json["divergence"], found.json["cannot"]) == (None, "")
        assert found.json["same"] == found.json["events"]
        assert (await web.ask("GET", f"/v1/runs/{two}/replay", token=limited)).problem == "UnknownRun"
        assert (await web.ask("GET", "/v1/runs/run_x/replay")).status == 404
        assert (await web.ask("GET", f"/v1/runs/{one}/replay", token="")).status == 401


async def test_a_remote_service_forks_and_replays_like_a_local_one(tmp_path: Path) -> None:
    """What a service does over a connection, it does as it would here."""

    async with serve_home(tmp_path) as web:
        old = RunId(await run_to_end(web))
        async with Connection(Address(url=web.url, token=web.token)) as connection:
            caller = RemoteCaller(connection)
            ticket = await caller.call(FORK, ForkWhole(Fork(old, message="Other.", asker="terminal")))
            await caller.call(SHOW, ShowRun(ticket.run_id, wait=60))
            assert (await find_queued(web, ticket.run_id)).asker == "terminal"
            assert await caller.call(REPLAY, ReplayRun(old)) == await web.engine.service.replay(old)
            found = await diff(caller, old, ticket.run_id)
            assert found == await diff(LocalCaller(web.engine.context), old, ticket.run_id)
            assert (found.a.message, found.b.message) == ("Go.", "Other.")
            with pytest.raises(UsageError, match="its steps are 1 to 1"):
                await caller.call(FORK, ForkWhole(Fork(old, 9)))
