"""`treadle serve --processes 2` on a real PostgreSQL: requests reach different processes, which end, are killed and
are replaced meanwhile."""

import asyncio
import json
import random
import signal
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path

import aiohttp
import pytest
from bench.chaos import checks, model
from bench.chaos.clients import open_clients
from bench.chaos.cluster import TREADLE, Cluster, open_cluster

from tests.fake_endpoint import DONE, PAUSE, Answer, FakeEndpoint, Request, delta, says
from tests.patience import HANG_SECONDS, until
from tests.stores.postgres.servers import shared
from tests.surfaces.http.sse import Wire
from tests.surfaces.server.process_group import ServedGroup, is_alive, serve_group

RUN = "/v1/agents/default/runs"


@pytest.fixture
def url(testrun_uid: str) -> Generator[str]:
    with shared(testrun_uid).one() as found:
        yield found


def answer_all(_: Request) -> Answer:
    return says("Hello.")


def run_with(
    url: str, home: Path, scenario: Callable[[ServedGroup, FakeEndpoint], Awaitable[None]], *options: str
) -> None:
    async def run() -> None:
        async with (
            FakeEndpoint(policy=answer_all) as endpoint,
            serve_group(home, url, endpoint.url, *options) as group,
        ):
            await scenario(group, endpoint)

    asyncio.run(run())


# ── What the processes have in common ──


async def check_system(group: ServedGroup) -> None:
    answering = {reply.json["process_id"] for reply in await group.ask_both("GET", "/v1/system")}
    listed = await group.processes()
    assert answering == {each["process_id"] for each in listed}
    assert [(each["number"], each["state"], each["restarts"]) for each in listed] == [
        (1, "ready", 0),
        (2, "ready", 0),
    ]
    assert {reply.json["processes"] for reply in await group.ask_both("GET", "/healthz")} == {2}
    assert "version 0.1.0, 2 processes are ready" in await group.run("doctor", "--timeout", "10")
    reader = (await group.ask("POST", "/v1/tokens", {"name": "reader", "scopes": ["read"]})).json["token"]
    assert (await group.ask("GET", "/v1/system", token=reader)).json["processes"] == []


async def check_metrics(group: ServedGroup) -> None:
    """Every page has the figures of both processes, and the sum is right, whichever process answers."""
    for reply in await group.ask_both("GET", "/metrics"):
        lines = reply.body.decode().splitlines()
        runs = [line for line in lines if line.startswith("treadle_runs_queued_total{")]
        assert sum(float(line.rpartition(" ")[2]) for line in runs) == 1.0, runs
        for number in "12":
            assert f'process_cpu_seconds_total{{process="{number}"}}' in reply.body.decode()
        assert len([line for line in lines if line.startswith("# TYPE treadle_runs_total")]) == 1
    alone = (await group.ask("GET", "/metrics?alone=true")).body.decode()
    assert "process=" not in alone


async def check_idempotency(group: ServedGroup) -> None:
    replies = await group.ask_both("POST", RUN, {"message": "hi"}, Idempotency_Key="same")
    assert len({reply.json["run_id"] for reply in replies}) == 1
    ended = await group.ask("GET", f"/v1/runs/{replies[0].json['run_id']}?wait=30")
    assert ended.json["outcome"] == "completed"
    created = await group.ask_both("POST", "/v1/tokens", {"name": "once", "scopes": ["read"]}, Idempotency_Key="t")
    assert sorted(reply.status for reply in created) == [201] + [409] * 23
    tokens = (await group.ask("GET", "/v1/tokens")).json["items"]
    assert [token["name"] for token in tokens].count("once") == 1


async def check_revocation(group: ServedGroup) -> None:
    """A revoked token is refused by both processes at once, although both have just accepted it."""
    made = (await group.ask("POST", "/v1/tokens", {"name": "short", "scopes": ["read"]})).json
    token, token_id = made["token"], made["token_id"]
    assert {reply.status for reply in await group.ask_both("GET", "/v1/runs", token=token)} == {200}
    assert (await group.ask("DELETE", f"/v1/tokens/{token_id}")).status in (200, 204)
    assert {reply.status for reply in await group.ask_both("GET", "/v1/runs", token=token)} == {401}


async def check_sign_in(group: ServedGroup) -> None:
    """A sign-in counts for both processes, and so does its end."""
    origin = {"Origin": group.url, "Sec_Fetch_Site": "same-origin", "X_Treadle": "dashboard"}
    begun = await group.ask("POST", "/v1/dashboard/sign-in", {"token": group.token}, token="", **origin)
    assert begun.status < 300, begun
    cookie = begun.headers["Set-Cookie"].partition(";")[0]
    signed = {"token": "", "Cookie": cookie, **origin}
    assert {reply.status for reply in await group.ask_both("GET", "/v1/runs", **signed)} == {200}
    assert (await group.ask("DELETE", "/v1/dashboard/sign-in", **signed)).status < 300
    assert {reply.status for reply in await group.ask_both("GET", "/v1/runs", **signed)} == {401}


async def check_failed_sign_ins(group: ServedGroup) -> None:
    """Both processes together accept ten wrong attempts in a minute."""
    origin = {"Origin": group.url, "Sec_Fetch_Site": "same-origin", "X_Treadle": "dashboard"}
    statuses = [
        (await group.ask("POST", "/v1/dashboard/sign-in", {"token": "trd_no"}, token="", **origin)).status
        for _ in range(24)
    ]
    assert statuses == [403] * 10 + [429] * 14


async def check_stream_limit(group: ServedGroup) -> None:
    """A token has 32 streams open in both processes together, and not in each."""
    wires = [await Wire.open(group.port, "/v1/events", group.token) for _ in range(40)]
    assert sorted(wire.status for wire in wires) == [200] * 32 + [429] * 8
    for wire in wires:
        wire.writer.transport.abort()
    while (again := await Wire.open(group.port, "/v1/events", group.token)).status != 200:
        again.writer.transport.abort()
    again.writer.transport.abort()


async def check_mcp(group: ServedGroup) -> None:
    """A session of MCP is known to both processes, and is another caller's in neither."""
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    accept = {"Accept": "application/json, text/event-stream"}
    begun = await group.ask("POST", "/mcp", hello, **accept)
    assert begun.status == 200, begun
    session = accept | {
        "Mcp_Session_Id": next(v for k, v in begun.headers.items() if k.lower() == "mcp-session-id")
    }
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await group.ask("POST", "/mcp", ready, **session)).status == 202
    listed = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    asked = ({**listed, "id": number} for number in range(100, 124))
    replies = await asyncio.gather(*(group.ask("POST", "/mcp", body, **session) for body in asked))
    assert {reply.status for reply in replies} == {200}
    assert all(b"start_run" in reply.body for reply in replies)
    called = {"name": "default", "arguments": {"message": "hi"}}
    for number in range(3, 9):
        body = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": called}
        assert b"Hello." in (await group.ask("POST", "/mcp", body, **session)).body
    other = (await group.ask("POST", "/v1/tokens", {"name": "other", "scopes": ["read"]})).json["token"]
    assert {reply.status for reply in await group.ask_both("POST", "/mcp", listed, token=other, **session)} == {404}
    assert (await group.ask("DELETE", "/mcp", **session)).status == 200
    assert {reply.status for reply in await group.ask_both("POST", "/mcp", listed, **session)} == {404}


async def check_openai(group: ServedGroup) -> None:
    """A response continues another, whichever process answers."""
    body = {"model": "default", "input": "hi", "store": True}
    first = (await group.ask("POST", "/v1/responses", body)).json["id"]
    replies = await group.ask_both("GET", f"/v1/responses/{first}")
    assert {reply.status for reply in replies} == {200}
    more = await group.ask("POST", "/v1/responses", body | {"previous_response_id": first})
    assert more.status == 200, more


async def check_all(group: ServedGroup, _: FakeEndpoint) -> None:
    await check_system(group)
    await check_idempotency(group)
    await check_metrics(group)
    await check_revocation(group)
    await check_sign_in(group)
    await check_failed_sign_ins(group)
    await check_mcp(group)
    await check_openai(group)
    await check_stream_limit(group)
    said = await group.stop()
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert {line.get("process") for line in lines} >= {1, 2}, "both have logged, as JSON, into one stream"
    written = (group.home / "logs" / "treadle.log").read_text().splitlines()
    assert {json.loads(line).get("process") for line in written} >= {1, 2}


def test_consecutive_requests_may_reach_different_processes(url: str, tmp_path: Path) -> None:
    run_with(url, tmp_path / "home", check_all, "--log-format", "json")


# ── Restarts ──


def answer_slowly(request: Request) -> Answer:
    """Answer `slow` when the test says so, and everything else at once."""
    if '"slow' not in request.body.decode():
        return says("Hello.")
    return Answer([delta(content="one, "), PAUSE, delta(content="two."), delta(finish="stop"), DONE])


async def keep_asking(group: ServedGroup, session: aiohttp.ClientSession | None, counts: Counter[str]) -> None:
    """Submit runs until cancelled. With a session, connections are used again."""
    while True:
        headers = {"Authorization": f"Bearer {group.token}", "Idempotency-Key": uuid.uuid4().hex}
        made = session or aiohttp.ClientSession()
        try:
            async with made.post(group.url + RUN, json={"message": "hi"}, headers=headers) as response:
                counts[f"status {response.status}"] += 1
                counts.setdefault("runs", 0)
        except (aiohttp.ClientError, OSError) as error:
            counts[f"{type(error).__name__}: {error}"] += 1
        finally:
            if session is None:
                await made.close()
        await asyncio.sleep(0.01)


async def follow(group: ServedGroup, run_id: str, counts: Counter[str]) -> list[int]:
    """Return the sequences of all durable events, read over as many connections as it takes."""
    seen, headers = list[int](), {"Authorization": f"Bearer {group.token}"}
    async with aiohttp.ClientSession() as http:
        while True:
            counts["connections"] += 1
            last = {"Last-Event-ID": str(seen[-1])} if seen else {}
            async with http.get(f"{group.url}/v1/runs/{run_id}/events", headers=headers | last) as response:
                async for line in response.content:
                    if line.startswith(b"id: "):
                        seen.append(int(line[4:]))
                    if line == b"event: run_end\n":
                        return [*seen]


async def read_completion(group: ServedGroup) -> str:
    """Return the text of a stream that cannot be resumed."""
    body = {"model": "default", "stream": True, "messages": [{"role": "user", "content": "slow too"}]}
    async with (
        aiohttp.ClientSession() as http,
        http.post(
            f"{group.url}/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {group.token}"}
        ) as response,
    ):
        assert response.status == 200
        return (await response.read()).decode()


async def check_restart(group: ServedGroup, endpoint: FakeEndpoint) -> None:
    run_id = (await group.ask("POST", RUN, {"message": "slow"})).json["run_id"]
    before = {each["process_id"] for each in await group.processes()}
    counts, followed = Counter[str](), Counter[str]()
    async with aiohttp.ClientSession() as reused, asyncio.TaskGroup() as tasks:
        asking = [
            tasks.create_task(keep_asking(group, session, counts)) for session in (None, None, None, reused, reused)
        ]
        following = [tasks.create_task(follow(group, run_id, followed)) for _ in range(8)]
        completing = tasks.create_task(read_completion(group))
        await until(lambda: sum(b'"slow' in request.body for request in endpoint.requests) >= 2)
        group.signal(signal.SIGHUP)
        await group.wait_for_note("All processes have been replaced.")
        endpoint.go_on.set()
        sequences = [await each for each in following]
        text = await completing
        for task in asking:
            task.cancel()
    listed = await group.wait_for_processes(1, 2)
    assert not before & {each["process_id"] for each in listed}
    assert [each["restarts"] for each in listed] == [0, 0]
    assert set(counts) == {"status 202", "runs"}, counts
    assert counts["status 202"] > 50
    assert all(seen == list(range(1, len(seen) + 1)) for seen in sequences), "each event once, in order"
    assert followed["connections"] > 8, "streams were closed, and their readers continued"
    assert "two." in text
    assert "[DONE]" in text
    ended = await group.ask("GET", f"/v1/runs/{run_id}?wait=30")
    assert ended.json["outcome"] == "completed"


def test_a_restart_one_by_one_refuses_no_connection_and_breaks_no_stream(url: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with FakeEndpoint(policy=answer_slowly) as endpoint:
            made = ServedGroup(tmp_path / "home", url, endpoint.url)
            made.write(
                "config.yaml",
                f"{{providers: {{fake: {{base_url: '{endpoint.url}'}}}}, server: {{drain_seconds: 1}}}}",
            )
            async with asyncio.timeout(HANG_SECONDS):
                await made.start()
                await check_restart(made, endpoint)
                await made.stop()

    asyncio.run(run())


async def check_bad_restart(group: ServedGroup, endpoint: FakeEndpoint) -> None:
    """A replacement that cannot start ends the restart, and nothing else."""
    before = await group.processes()
    group.write("config.yaml", "nonsense: 1")
    group.signal(signal.SIGHUP)
    said = await group.wait_for_note("The restart has stopped")
    assert "process 1" in said
    assert "nonsense" in said
    assert [each["process_id"] for each in await group.processes() if each["state"] == "ready"] == [
        each["process_id"] for each in before
    ]


def test_a_restart_with_a_broken_configuration_leaves_the_processes_as_they_are(url: str, tmp_path: Path) -> None:
    run_with(url, tmp_path / "home", check_bad_restart)


# ── Processes that are killed ──


async def kill_processes(members: Cluster, folder: Path) -> None:
    """Kill one process, and its replacement or the other one, while runs are in progress."""
    async with aiohttp.ClientSession() as http:
        for effects in (2, 8):
            await until(lambda effects=effects: len(model.read_effects(folder)) >= effects)
            headers = {"Authorization": f"Bearer {members.token}", "Connection": "close"}
            async with http.get(f"{members.doors[0]}/v1/system", headers=headers) as response:
                members.kill_process((await response.json())["process_id"])


async def run_chaos(url: str, folder: Path) -> checks.ChaosVerdict:
    chance = random.Random(8)
    async with (
        model.serve_model(0.1) as model_url,
        open_cluster(url, model.install(folder, model_url), folder, (TREADLE,)) as members,
    ):
        await members.start_group(2)
        async with open_clients(members.doors, members.token) as asked, asyncio.timeout(HANG_SECONDS):
            beside = [asyncio.create_task(work) for work in (asked.approve_forever(), asked.read_all_forever())]
            following = [
                asked.submit_and_follow(str(number), model.make_requested_run(number, 4, chance), number == 0)
                for number in range(12)
            ]
            await asyncio.gather(kill_processes(members, folder), *following)
            found = await checks.gather(members, asked, folder)
            await until(
                lambda: sum(seen.last for seen in asked.of_feed.values()) == sum(map(len, found.events.values()))
            )
            for task in beside:
                task.cancel()
        assert len(members.kills) == 2
        assert members.servers[0].by_itself == [], "the server itself has not ended"
    assert asked.doubled == []
    assert not asked.refusals
    return checks.judge(found)


def test_killed_processes_are_replaced_with_nothing_lost_or_repeated(url: str, tmp_path: Path) -> None:
    verdict = asyncio.run(run_chaos(url, tmp_path))
    assert verdict.faults == []
    rows = {what: value for what, value, _ in verdict.rows}
    assert rows["runs acknowledged"] == "14"


async def check_orphans(group: ServedGroup, _: FakeEndpoint) -> None:
    """If the process that started them is killed, all end, and the port is free for another server."""
    processes = [each["process_id"] for each in await group.processes()]
    assert group.process is not None
    group.process.kill()
    await group.process.wait()
    await until(lambda: not any(map(is_alive, processes)))
    await group.start("--port", str(group.port))
    assert await group.wait_for_processes(1, 2)


def test_no_process_outlives_the_one_that_started_it(url: str, tmp_path: Path) -> None:
    run_with(url, tmp_path / "home", check_orphans)


# ── Starts that fail ──


async def check_port(group: ServedGroup, endpoint: FakeEndpoint) -> None:
    """A second server does not share the port of the first one, with several processes or with one."""
    second = ServedGroup(group.home, group.environment["TREADLE_DATABASE_URL"], endpoint.url)
    for options in ((), ("--processes", "1")):
        process = await second.launch("--port", str(group.port), *options)
        out, said = await process.communicate()
        assert (process.returncode, out) == (2, b"")
        assert b"Address already in use" in said


def test_a_second_server_does_not_share_the_port(url: str, tmp_path: Path) -> None:
    run_with(url, tmp_path / "home", check_port)


def test_a_process_that_cannot_start_ends_the_server_with_its_message(url: str, tmp_path: Path) -> None:
    async def run() -> None:
        group = ServedGroup(tmp_path / "home", url, "http://127.0.0.1:9/v1")
        for options, message in (
            (("--host", "0.0.0.0"), "There is no valid access token, and other machines can reach 0.0.0.0."),
        ):
            process = await group.launch(*options)
            out, said = await process.communicate()
            assert (process.returncode, out) == (2, b"")
            assert message in said.decode()
            assert said.decode().count("\n") == 1, said.decode()

    asyncio.run(run())
