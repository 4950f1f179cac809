"""Documented behaviours of OpenAI's API, as its official Python client shows them. Each function is one behaviour;
those of Node.js are in `tests/peers/openai_behaviours.mjs`."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import openai
from pydantic import BaseModel

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PICTURE = f"data:image/png;base64,{PIXEL}"
PARAMETERS: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION: dict[str, Any] = {"name": "weather", "description": "Tell the weather.", "parameters": PARAMETERS}
CHAT_TOOL: dict[str, Any] = {"type": "function", "function": FUNCTION}
TOOL: dict[str, Any] = {"type": "function", **FUNCTION}
GO: list[dict[str, Any]] = [{"role": "user", "content": "Say something."}]
CALL_IT: list[dict[str, Any]] = [{"role": "user", "content": "call weather"}]
Client = Any
Behaviour = Callable[[Client], Awaitable[None]]
BEHAVIOURS: Final[list[Behaviour]] = []


class Point(BaseModel):
    x: int


def behaviour(function: Behaviour) -> Behaviour:
    BEHAVIOURS.append(function)
    return function


async def complete(client: Client, messages: Any = GO, **more: Any) -> Any:
    return await client.chat.completions.create(**{"model": "one", "messages": messages} | more)


async def respond(client: Client, input_: Any = "Say something.", **more: Any) -> Any:
    return await client.responses.create(**{"model": "one", "input": input_} | more)


async def raises(kind: type[openai.APIError], awaited: Awaitable[Any]) -> Any:
    try:
        await awaited
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__} was raised")


# ── Models ─────────────────────────────────────────────────────────────────────────────────────────


@behaviour
async def models_are_listed(client: Client) -> None:
    listed = await client.models.list()
    assert {model.id for model in listed.data} >= {"one", "two"}
    assert listed.object == "list"


@behaviour
async def models_can_be_iterated(client: Client) -> None:
    assert "one" in [model.id async for model in client.models.list()]


@behaviour
async def a_model_is_retrieved(client: Client) -> None:
    model = await client.models.retrieve("one")
    assert (model.id, model.object) == ("one", "model")
    assert model.created > 0


@behaviour
async def an_unknown_model_is_not_found(client: Client) -> None:
    assert (await raises(openai.NotFoundError, client.models.retrieve("nobody"))).code == "model_not_found"


# ── Chat completions ───────────────────────────────────────────────────────────────────────────────


@behaviour
async def a_completion_has_a_choice(client: Client) -> None:
    made = await complete(client)
    assert made.object == "chat.completion"
    assert made.id.startswith("chatcmpl-")
    assert made.model == "one"
    assert made.created > 0
    [choice] = made.choices
    assert (choice.index, choice.finish_reason, choice.message.role) == (0, "stop", "assistant")
    assert choice.message.content == "Fine."


@behaviour
async def a_completion_has_usage(client: Client) -> None:
    used = (await complete(client)).usage
    assert used.prompt_tokens + used.completion_tokens == used.total_tokens > 0
    assert used.prompt_tokens_details.cached_tokens == 0


@behaviour
async def a_developer_message_is_accepted(client: Client) -> None:
    assert (await complete(client, [{"role": "developer", "content": "Be kind."}, *GO])).choices[0].message.content


@behaviour
async def a_system_message_is_accepted(client: Client) -> None:
    assert (await complete(client, [{"role": "system", "content": "Be kind."}, *GO])).choices[0].message.content


@behaviour
async def content_parts_are_accepted(client: Client) -> None:
    parts = [{"type": "text", "text": "Say"}, {"type": "text", "text": " something."}]
    assert (await complete(client, [{"role": "user", "content": parts}])).choices[0].message.content == "Fine."


@behaviour
async def an_image_is_accepted(client: Client) -> None:
    parts = [
        {"type": "text", "text": "What?"},
        {"type": "image_url", "image_url": {"url": PICTURE, "detail": "low"}},
    ]
    assert (await complete(client, [{"role": "user", "content": parts}])).choices[0].message.content


@behaviour
async def a_conversation_of_several_turns_is_accepted(client: Client) -> None:
    turns = [*GO, {"role": "assistant", "content": "Fine."}, {"role": "user", "content": "And?"}]
    assert (await complete(client, turns)).choices[0].message.content


@behaviour
async def a_name_of_a_message_is_accepted(client: Client) -> None:
    assert (await complete(client, [{**GO[0], "name": "ada"}])).choices


@behaviour
async def max_completion_tokens_is_accepted(client: Client) -> None:
    assert (await complete(client, max_completion_tokens=50)).choices


@behaviour
async def max_tokens_is_accepted(client: Client) -> None:
    assert (await complete(client, max_tokens=50)).choices


@behaviour
async def sampling_is_accepted(client: Client) -> None:
    assert (await complete(client, temperature=0.2, top_p=0.9, seed=7, logit_bias={"1": 1})).choices


@behaviour
async def penalties_are_accepted(client: Client) -> None:
    assert (await complete(client, frequency_penalty=0.5, presence_penalty=-0.5)).choices


@behaviour
async def a_stop_text_ends_the_answer(client: Client) -> None:
    made = await complete(client, stop="ne")
    assert (made.choices[0].message.content, made.choices[0].finish_reason) == ("Fi", "stop")


@behaviour
async def several_stop_texts_are_accepted(client: Client) -> None:
    assert (await complete(client, stop=["zzz", "i"])).choices[0].message.content == "F"


@behaviour
async def reasoning_effort_is_accepted(client: Client) -> None:
    assert (await complete(client, reasoning_effort="low")).choices


@behaviour
async def metadata_and_user_are_accepted(client: Client) -> None:
    assert (await complete(client, metadata={"a": "b"}, safety_identifier="u")).choices


@behaviour
async def parameters_without_effect_are_accepted(client: Client) -> None:
    useless = {"logprobs": True, "top_logprobs": 2, "service_tier": "auto", "store": False, "verbosity": "low"}
    assert (await complete(client, **useless)).choices


@behaviour
async def a_stream_has_deltas(client: Client) -> None:
    chunks = [chunk async for chunk in await complete(client, stream=True)]
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Fine."
    assert chunks[-1].choices[0].finish_reason == "stop"


@behaviour
async def a_stream_has_usage_on_request(client: Client) -> None:
    stream = await complete(client, stream=True, stream_options={"include_usage": True})
    *chunks, last = [chunk async for chunk in stream]
    assert all(chunk.usage is None for chunk in chunks)
    assert last.choices == []
    assert last.usage.total_tokens > 0


@behaviour
async def the_stream_helper_of_chat_returns_the_whole(client: Client) -> None:
    async with client.chat.completions.stream(model="one", messages=GO) as stream:
        kinds = {event.type async for event in stream}
        final = await stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert final.choices[0].message.content == "Fine."


@behaviour
async def a_stream_can_be_closed_early(client: Client) -> None:
    stream = await complete(client, stream=True)
    await anext(aiter(stream))
    await stream.close()


@behaviour
async def a_json_schema_is_parsed(client: Client) -> None:
    made = await client.chat.completions.parse(
        model="one", messages=[{"role": "user", "content": "json"}], response_format=Point
    )
    assert made.choices[0].message.parsed == Point(x=1)


@behaviour
async def a_json_object_is_returned(client: Client) -> None:
    made = await complete(client, [{"role": "user", "content": "json"}], response_format={"type": "json_object"})
    assert made.choices[0].message.content == '{"x": 1}'


@behaviour
async def a_tool_is_called(client: Client) -> None:
    choice = (await complete(client, CALL_IT, tools=[CHAT_TOOL])).choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    [call] = choice.message.tool_calls
    assert (call.type, call.function.name, call.function.arguments) == ("function", "weather", '{"city": "Ulm"}')


@behaviour
async def a_tool_result_is_answered(client: Client) -> None:
    message = (await complete(client, CALL_IT, tools=[CHAT_TOOL])).choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sun"}
    made = await complete(client, [*CALL_IT, message, result], tools=[CHAT_TOOL])
    assert made.choices[0].message.content == "It is sun."


@behaviour
async def parallel_calls_have_ids_of_their_own(client: Client) -> None:
    asked = [{"role": "user", "content": "call weather twice"}]
    message = (await complete(client, asked, tools=[CHAT_TOOL])).choices[0].message
    assert len({call.id for call in message.tool_calls}) == 2
    results = [{"role": "tool", "tool_call_id": call.id, "content": "sun"} for call in message.tool_calls]
    assert (await complete(client, [*asked, message, *results], tools=[CHAT_TOOL])).choices[0].message.content


@behaviour
async def a_call_is_streamed(client: Client) -> None:
    chunks = [chunk async for chunk in await complete(client, CALL_IT, tools=[CHAT_TOOL], stream=True)]
    deltas = [chunk.choices[0].delta.tool_calls for chunk in chunks]
    pieces = [each[0] for each in deltas if each]
    assert pieces[0].id
    assert "".join(piece.function.arguments or "" for piece in pieces) == '{"city": "Ulm"}'
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


@behaviour
async def tool_choice_none_calls_nothing(client: Client) -> None:
    made = await complete(client, GO, tools=[CHAT_TOOL], tool_choice="none")
    assert made.choices[0].finish_reason == "stop"


@behaviour
async def tool_choice_required_is_accepted(client: Client) -> None:
    assert (
        (await complete(client, CALL_IT, tools=[CHAT_TOOL], tool_choice="required")).choices[0].message.tool_calls
    )


@behaviour
async def tool_choice_of_one_function_is_accepted(client: Client) -> None:
    choice = {"type": "function", "function": {"name": "weather"}}
    assert (await complete(client, CALL_IT, tools=[CHAT_TOOL], tool_choice=choice)).choices[0].message.tool_calls


@behaviour
async def parallel_tool_calls_is_accepted(client: Client) -> None:
    assert (await complete(client, CALL_IT, tools=[CHAT_TOOL], parallel_tool_calls=False)).choices


@behaviour
async def a_custom_tool_is_called(client: Client) -> None:
    tool = {"type": "custom", "custom": {"name": "weather", "description": "Any text."}}
    [call] = (await complete(client, CALL_IT, tools=[tool])).choices[0].message.tool_calls
    assert (call.type, call.custom.name) == ("custom", "weather")


# ── Responses ──────────────────────────────────────────────────────────────────────────────────────


@behaviour
async def a_response_has_text(client: Client) -> None:
    made = await respond(client)
    assert (made.object, made.status, made.output_text) == ("response", "completed", "Fine.")
    assert made.id.startswith("resp_")
    assert made.error is None
    assert made.incomplete_details is None


@behaviour
async def a_response_has_usage(client: Client) -> None:
    used = (await respond(client)).usage
    assert used.input_tokens + used.output_tokens == used.total_tokens
    assert used.output_tokens_details.reasoning_tokens == 0


@behaviour
async def a_response_has_an_output_message(client: Client) -> None:
    [item] = (await respond(client)).output
    assert (item.type, item.role, item.status) == ("message", "assistant", "completed")
    assert (item.content[0].type, item.content[0].annotations) == ("output_text", [])


@behaviour
async def instructions_are_returned(client: Client) -> None:
    assert (await respond(client, instructions="Be kind.")).instructions == "Be kind."


@behaviour
async def metadata_is_returned(client: Client) -> None:
    assert (await respond(client, metadata={"a": "b"})).metadata == {"a": "b"}


@behaviour
async def temperature_and_top_p_are_returned(client: Client) -> None:
    made = await respond(client, temperature=0.3, top_p=0.7)
    assert (made.temperature, made.top_p) == (0.3, 0.7)


@behaviour
async def max_output_tokens_is_returned(client: Client) -> None:
    assert (await respond(client, max_output_tokens=50)).max_output_tokens == 50


@behaviour
async def reasoning_is_returned(client: Client) -> None:
    assert (await respond(client, reasoning={"effort": "low"})).reasoning.effort == "low"


@behaviour
async def input_items_are_accepted(client: Client) -> None:
    items = [
        {"type": "message", "role": "developer", "content": "Be kind."},
        {"role": "user", "content": [{"type": "input_text", "text": "Say something."}]},
    ]
    assert (await respond(client, items)).output_text == "Fine."


@behaviour
async def an_input_image_is_accepted(client: Client) -> None:
    parts = [
        {"type": "input_text", "text": "What?"},
        {"type": "input_image", "image_url": PICTURE, "detail": "auto"},
    ]
    assert (await respond(client, [{"role": "user", "content": parts}])).output_text


@behaviour
async def the_output_can_be_sent_as_input(client: Client) -> None:
    first = await respond(client)
    items = [{"role": "user", "content": "Say something."}, *first.output, {"role": "user", "content": "And?"}]
    assert (await respond(client, items)).output_text


@behaviour
async def a_response_continues_the_previous_one(client: Client) -> None:
    first = await respond(client)
    second = await respond(client, "And?", previous_response_id=first.id)
    assert second.previous_response_id == first.id


@behaviour
async def a_conversation_is_continued(client: Client) -> None:
    first = await respond(client)
    second = await respond(client, "And?", conversation=first.conversation.id)
    assert second.conversation.id == first.conversation.id


@behaviour
async def a_response_is_retrieved(client: Client) -> None:
    made = await respond(client)
    assert await client.responses.retrieve(made.id) == made


@behaviour
async def a_background_response_is_polled(client: Client) -> None:
    made = await respond(client, background=True)
    assert made.status in ("queued", "in_progress")
    while made.status in ("queued", "in_progress"):
        made = await client.responses.retrieve(made.id)
    assert made.output_text == "Fine."


@behaviour
async def a_response_that_has_ended_stays_when_it_is_cancelled(client: Client) -> None:
    made = await respond(client)
    assert (await client.responses.cancel(made.id)).status == "completed"


@behaviour
async def input_items_are_listed(client: Client) -> None:
    made = await respond(client)
    [item] = (await client.responses.input_items.list(made.id)).data
    assert item.content[0].text == "Say something."


@behaviour
async def an_unstored_response_is_not_found(client: Client) -> None:
    made = await respond(client, store=False)
    await raises(openai.NotFoundError, client.responses.retrieve(made.id))


@behaviour
async def a_stream_of_events_ends_with_the_response(client: Client) -> None:
    events = [event async for event in await respond(client, stream=True)]
    assert events[0].type == "response.created"
    assert events[-1].type == "response.completed"
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "Fine."


@behaviour
async def the_stream_helper_of_responses_returns_the_whole(client: Client) -> None:
    async with client.responses.stream(model="one", input="Say something.") as stream:
        async for _ in stream:
            pass
        assert (await stream.get_final_response()).output_text == "Fine."


@behaviour
async def a_background_stream_is_continued(client: Client) -> None:
    last, response_id = -1, ""
    async for event in await respond(client, background=True, stream=True):
        last = event.sequence_number
        if event.type == "response.created":
            response_id = event.response.id
            break
    rest = await client.responses.retrieve(response_id, stream=True, starting_after=last)
    events = [event async for event in rest]
    assert all(event.sequence_number > last for event in events)
    assert events[-1].response.output_text == "Fine."


@behaviour
async def a_schema_of_a_response_is_parsed(client: Client) -> None:
    assert (await client.responses.parse(model="one", input="json", text_format=Point)).output_parsed == Point(x=1)


@behaviour
async def a_function_call_is_an_item(client: Client) -> None:
    [item] = (await respond(client, "call weather", tools=[TOOL])).output
    assert (item.type, item.name, item.arguments, item.status) == (
        "function_call", "weather", '{"city": "Ulm"}', "completed",
    )  # fmt: skip


@behaviour
async def a_function_call_output_is_answered(client: Client) -> None:
    first = await respond(client, "call weather", tools=[TOOL])
    output = {"type": "function_call_output", "call_id": first.output[0].call_id, "output": "sun"}
    second = await respond(client, [output], previous_response_id=first.id, tools=[TOOL])
    assert second.output_text == "It is sun."


@behaviour
async def a_function_call_output_is_answered_without_a_stored_response(client: Client) -> None:
    first = await respond(client, "call weather", tools=[TOOL], store=False)
    output = {"type": "function_call_output", "call_id": first.output[0].call_id, "output": "sun"}
    items = [{"role": "user", "content": "call weather"}, *first.output, output]
    assert (await respond(client, items, tools=[TOOL], store=False)).output_text == "It is sun."


@behaviour
async def a_function_call_is_streamed(client: Client) -> None:
    events = [event async for event in await respond(client, "call weather", tools=[TOOL], stream=True)]
    deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert "".join(deltas) == '{"city": "Ulm"}'


@behaviour
async def allowed_tools_are_accepted(client: Client) -> None:
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "weather"}]}
    assert (await respond(client, "call weather", tools=[TOOL], tool_choice=choice)).output[0].name == "weather"


@behaviour
async def a_custom_tool_call_is_an_item(client: Client) -> None:
    tool = {"type": "custom", "name": "weather"}
    [item] = (await respond(client, "call weather", tools=[tool])).output
    assert (item.type, item.name) == ("custom_tool_call", "weather")


# ── Errors and transport ───────────────────────────────────────────────────────────────────────────


@behaviour
async def a_wrong_key_is_an_authentication_error(client: Client) -> None:
    wrong = client.with_options(api_key="trd_wrong")
    assert (await raises(openai.AuthenticationError, wrong.models.list())).code == "invalid_api_key"


@behaviour
async def an_unknown_agent_is_a_not_found_error(client: Client) -> None:
    assert (await raises(openai.NotFoundError, complete(client, model="nobody"))).code == "model_not_found"


@behaviour
async def several_answers_are_a_bad_request(client: Client) -> None:
    assert (await raises(openai.BadRequestError, complete(client, n=2))).param == "n"


@behaviour
async def an_empty_conversation_is_a_bad_request(client: Client) -> None:
    assert (await raises(openai.BadRequestError, complete(client, []))).param == "messages"


@behaviour
async def a_temperature_out_of_bounds_is_a_bad_request(client: Client) -> None:
    assert (await raises(openai.BadRequestError, complete(client, temperature=3))).param == "temperature"


@behaviour
async def an_unknown_response_is_a_not_found_error(client: Client) -> None:
    await raises(openai.NotFoundError, client.responses.retrieve("resp_run_none"))


@behaviour
async def embeddings_are_a_not_found_error(client: Client) -> None:
    error = await raises(openai.NotFoundError, client.embeddings.create(model="one", input="x"))
    assert "/v1/embeddings" in error.message


@behaviour
async def a_raw_response_has_headers(client: Client) -> None:
    raw = await client.chat.completions.with_raw_response.create(model="one", messages=GO)
    assert raw.headers["x-treadle-session"].startswith("ses_")
    assert raw.parse().choices[0].message.content == "Fine."


@behaviour
async def a_key_makes_a_request_idempotent(client: Client) -> None:
    key = {"Idempotency-Key": "behaviour"}
    first, second = [await respond(client, extra_headers=key) for _ in range(2)]
    assert first.id == second.id


@behaviour
async def requests_run_at_the_same_time(client: Client) -> None:
    made = await asyncio.gather(*(complete(client) for _ in range(5)))
    assert len({each.id for each in made}) == 5


@behaviour
async def extra_fields_of_the_body_are_accepted(client: Client) -> None:
    assert (await complete(client, extra_body={"wholly_new": {"x": 1}})).choices


@behaviour
async def a_timeout_can_be_set(client: Client) -> None:
    assert (await complete(client.with_options(timeout=30.0))).choices
