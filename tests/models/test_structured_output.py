"""Which models get the output schema with a request, and which refusals are repaired by leaving it out."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from tests.fake_endpoint import refuses, says
from tests.models.chat import ADD, HELLO, converse
from treadle.domain.models import ModelFacts, StructuredOutput
from treadle.domain.providers import ProviderConfig
from treadle.models.catalog import Catalog
from treadle.models.presets import build_presets
from treadle.ports.model import Completed, Failed, Preamble

OPENAI, ANTHROPIC, OPENROUTER, OLLAMA = (
    build_presets({})[name] for name in ("openai", "anthropic", "openrouter", "ollama")
)
GEMINI = ProviderConfig("https://generativelanguage.googleapis.com/v1beta/openai")
SCHEMA = {
    "type": "object",
    "properties": {"title": {"type": "string"}},
    "required": ["title"],
    "additionalProperties": False,
}
ASKING = replace(HELLO, preamble=Preamble("Be brief.", (ADD,), SCHEMA), constrained=True)


@pytest.mark.parametrize(
    ("config", "model", "when"),
    [
        (OPENAI, "gpt-6-sol", "always"),
        (OPENAI, "gpt-5.2-mini", "always"),
        (OPENAI, "gpt-4.1", "always"),
        (OPENAI, "gpt-4o-2024-08-06", "always"),
        (OPENAI, "ft:gpt-4o-mini:acme::1", "always"),
        (OPENAI, "o4-mini", "always"),
        (OPENAI, "gpt-4o-2024-05-13", "never"),
        (OPENAI, "gpt-4-turbo", "never"),
        (OPENAI, "gpt-3.5-turbo", "never"),
        (OPENAI, "o1-mini", "never"),
        (ANTHROPIC, "claude-opus-5-5", "always"),
        (ANTHROPIC, "claude-sonnet-4-5-20250929", "always"),
        (ANTHROPIC, "claude-opus-4-1", "always"),
        (ANTHROPIC, "claude-opus-4-20250514", "never"),
        (ANTHROPIC, "claude-sonnet-4-20250514", "never"),
        (ANTHROPIC, "claude-3-7-sonnet-latest", "never"),
        (OPENROUTER, "anthropic/claude-sonnet-5.5", "always"),
        (OPENROUTER, "openai/gpt-6-sol", "always"),
        (OPENROUTER, "qwen/qwen3-32b", "never"),
        (OLLAMA, "qwen3", "without_tools"),
        (GEMINI, "gemini-3-pro", "without_tools"),
        (GEMINI, "gemma-3", "never"),
        (ProviderConfig("https://api.mistral.ai/v1"), "mistral-large-latest", "without_tools"),
        (ProviderConfig("https://models.example.com/v1"), "gpt-6-sol", "never"),
        (ProviderConfig("https://api.openai.com.example.com/v1"), "gpt-6-sol", "never"),
        (ProviderConfig("http://127.0.0.1:8080/v1", local=True), "gpt-oss-20b", "never"),
        (ProviderConfig("https://api.anthropic.com/v1", "chat_completions"), "claude-opus-5-5", "never"),
    ],
    ids=str,
)
def test_known_models_of_known_hosts_get_the_schema(
    config: ProviderConfig, model: str, when: StructuredOutput
) -> None:
    assert Catalog().profile("p", model, config).structured_output == when


@pytest.mark.parametrize("when", ["never", "without_tools", "always"])
def test_the_settings_of_a_model_override_the_catalog(when: StructuredOutput) -> None:
    catalog = Catalog(models={"p/gpt-6-sol": ModelFacts(structured_output=when)})
    assert catalog.profile("p", "gpt-6-sol", OPENAI).structured_output == when


REFUSALS: list[tuple[int, Any]] = [
    (400, {"error": {"message": "Invalid schema for response_format 'answer': 'oneOf' is not permitted."}}),
    (400, {"error": {"message": "'response_format' of type 'json_schema' is not supported with this model."}}),
    (400, {"error": {"message": "Unknown parameter: 'text.format'.", "param": "text.format"}}),
    (400, {"error": {"message": "output_config: Extra inputs are not permitted"}}),
    (400, {"error": {"message": "output_config.format.schema: For 'object' type, set additionalProperties"}}),
    (400, {"error": {"message": "Schema is too complex. Simplify it."}}),
    (400, {"error": {"message": "Function calling with a response mime type: 'application/json' is unsupported"}}),
    (400, {"error": {"message": "json mode cannot be combined with tool/function calling"}}),
    (400, {"error": {"message": "Failed to initialize samplers: failed to parse grammar"}}),
    (422, {"detail": [{"loc": ["body", "response_format"], "msg": "Extra inputs are not permitted"}]}),
    (404, {"error": {"message": "No endpoints found that can handle the requested parameters."}}),
    (500, {"error": {"message": "failed to parse grammar"}}),
    (400, {"error": {"message": "Bad Request"}}),
]
OTHER_FAILURES: list[tuple[int, Any]] = [
    (400, {"error": {"message": "Invalid schema for function 'add': None is not of type 'object'."}}),
    (400, {"error": {"message": "Unsupported parameter: 'temperature'", "param": "temperature"}}),
    (400, {"error": {"message": "output_config.effort: unsupported value"}}),
    (400, {"error": {"message": "Failed to generate JSON for json_schema.", "code": "json_validate_failed"}}),
    (400, {"error": {"message": "This model's maximum context length is 128000 tokens."}}),
    (401, {"error": {"message": "Incorrect API key for response_format"}}),
    (429, {"error": {"message": "Rate limit for structured outputs"}}),
    (404, {"error": {"message": "The model `m-1` does not exist"}}),
    (500, {"error": {"message": "internal error"}}),
]


def fail(status: int, body: Any, **changes: Any) -> Failed:
    end = converse(refuses(status, body), requests=[replace(ASKING, **changes)]).replies[0][-1]
    assert isinstance(end, Failed)
    return end


@pytest.mark.parametrize(("status", "body"), REFUSALS, ids=[json.dumps(body) for _, body in REFUSALS])
def test_a_refused_schema_is_recognised(status: int, body: Any) -> None:
    assert fail(status, body).refuses_schema
    assert not fail(status, body, constrained=False).refuses_schema, "a request without one is not repaired"


@pytest.mark.parametrize(("status", "body"), OTHER_FAILURES, ids=[json.dumps(body) for _, body in OTHER_FAILURES])
def test_other_failures_are_not_blamed_on_the_schema(status: int, body: Any) -> None:
    assert not fail(status, body).refuses_schema


def test_the_name_of_the_model_is_not_blamed() -> None:
    end = fail(400, {"error": {"message": "Unsupported value of temperature for json_schema"}}, model="json_schema")
    assert not end.refuses_schema


def test_a_constrained_reply_is_read_as_any_other() -> None:
    [request] = (exchange := converse(says('{"title": "x"}'), requests=[ASKING])).requests
    assert isinstance(exchange.replies[0][-1], Completed)
    assert request.json["response_format"]["json_schema"] == {"name": "answer", "schema": SCHEMA, "strict": True}
