"""What the description of the API says about servers, methods, arrays, streams and bounds."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import jsonschema_rs
import pytest

from tests.surfaces.http.served_home import serve_home
from treadle.surfaces.http.api_description import build_description

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD")


@pytest.fixture(scope="module")
def description() -> dict[str, Any]:
    return build_description()


def list_schemas(value: Any) -> Iterator[dict[str, Any]]:
    """Yield each object in the description."""
    match value:
        case dict():
            found = cast("dict[str, Any]", value)
            yield found
            for each in found.values():
                yield from list_schemas(each)
        case list():
            for each in cast("list[Any]", value):
                yield from list_schemas(each)
        case _:
            pass


async def test_every_path_names_the_methods_that_it_has_and_no_others(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        described = (await server.ask("GET", "/v1/openapi.json")).json
        assert described["servers"] == [{"url": "/"}]
        for path, item in described["paths"].items():
            expected = {method.upper() for method in item}
            for method in METHODS:
                if method not in expected:
                    reply = await server.ask(method, re.sub(r"\{\w+\}", "one", path))
                    assert reply.status == (204 if method == "OPTIONS" else 405), (method, path)
                    allowed = {each.strip() for each in reply.headers["allow"].split(",")}
                    assert allowed == {*expected, "OPTIONS"}, (method, path)


def test_every_array_says_what_its_items_are(description: dict[str, Any]) -> None:
    arrays = [schema for schema in list_schemas(description) if schema.get("type") == "array"]
    assert len(arrays) > 100
    assert [schema for schema in arrays if not isinstance(schema.get("items"), dict)] == []


def test_every_stream_says_what_its_events_are(description: dict[str, Any]) -> None:
    streams = [each["text/event-stream"] for each in list_schemas(description) if "text/event-stream" in each]
    assert len(streams) >= 5
    for stream in streams:
        assert stream["schema"]["contentMediaType"] == "application/json"
        assert "$ref" in str(stream["schema"]["contentSchema"])


def test_every_enum_has_texts_or_numbers(description: dict[str, Any]) -> None:
    """Generators of clients know no others."""
    enums = [schema["enum"] for schema in list_schemas(description) if isinstance(schema.get("enum"), list)]
    assert len(enums) > 100
    assert [enum for enum in enums if any(isinstance(value, bool) for value in enum)] == []


def test_names_can_be_names_in_a_language(description: dict[str, Any]) -> None:
    names = description["components"]["schemas"].keys()
    assert {"RunViewPage", "ItemPage", "ObjectPage"} <= names
    assert [name for name in names if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", name)] == []


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/agents/one/runs", {"message": "Go.", "tags": [""]}),
        ("POST", "/v1/agents/one/runs", {"message": "Go.", "metadata": {"a": "x" * 513}}),
        ("POST", "/v1/agents", {"name": "a b"}),
        ("POST", "/v1/agents", {"name": "a", "limits": {"max_steps": 0}}),
        ("POST", "/v1/agents", {"name": "a", "limits": {"deadline": 0}}),
        ("POST", "/v1/agents", {"name": "a", "memory": {"recall": 51}}),
        ("POST", "/v1/agents", {"name": "a", "compaction": {"at": 0}}),
        ("POST", "/v1/agents", {"name": "a", "hooks": [{"command": " "}]}),
        ("POST", "/v1/agents", {"name": "a", "quotas": {"credits": -1}}),
        ("POST", "/v1/agents", {"name": "a", "mcp_servers": {"a__b": {"command": "x"}}}),
        ("POST", "/v1/tokens", {"name": "a", "user": "!"}),
        ("POST", "/v1/schedules", {"agent": "one", "message": "Go.", "every": 0.5}),
        ("POST", "/v1/webhooks", {"url": "ftp://example.com"}),
        ("POST", "/v1/stream-tickets", {"path": "/v1/runs"}),
        ("POST", "/v1/stream-tickets", None),
    ],
)
async def test_a_bound_that_is_enforced_is_described(
    tmp_path: Path, description: dict[str, Any], method: str, path: str, body: Any
) -> None:
    operation = description["paths"][re.sub("/one/", "/{name}/", path)][method.lower()]
    schema = {**operation["requestBody"]["content"]["application/json"]["schema"]}
    assert not jsonschema_rs.is_valid({**schema, "components": description["components"]}, body)
    async with serve_home(tmp_path) as server:
        assert (await server.ask(method, path, b"null" if body is None else body)).status == 400


@pytest.mark.parametrize(
    "query", ["runs?until=0.5", "runs?tag=", "runs?metadata=a", "search?text=a&cursor=x", "usage?since=2026-02-31"]
)
async def test_a_parameter_outside_its_bound_is_refused(tmp_path: Path, query: str) -> None:
    async with serve_home(tmp_path) as server:
        assert (await server.ask("GET", f"/v1/{query}")).status == 400


@pytest.mark.parametrize(
    ("method", "path", "problem"),
    [
        ("DELETE", "/v1/vault/NONE", "UnknownSecret"),
        ("DELETE", "/v1/mcp/servers/none/approval", "UnknownMcpServer"),
        ("GET", "/v1/skills/none", "UnknownSkill"),
    ],
)
async def test_what_does_not_exist_is_not_found(tmp_path: Path, method: str, path: str, problem: str) -> None:
    async with serve_home(tmp_path) as server:
        reply = await server.ask(method, path)
        assert (reply.status, reply.problem) == (404, problem)


async def test_a_message_is_not_genuine_if_the_secret_of_its_webhook_is_none(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        hook = (await server.ask("POST", "/v1/hooks", {"name": "a", "agent": "one", "message": "Go."})).json
        name = f"HOOK_{hook['hook_id'].removeprefix('hok_')}"
        changed = await server.ask("PUT", f"/v1/vault/{name}", {"value": "none of theirs"})
        assert changed.status == 200
        assert (await server.ask("POST", hook["path"], {}, token="")).problem == "NotSigned"
