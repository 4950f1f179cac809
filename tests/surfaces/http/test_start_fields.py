"""What a caller over HTTP may say about a run that it starts. Owners, rights and settings follow from its token."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span

import treadle
from tests.surfaces.http.served_home import ServedHome, serve_home
from treadle.domain.events import RunQueued
from treadle.domain.ids import RunId
from treadle.domain.messages import user
from treadle.domain.permissions import Asker
from treadle.operations.requested_run import RequestedRun
from treadle.operations.run_start import NewRun, StartLocalRun
from treadle.operations.submissions import Submission
from treadle.surfaces.http.api_description import build_description

PUBLIC = set(NewRun.__struct_fields__)
INTERNAL = sorted({*Submission.__struct_fields__, "cause", "name"} - PUBLIC)
"""What a caller of the HTTP API may not say."""
START, LOCAL = "/v1/agents/one/runs", "/v1/submissions"


async def read_queued(web: ServedHome, run_id: str) -> RunQueued:
    [event] = await web.engine.service.page(RunId(run_id), 0, 1)
    assert isinstance(event.data, RunQueued)
    return event.data


def test_the_internal_fields_are_those_that_decide_about_owners_rights_and_settings() -> None:
    assert {"agent", "asker", "only_own", "anonymous", "token", "token_quotas", "key", "plain"} <= set(INTERNAL)
    described = str(build_description())
    assert LOCAL not in described
    assert "RequestedRun" not in described


@pytest.mark.parametrize(("place", "problem"), [("body", "BadRequest"), ("query", "UnknownParameter")])
async def test_an_internal_field_is_refused_for_every_token(tmp_path: Path, place: str, problem: str) -> None:
    async with serve_home(tmp_path) as web:
        for token in (web.token, await web.mint("run"), await web.mint("read", "run", "approve")):
            for name in INTERNAL:
                body: dict[str, Any] = {"message": "Go."}
                query = "" if place == "body" else f"?{name}=x"
                body |= {name: "x"} if place == "body" else {}
                reply = await web.ask("POST", START + query, body, token=token)
                assert (reply.status, reply.problem) == (400, problem), name
                assert name in reply.json["detail"]
        assert (await web.ask("GET", "/v1/runs")).json["items"] == []


async def test_only_an_administrator_sends_a_whole_request(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as web:
        run = RequestedRun(web.home.agent("one"), user("Go."), user="ada", asker="terminal")
        body = msgspec.to_builtins(StartLocalRun(run))["run"]
        for token in (await web.mint("run"), await web.mint("read", "run", "approve")):
            reply = await web.ask("POST", LOCAL, body, token=token)
            assert (reply.status, reply.problem) == (403, "Forbidden")
        reply = await web.ask("POST", LOCAL, body)
        queued = await read_queued(web, reply.json["run_id"])
        assert (queued.user, queued.asker) == ("ada", "terminal")
        assert queued.token is not None, "the run is on the account of the token that sent it"
        for name in ("token", "token_quotas", "key", "cause", "follows_anonymous"):
            reply = await web.ask("POST", LOCAL, {**body, name: None})
            assert reply.status == 400, name
            assert name in reply.json["detail"]


@pytest.mark.parametrize(("scopes", "asker"), [(("run",), None), (("run", "approve"), "api")])
async def test_owner_and_asker_follow_from_the_token(tmp_path: Path, scopes: Any, asker: Asker | None) -> None:
    async with serve_home(tmp_path) as web:
        token = await web.mint(*scopes, visibility="own")
        reply = await web.ask("POST", START, {"message": "Go."}, token=token)
        queued = await read_queued(web, reply.json["run_id"])
        assert (queued.asker, queued.owner) == (asker, queued.token)
        assert queued.token is not None
        assert queued.agent == web.home.agent("one")


async def test_a_run_with_fewer_tools_recalls_no_more_than_its_agent(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as web:
        run_id = await web.begin("asking", overrides={"tools": []})
        queued = await read_queued(web, run_id)
        assert web.home.agent("asking").tools
        assert queued.agent.tools == ()
        assert queued.agent.memory.scope == "workspace"


async def test_a_run_is_in_the_trace_of_its_caller(tmp_path: Path) -> None:
    """As the header `traceparent` names it, which clients of the library send. An invalid header is ignored."""
    outer = SpanContext(0xABC, 0xDEF, is_remote=True, trace_flags=TraceFlags(1))
    valid = f"00-{0xABC:032x}-{0xDEF:016x}-01"
    async with serve_home(tmp_path) as web:
        for header in (valid, "", "00-abc-def-01", f"ff{valid[2:]}", f"00-{0:032x}-{1:016x}-01", f"{valid}-more"):
            reply = await web.ask("POST", START, {"message": "Go."}, traceparent=header)
            queued = await read_queued(web, reply.json["run_id"])
            assert queued.trace_parent == (header if header == valid else ""), header
        async with treadle.AsyncClient(web.url, token=web.token) as client:
            with use_span(NonRecordingSpan(outer)):
                run_id = await client.submit("one", "Go.")
        assert (await read_queued(web, run_id)).trace_parent == valid


async def test_unsaved_settings_are_tried_by_administrators_only(tmp_path: Path) -> None:
    """The run has no version: its settings are saved nowhere."""
    async with serve_home(tmp_path) as web:
        saved = (await web.ask("GET", "/v1/agents/one")).json["agent"]
        settings = {**saved, "persona": "You try something.", "name": "ignored"}
        body = {
            "message": "Go.",
            "overrides": {"settings": settings, "limits": {"max_steps": 2}},
            "tags": ["trial"],
        }
        refused = await web.ask("POST", START, body, token=await web.mint("read", "run"))
        assert (refused.status, refused.problem) == (403, "Forbidden")
        run = (await web.ask("POST", START + "?wait=10", body)).json
        assert (run["agent"], run["tags"], run["version"]) == ("one", ["trial"], None)
        queued = await read_queued(web, run["run_id"])
        assert (queued.agent.persona, queued.agent.limits.max_steps) == ("You try something.", 2)
        assert (await web.ask("GET", "/v1/agents/one")).json["agent"] == saved
        wrong = {**body, "overrides": {"settings": {**settings, "persna": "x"}}}
        reply = await web.ask("POST", START, wrong)
        assert (reply.status, "persna" in reply.json["detail"]) == (400, True)
