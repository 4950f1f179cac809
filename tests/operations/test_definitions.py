"""Operations: one definition, from which the wire, the client and the description derive."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from openapi_spec_validator import validate

from tests.fake_endpoint import Silence
from tests.surfaces.http.served_home import serve_home
from treadle.domain.errors import UnknownRun
from treadle.domain.ids import RunId, SessionId
from treadle.domain.webhooks import WebhookId
from treadle.operations import registry, runs, sessions
from treadle.operations.attachments import Attachment
from treadle.operations.operation import Caller, LocalCaller, Operation, list_items
from treadle.operations.request_checks import InvalidParameter
from treadle.operations.run_control import STEER, SteerRun
from treadle.operations.webhooks import RETRY, RetryEvents
from treadle.remote.caller import RemoteCaller
from treadle.remote.connection import Address, Connection
from treadle.surfaces.http.api_description import build_description

HEAVY = ("starlette", "aiohttp", "apsw", "asyncpg", "uvicorn", "treadle.engine", "treadle.stores")
PIXEL = "iVBORw0KGgo="


@pytest.mark.parametrize("module", ["sessions", "runs", "approvals", "tokens", "schedules", "webhooks"])
def test_the_definitions_of_an_entity_import_no_server_no_client_and_no_engine(module: str) -> None:
    code = f"import sys, treadle.operations.{module}; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in found if name.startswith(HEAVY)] == []


def test_the_description_is_made_without_a_server() -> None:
    code = "import sys, treadle.surfaces.http.api_description as d; d.build_description(); print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "starlette" not in found


def test_the_description_is_valid_openapi() -> None:
    validate(build_description())
    assert len(build_description()["paths"]) > 50
    assert all(
        operation["summary"] for path in build_description()["paths"].values() for operation in path.values()
    ), "every operation says what it does"


def test_names_and_routes_are_unique() -> None:
    found = registry.all_operations()
    assert len({operation.name for operation in found}) == len(found)
    assert len({(operation.method, operation.path) for operation in found}) == len(found)


def send_and_decode(operation: Operation[Any, Any], request: Any) -> Any:
    """Return what the server decodes of what the client encodes."""
    wire = operation.encode(request)
    values = wire.path.split("/")
    names = operation.path.split("/")
    path = {name[1:-1]: values[place] for place, name in enumerate(names) if name.startswith("{")}
    return operation.decode(path, wire.query, wire.body or b"")


@pytest.mark.parametrize(
    ("operation", "request_"),
    [
        (
            runs.LIST,
            runs.ListRuns(
                agent="ada",
                session_id=SessionId("ses_1"),
                status="waiting",
                outcome=None,
                unfinished=True,
                cursor="run_9",
                limit=7,
            ),
        ),
        (runs.CHILDREN, runs.ListChildren(RunId("run_1"), unfinished=True)),
        (sessions.RENAME, sessions.RenameSession(SessionId("ses_1"), "A title")),
        (STEER, SteerRun(RunId("run_1"), "Look.", "interrupt", (Attachment("image/png", PIXEL),))),
        (RETRY, RetryEvents(WebhookId("wh_1"), None)),
    ],
)
def test_a_request_arrives_as_it_was_sent(operation: Operation[Any, Any], request_: Any) -> None:
    assert send_and_decode(operation, request_) == request_


def test_a_name_in_the_path_is_one_segment() -> None:
    wire = sessions.SHOW.encode(sessions.ShowSession(SessionId("a/b ?#é")))
    assert wire.path == "/v1/sessions/a%2Fb%20%3F%23%C3%A9"


def test_invalid_parameters_and_bodies_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="limit"):
        runs.LIST.decode({}, {"limit": "many"}, b"")
    with pytest.raises(InvalidParameter, match="limit"):
        runs.LIST.decode({}, {"limit": "501"}, b"")
    with pytest.raises(msgspec.ValidationError, match="session_id"):
        sessions.RENAME.decode({"session_id": "ses_1"}, {}, b'{"title": "x", "session_id": "ses_2"}')


async def steps(caller: Caller, run_id: RunId) -> tuple[object, ...]:
    """Call operations of each kind: a list with filters, one entity, an error."""
    listed = await list_items(caller, runs.LIST, runs.ListRuns(agent="two"))
    nobody = await list_items(caller, runs.LIST, runs.ListRuns(agent="asking"))
    shown = await caller.call(runs.SHOW, runs.ShowRun(run_id))
    with pytest.raises(UnknownRun) as unknown:
        await caller.call(runs.SHOW, runs.ShowRun(RunId("run_none")))
    return listed, nobody, shown, str(unknown.value)


async def test_a_call_has_the_same_result_in_this_process_and_over_http(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as web:
        run_id = RunId(await web.begin("two"))
        await web.begin("one")
        await web.until(run_id, "completed")
        async with Connection(Address(url=web.url, token=web.token)) as connection:
            here = await steps(LocalCaller(web.engine.context), run_id)
            there = await steps(RemoteCaller(connection), run_id)
            assert here == there
            listed, nobody, *_ = here
            assert isinstance(listed, list)
            assert len(msgspec.to_builtins(listed)) == 1, "the filter by agent is sent"
            assert nobody == []


async def test_images_of_a_steer_reach_the_run_from_another_process(tmp_path: Path) -> None:
    async with serve_home(tmp_path, Silence()) as web:
        run_id = RunId(await web.begin("asking"))
        async with Connection(Address(url=web.url, token=web.token)) as connection:
            wanted = SteerRun(run_id, "Look.", attachments=(Attachment("image/png", PIXEL),))
            delivered = await RemoteCaller(connection).call(STEER, wanted)
        [event] = await web.engine.service.page(run_id, delivered.sequence - 1, 1)
        assert PIXEL in msgspec.json.encode(event.data).decode()


def test_every_setting_of_an_agent_is_described_in_the_api_as_in_the_reference() -> None:
    schemas = build_description()["components"]["schemas"]
    reference = (Path(__file__).parents[2] / "docs" / "reference" / "settings.md").read_text()
    for struct in ("AgentSpec", "Limits", "MemorySettings", "Retry", "ApprovalRules", "Quotas"):
        for name, schema in schemas[struct]["properties"].items():
            assert schema.get("description"), f"{struct}.{name}"
            assert schema["description"].replace("|", "\\|") in reference


def test_the_api_describes_its_types_without_examples_in_python() -> None:
    description = build_description()["components"]["schemas"]["ApprovalView"]["description"]
    assert description == "A tool call that waits, or waited, for a decision."
