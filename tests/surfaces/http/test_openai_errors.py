"""The errors that OpenAI clients receive, in OpenAI's format."""

import json
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.fake_endpoint import DONE, Answer, delta, usage
from tests.surfaces.http.compatible import talking
from treadle.domain.quotas import Quotas

GO: list[Any] = [{"role": "user", "content": "Go."}]
CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"


async def test_agents_are_listed_as_models(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        models = (await talk.client.models.list()).data
        assert [model.id for model in models] == ["asking", "one", "two"]
        assert {(model.object, model.owned_by) for model in models} == {("model", "treadle")}
        assert (await talk.client.models.retrieve("one")).id == "one"
        limited = talk.another(await talk.server.mint("run", agents=["two"]))
        assert [model.id for model in (await limited.models.list()).data] == ["two"]
        with pytest.raises(openai.NotFoundError):
            await limited.models.retrieve("one")
        with pytest.raises(openai.NotFoundError):
            await limited.chat.completions.create(model="one", messages=GO)


async def test_the_openai_client_raises_its_own_errors(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        create = talk.client.chat.completions.create
        with pytest.raises(openai.AuthenticationError) as unknown:
            await talk.another("trd_wrong").chat.completions.create(model="one", messages=GO)
        assert unknown.value.code == "invalid_api_key"
        reader = talk.another(await talk.server.mint("read"))
        with pytest.raises(openai.PermissionDeniedError):
            await reader.chat.completions.create(model="one", messages=GO)
        with pytest.raises(openai.NotFoundError) as missing:
            await create(model="nobody", messages=GO)
        assert missing.value.code == "model_not_found"
        with pytest.raises(openai.BadRequestError) as wrong:
            await create(model="one", messages=[])
        assert wrong.value.param == "messages"


async def test_spent_credits_become_an_openai_quota_error(tmp_path: Path) -> None:
    much = Answer([delta(role="assistant", content="Fine."), delta(finish="stop"), usage(60_000), DONE])

    async with talking(tmp_path, much) as talk:
        poor = talk.another(await talk.server.mint("run", quotas=Quotas(max_llm_tokens_per_hour=50_000)))
        await poor.chat.completions.create(model="one", messages=GO)
        with pytest.raises(openai.RateLimitError) as spent:
            await poor.chat.completions.create(model="one", messages=GO)
        assert spent.value.code == "rate_limit_exceeded"
        assert int(spent.value.response.headers["retry-after"]) > 0
        tiny = talk.another(await talk.server.mint("run", quotas=Quotas(max_llm_tokens_per_hour=1)))
        with pytest.raises(openai.RateLimitError, match="quota_exceeded") as ended:
            await tiny.chat.completions.create(model="one", messages=GO)
        assert ended.value.response.headers["x-should-retry"] == "false"
        broke = talk.another(await talk.server.mint("run", quotas=Quotas(credits=0)))
        with pytest.raises(openai.RateLimitError) as out_of_money:
            await broke.chat.completions.create(model="one", messages=GO)
        assert out_of_money.value.code == "insufficient_quota"
        assert out_of_money.value.response.headers["x-should-retry"] == "false"


async def test_a_paused_agent_is_not_retried(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        await talk.engine.service.set_agent_state("one", "paused")
        with pytest.raises(openai.ConflictError, match="paused") as refused:
            await talk.client.chat.completions.create(model="one", messages=GO)
        assert refused.value.response.headers["x-should-retry"] == "false"


REFUSED_IN_CHATS: list[tuple[str, Any]] = [
    ("n", 2), ("functions", [{"name": "x"}]), ("tools", [{"type": "function"}]), ("tool_choice", "perhaps"),
    ("max_tokens", 0), ("max_tokens", "many"), ("temperature", 3), ("temperature", -1), ("top_p", 1.5),
    ("frequency_penalty", 3), ("presence_penalty", -3), ("seed", "x"), ("stop", 3), ("logit_bias", [1]),
    ("max_completion_tokens", -1), ("reasoning_effort", "huge"), ("metadata", {"a": 1}), ("metadata", {"a b": "c"}),
    ("metadata", {"a": "x" * 513}),
    ("response_format", {"type": "json_schema"}),
    ("response_format", {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nothing"}}}),
    ("messages", "Go."), ("messages", [{"role": "assistant", "content": "Hi."}]), ("messages", []),
    ("messages", [{"role": "user", "content": "  "}]), ("model", 3),
]  # fmt: skip
REFUSED_IN_RESPONSES: list[tuple[str, Any]] = [
    ("tools", [{"type": "function"}]), ("tool_choice", {"type": "function"}), ("top_p", 1.5),
    ("prompt", {"id": "x"}), ("input", []), ("input", [{"type": "item_reference", "id": "x"}]),
    ("input", [{"type": "nonsense"}]),
    ("input", [{"content": "who says this?"}]), ("input", 3), ("max_output_tokens", 0), ("temperature", 9),
    ("input", [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]),
    ("input", [{"role": "user", "content": [{"type": "input_image", "image_url": "http://127.0.0.1/x.png"}]}]),
    ("text", {"format": {"type": "json_schema"}}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "sound", "refused"),
    [
        (CHAT, {"model": "one", "messages": GO}, REFUSED_IN_CHATS),
        (RESPONSES, {"model": "one", "input": "Go."}, REFUSED_IN_RESPONSES),
    ],
)
async def test_unsupported_parameters_are_refused_by_name(
    tmp_path: Path, path: str, sound: dict[str, Any], refused: list[tuple[str, Any]]
) -> None:
    async with talking(tmp_path) as talk:
        for param, value in refused:
            reply = await talk.server.ask("POST", path, sound | {param: value})
            assert reply.status == 400, (param, value)
            error = reply.json["error"]
            assert (error["param"] or "").split(".")[0].split("[")[0] == param
            assert error["type"] == "invalid_request_error", (param, value)
            assert error["message"], (param, value)


async def test_unknown_parameters_are_ignored(tmp_path: Path) -> None:
    unknown = {"store": False, "user": "u", "seed": 7, "service_tier": "auto", "wholly_new": {"x": 1}}
    harmless = {"n": 1, "top_p": 1, "logprobs": False, "stop": None, "tools": [], "modalities": ["text"]}

    async with talking(tmp_path) as talk:
        chat = {"model": "one", "messages": GO} | unknown | harmless
        assert (await talk.server.ask("POST", CHAT, chat)).status == 200
        told = {"model": "one", "input": "Go.", "truncation": "auto"} | unknown
        assert (await talk.server.ask("POST", RESPONSES, told)).status == 200


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
async def test_an_invalid_body_is_refused(tmp_path: Path, path: str) -> None:
    async with talking(tmp_path) as talk:
        for body in (b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"model": "one"}'):
            reply = await talk.server.ask("POST", path, body)
            assert reply.status == 400, body[:20]
            assert set(reply.json["error"]) == {"message", "type", "param", "code"}, body[:20]


async def test_every_error_of_these_paths_has_their_shape(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        ask = talk.server.ask
        found = [
            (401, await ask("GET", "/v1/models", token="")),
            (401, await ask("POST", CHAT, {}, token="trd_x")),
            (403, await ask("GET", "/v1/models", Origin="https://evil.example")),
            (421, await ask("GET", "/v1/models", Host="evil.example")),
            (404, await ask("GET", "/v1/models/nobody")),
            (404, await ask("GET", "/v1/responses/resp_run_none")),
            (404, await ask("GET", "/v1/responses/nothing")),
            (404, await ask("POST", "/v1/responses/resp_run_none/cancel")),
            (404, await ask("GET", "/v1/chat/completions/chatcmpl-x")),
            (404, await ask("POST", "/v1/embeddings", {"model": "one", "input": "x"})),
            (404, await ask("GET", "/v1/files/x/content")),
            (405, await ask("PUT", "/v1/responses/resp_run_none")),
            (405, await ask("GET", CHAT)),
            (400, await ask("POST", CHAT, {}, Idempotency_Key="x" * 300)),
        ]
        for status, reply in found:
            assert reply.status == status, reply
            assert reply.headers["content-type"] == "application/json"
            assert set(json.loads(reply.body)["error"]) == {"message", "type", "param", "code"}
        assert (await ask("GET", "/v1/runs/none")).problem == "UnknownRun"
