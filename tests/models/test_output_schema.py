"""The output schema on the wire: which schema a provider gets in which form, with the official SDKs as oracles."""

import enum
import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
import pydantic
import pytest
from msgspec.structs import replace

from tests.fake_endpoint import Answer, FakeEndpoint
from tests.models import chat
from tests.models.chat import ADD, HELLO, KEY
from tests.models.test_anthropic_oracle import validate_officially as validate_for_anthropic
from tests.models.test_openai_oracle import Mode, encode_body, validate_officially
from treadle.domain.agents import ModelSettings
from treadle.domain.messages import Text
from treadle.domain.models import Profile
from treadle.models.formats import anthropic_messages, chat_completions, responses
from treadle.models.formats.output_schema import ANTHROPIC, OPENAI, find_object_schema, fits_rules
from treadle.models.http.client import ModelClient
from treadle.models.http.transport import Connections
from treadle.ports.model import Completed, ModelRequest, Preamble
from treadle.tools.answer_types import make_answer_schema

# ── Types of answers ──


class Open(msgspec.Struct):
    title: str


class Closed(msgspec.Struct, forbid_unknown_fields=True):
    title: str
    words: int


class Nested(msgspec.Struct, forbid_unknown_fields=True):
    items: list[Closed]
    best: Closed | None


class Defaults(msgspec.Struct, forbid_unknown_fields=True):
    title: str = ""


class Tree(msgspec.Struct, forbid_unknown_fields=True):
    children: list["Tree"]


class Color(enum.Enum):
    RED = "red"


class Chosen(msgspec.Struct, forbid_unknown_fields=True):
    color: Color
    size: Literal["s", "m"]


class Bounded(msgspec.Struct, forbid_unknown_fields=True):
    stars: Annotated[int, msgspec.Meta(ge=1, le=5)]


class Any_(msgspec.Struct, forbid_unknown_fields=True):
    value: Any


class Cat(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    name: str


class Dog(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    name: str


class Owner(msgspec.Struct, forbid_unknown_fields=True):
    pet: Cat | Dog


@dataclass
class Point:
    x: int


class Line(TypedDict):
    start: int
    end: NotRequired[int]


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    title: str
    tags: list[str]


class OpenModel(pydantic.BaseModel):
    title: str


class ModelWithDefault(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    title: str = "x"


class NestedModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    inner: Model
    kind: Literal["a", "b"]
    maybe: str | None


STRICT, LOOSE, PROMPT = True, False, None
SENT = "sent"

FORMS: list[tuple[Any, bool | None, str | None]] = [
    (Open, LOOSE, PROMPT),
    (Closed, STRICT, SENT),
    (Nested, STRICT, SENT),
    (Defaults, LOOSE, PROMPT),
    (Tree, STRICT, PROMPT),
    (Chosen, LOOSE, SENT),
    (Bounded, STRICT, PROMPT),
    (Any_, LOOSE, PROMPT),
    (Owner, LOOSE, PROMPT),
    (Point, LOOSE, PROMPT),
    (Line, LOOSE, PROMPT),
    (Model, STRICT, SENT),
    (OpenModel, LOOSE, PROMPT),
    (ModelWithDefault, LOOSE, PROMPT),
    (NestedModel, STRICT, SENT),
    (list[Closed], PROMPT, PROMPT),
    (Cat | Dog, PROMPT, PROMPT),
    (Closed | None, PROMPT, PROMPT),
    (Model | None, PROMPT, PROMPT),
    (list[Model], PROMPT, PROMPT),
    (Literal["yes", "no"], PROMPT, PROMPT),
    (Color, PROMPT, PROMPT),
    (str, PROMPT, PROMPT),
    (dict[str, int], LOOSE, PROMPT),
]


def asking(schema: dict[str, Any] | None, **changes: Any) -> ModelRequest:
    return replace(HELLO, preamble=Preamble("Be brief.", (ADD,), schema), constrained=True, **changes)


@pytest.mark.parametrize(("type_", "openai", "anthropic"), FORMS, ids=[str(form[0]) for form in FORMS])
def test_each_type_is_sent_in_the_form_that_the_provider_accepts(
    type_: Any, openai: bool | None, anthropic: str | None
) -> None:
    schema = make_answer_schema(type_)
    before = json.dumps(schema)
    modes: tuple[Mode, ...] = ("chat_completions", "responses")
    bodies: dict[Mode, Any] = {mode: encode_body(mode, asking(schema)) for mode in modes}
    for mode, body in bodies.items():
        assert validate_officially(mode, body) == body
    sent = bodies["chat_completions"].get("response_format", {}).get("json_schema")
    text = bodies["responses"].get("text", {}).get("format")
    assert (sent and sent["strict"], text and text["strict"]) == (openai, openai)
    if sent is not None:
        assert text == {"type": "json_schema", **sent}
        assert sent["schema"] == find_object_schema(schema)
    body = anthropic_messages.encode_request(asking(schema))
    assert validate_for_anthropic(body) == json.loads(body)
    format_ = json.loads(body).get("output_config", {}).get("format")
    assert (None if format_ is None else SENT) == anthropic
    if format_ is not None:
        assert format_ == {"type": "json_schema", "schema": find_object_schema(schema)}
    assert json.dumps(schema) == before


def closed(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


NUMBER = {"type": "number"}


MEASURED: list[tuple[dict[str, Any], bool, bool]] = [
    (closed(), True, True),
    (closed(a=NUMBER | {"minimum": 1}), True, False),
    (closed(a={"type": "string", "pattern": "x"}), True, False),
    (closed(a={"type": "string", "minLength": 1}), False, False),
    (closed(a={"type": "string", "format": "uri"}), False, True),
    (closed(a={"type": "string", "format": "odd"}), False, False),
    (closed(a={"type": ["string", "null"]}), True, True),
    (closed(a={"enum": ["x"]}), False, True),
    (closed(a={"type": "object", "enum": [{}]}), False, False),
    (closed(a={"type": "array", "items": NUMBER, "minItems": 2}), True, False),
    (closed(a={"type": "array", "items": NUMBER, "minItems": 1}), True, True),
    (closed(a={"type": "array"}), False, False),
    (closed(a={"type": "array", "items": NUMBER, "prefixItems": [NUMBER]}), False, False),
    (closed(a={"oneOf": [NUMBER]}), False, False),
    (closed(a={"allOf": [NUMBER]}), False, True),
    (closed(a={}), False, False),
    (closed(a=True), False, False),
    (closed(a=NUMBER | {"default": 1}), False, False),
    (closed(a=closed(b=NUMBER) | {"required": []}), False, True),
    (closed(a=closed() | {"additionalProperties": NUMBER}), False, False),
    (closed(a={"$ref": "#"}), True, False),
    (closed(a={"$ref": "#/$defs/none"}), False, False),
    (closed(a={"$ref": "#/$defs/N"}) | {"$defs": {"N": NUMBER}}, True, True),
    (closed(a={"$ref": "#/$defs/N", "title": "n"}) | {"$defs": {"N": NUMBER}}, False, False),
    (closed() | {"$schema": "https://json-schema.org/draft/2020-12/schema"}, False, False),
    (closed(**{f"p{n}": NUMBER for n in range(25)}) | {"required": []}, False, False),
    (closed(**{f"p{n}": {"type": ["number", "null"]} for n in range(17)}), True, False),
]


@pytest.mark.parametrize(("schema", "openai", "anthropic"), MEASURED, ids=str)
def test_schemas_are_measured_by_the_rules_of_the_provider(
    schema: dict[str, Any], openai: bool, anthropic: bool
) -> None:
    assert (fits_rules(schema, OPENAI), fits_rules(schema, ANTHROPIC)) == (openai, anthropic)


def test_deep_schemas_are_not_strict() -> None:
    schema = closed()
    for _ in range(11):
        schema = closed(a=schema)
    assert not fits_rules(schema, OPENAI)
    assert fits_rules(schema["properties"]["a"], OPENAI)


def test_a_root_that_refers_to_a_definition_is_replaced_by_it() -> None:
    schema = make_answer_schema(Tree)
    assert set(schema) == {"$ref", "$defs"}
    root = find_object_schema(schema)
    assert root == schema["$defs"]["Tree"] | {"$defs": schema["$defs"]}, "the definition refers to itself"
    assert find_object_schema(make_answer_schema(Closed)) == make_answer_schema(Closed)["$defs"]["Closed"]


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "array", "items": NUMBER},
        {"anyOf": [closed()]},
        closed() | {"anyOf": [closed()]},
        {"$ref": "#/$defs/A"},
        {"$ref": "#/$defs/A", "$defs": {"A": NUMBER}},
        {"$ref": "#/$defs/A", "description": "d", "$defs": {"A": closed()}},
        {"$ref": "#/properties/a", "properties": {"a": closed()}},
        {"$ref": 1},
    ],
    ids=str,
)
def test_other_roots_stay_in_the_prompt(schema: dict[str, Any]) -> None:
    assert find_object_schema(schema) is None


# ── Requests ──


def test_a_request_without_a_constraint_is_the_same_as_before() -> None:
    with_schema = replace(asking(make_answer_schema(Closed)), constrained=False)
    for encode in (
        chat_completions.encode_request,
        responses.encode_request,
        anthropic_messages.encode_request,
    ):
        assert encode(with_schema) == encode(HELLO)


def test_a_model_that_writes_its_calls_as_text_gets_the_schema_without_them() -> None:
    fenced = asking(make_answer_schema(Closed), profile=Profile(tools="fenced"))
    body = json.loads(chat_completions.FORMAT.encode(replace(fenced, tool_choice="none")))
    assert body["response_format"]["json_schema"]["strict"] is True
    by_schema = replace(fenced, profile=Profile(tools="schema"), tool_choice="none")
    body = json.loads(chat_completions.FORMAT.encode(by_schema))
    assert body["response_format"]["json_schema"]["name"] == "reply", "its answers are in a schema already"


def test_the_schema_is_encoded_once_and_after_the_conversation() -> None:
    request = asking(make_answer_schema(Closed))
    one = chat_completions.encode_request(request)
    assert one.startswith(chat_completions.encode_request(replace(request, constrained=False))[:-1])
    assert request.preamble.encode_as("chat_completions:output", _fail) in one


def _fail(preamble: Preamble) -> bytes:
    raise AssertionError("it was encoded already")


def test_the_effort_and_the_schema_share_a_field_of_anthropic() -> None:
    request = asking(make_answer_schema(Closed), settings=ModelSettings(reasoning="high"))
    body = anthropic_messages.encode_request(request)
    assert validate_for_anthropic(body) == json.loads(body)
    assert set(json.loads(body)["output_config"]) == {"effort", "format"}


# ── The official SDKs ──


def test_a_strict_schema_is_what_the_sdks_make_of_the_type() -> None:
    from anthropic import transform_schema
    from openai.lib._pydantic import to_strict_json_schema

    for type_ in (Model, NestedModel):
        schema = make_answer_schema(type_)
        assert to_strict_json_schema(type_) == schema, "nothing has to be added"
        assert find_object_schema(schema) == schema
    assert transform_schema(Model) == make_answer_schema(Model)
    for type_ in (OpenModel, ModelWithDefault):
        assert to_strict_json_schema(type_) != make_answer_schema(type_), "so it is not sent as strict"


ANSWER = '{"title": "Looms", "tags": ["old", "wood"]}'


async def test_the_openai_sdk_parses_the_same_answer() -> None:
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient

    reply = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m-1",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": ANSWER, "refusal": None},
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    }
    answer = Answer([json.dumps(reply).encode()], headers={"Content-Type": "application/json"})
    http, connections = DefaultAsyncHttpxClient(verify=False), Connections()
    async with FakeEndpoint(answer, answer) as server:
        async with AsyncOpenAI(api_key="k", base_url=server.url, max_retries=0, http_client=http) as sdk:
            theirs = await sdk.chat.completions.parse(model="m-1", messages=[], response_format=Model)
        client = ModelClient(chat_completions.FORMAT, chat.endpoint(server.url), connections)
        ours = await client.reply(asking(make_answer_schema(Model)), lambda _: None)
        await connections.close()
        asked = [request.json["response_format"]["json_schema"] for request in server.requests]
    assert isinstance(ours, Completed)
    assert ours.parts == (Text(ANSWER),)
    assert theirs.choices[0].message.parsed == Model.model_validate_json(ANSWER)
    assert asked[0] == asked[1] | {"name": "Model"}


async def test_the_anthropic_sdk_parses_the_same_answer() -> None:
    from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

    from tests.anthropic_wire import endpoint

    reply = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m-1",
        "content": [{"type": "text", "text": ANSWER}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 2},
    }
    answer = Answer([json.dumps(reply).encode()], headers={"Content-Type": "application/json"})
    http, connections = DefaultAsyncHttpxClient(verify=False), Connections()
    async with FakeEndpoint(answer, answer) as server:
        url = server.url.removesuffix("/v1")
        async with AsyncAnthropic(api_key=KEY, base_url=url, max_retries=0, http_client=http) as sdk:
            theirs = await sdk.messages.parse(
                model="m-1", max_tokens=9, messages=[{"role": "user", "content": "x"}], output_format=Model
            )
        client = ModelClient(anthropic_messages.FORMAT, endpoint(server.url), connections)
        ours = await client.reply(asking(make_answer_schema(Model)), lambda _: None)
        await connections.close()
        asked = [request.json["output_config"] for request in server.requests]
    assert isinstance(ours, Completed)
    assert ours.parts == (Text(ANSWER),)
    assert theirs.parsed_output == Model.model_validate_json(ANSWER)
    assert asked[0] == asked[1]
