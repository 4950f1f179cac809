"""Tools that an OpenAI client brings and runs itself, by the official client."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.fake_endpoint import DONE, PAUSE, Answer, Behaviour, FakeEndpoint, calls, delta, fragment, says, usage
from tests.surfaces.http.compatible import PIXEL, Talking, talking
from tests.surfaces.http.process import Serving
from tests.surfaces.http.served_home import write_home
from tests.surfaces.shell import Shell
from treadle.domain.ids import RunId

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
GO: list[Any] = [{"role": "user", "content": "The weather?"}]
NAMES = ("weather", "clock")
CHAT_TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "description": f"Tell the {name}.", "parameters": SCHEMA}}
    for name in NAMES
]
TOOLS: list[Any] = [{"type": "function", **tool["function"], "strict": True} for tool in CHAT_TOOLS]
ARGUMENTS = '{"city": "Ulm"}'


def asks(*names: str, text: str = "") -> Behaviour:
    """Return a reply that calls these tools."""
    fragments = [fragment(place, f"model_{place}", name, ARGUMENTS) for place, name in enumerate(names)]
    opening = [delta(role="assistant", content=text)] if text else []
    return Answer([*opening, delta(tool_calls=fragments), delta(finish="tool_calls"), usage(), DONE])


async def complete(talk: Talking, messages: Sequence[Any], *, stream: bool = False, **more: Any) -> Any:
    """Return the message of a completion, and why it ended."""
    asked: dict[str, Any] = {"model": "one", "messages": messages, "tools": CHAT_TOOLS} | more
    if not stream:
        choice = (await talk.client.chat.completions.create(**asked)).choices[0]
    else:
        async with talk.client.chat.completions.stream(**asked) as events:
            choice = (await events.get_final_completion()).choices[0]
    return choice


def results_of(message: Any, *texts: str) -> list[Any]:
    """Return the turn of the assistant and the results of its calls, as a client sends them."""
    made = [
        {"role": "tool", "tool_call_id": call.id, "content": text}
        for call, text in zip(message.tool_calls, texts, strict=True)
    ]
    return [message.model_dump(exclude_none=True, exclude={"parsed"}), *made]


async def respond(talk: Talking, input_: Any, *, stream: bool = False, **more: Any) -> Any:
    asked: dict[str, Any] = {"model": "one", "input": input_, "tools": TOOLS} | more
    if not stream:
        return await talk.client.responses.create(**asked)
    async with talk.client.responses.stream(**asked) as events:
        return await events.get_final_response()


def outputs_of(response: Any, *texts: str) -> list[Any]:
    called = [item for item in response.output if item.type == "function_call"]
    return [
        {"type": "function_call_output", "call_id": item.call_id, "output": text}
        for item, text in zip(called, texts, strict=True)
    ]


def _dump(item: Any) -> Any:
    """Return an item without what the helper of the client adds to it."""
    dumped = item.model_dump(exclude={"parsed_arguments"})
    for part in dumped.get("content") or ():
        part.pop("parsed", None)
    return dumped


def told(talk: Talking) -> list[str]:
    """Return the last lines of what the model was told: a result that took long has a header."""
    told = [message["content"] for message in talk.sent if message["role"] in ("user", "tool")]
    return [content.rpartition("\n")[2] for content in told]


async def count_runs(talk: Talking) -> int:
    return len(await talk.engine.service.runs())


@pytest.mark.parametrize("stream", [False, True])
async def test_a_completion_calls_tools_and_goes_on_with_their_results(tmp_path: Path, stream: bool) -> None:
    async with talking(tmp_path, asks(*NAMES, text="I look."), asks("weather"), says("Sunny.")) as talk:
        first = await complete(talk, GO, stream=stream)
        assert (first.finish_reason, first.message.content) == ("tool_calls", "I look.")
        assert [call.function.name for call in first.message.tool_calls] == list(NAMES)
        assert [json.loads(call.function.arguments) for call in first.message.tool_calls] == [{"city": "Ulm"}] * 2
        history = [*GO, *results_of(first.message, "rain", "noon")]
        second = await complete(talk, history, stream=stream)
        assert told(talk)[-2:] == ["rain", "noon"]
        assert [one["role"] for one in talk.sent] == ["user", "assistant", "tool", "tool"]
        last = await complete(talk, [*history, *results_of(second.message, "sun")], stream=stream)
        assert (last.finish_reason, last.message.content) == ("stop", "Sunny.")
        assert await count_runs(talk) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("linked", [False, True])
async def test_a_response_calls_tools_and_goes_on_with_their_results(
    tmp_path: Path, stream: bool, linked: bool
) -> None:
    async with talking(tmp_path, asks(*NAMES, text="I look."), asks("weather"), says("Sunny.")) as talk:
        history: list[Any] = list(GO)
        first = await respond(talk, history, stream=stream)
        assert first.status == "completed"
        assert [item.type for item in first.output] == ["message", "function_call", "function_call"]
        assert [item.name for item in first.output[1:]] == list(NAMES)
        assert first.usage.output_tokens == 5

        def go_on(response: Any, *texts: str) -> dict[str, Any]:
            if linked:
                return {"input_": outputs_of(response, *texts), "previous_response_id": response.id}
            history.extend(item.model_dump(exclude_none=True) for item in response.output)
            history.extend(outputs_of(response, *texts))
            return {"input_": history}

        second = await respond(talk, stream=stream, **go_on(first, "rain", "noon"))
        assert told(talk)[-2:] == ["rain", "noon"]
        last = await respond(talk, stream=stream, **go_on(second, "sun"))
        assert (last.output_text, last.usage.output_tokens) == ("Sunny.", 5)
        assert len({first.id, second.id, last.id}) == 3
        assert await count_runs(talk) == 1
        for made in (first, second, last):
            kept = await talk.client.responses.retrieve(made.id)
            assert list(map(_dump, kept.output)) == list(map(_dump, made.output))
            assert (kept.status, kept.usage) == (made.status, made.usage)
        [one, two] = (await talk.client.responses.input_items.list(second.id, order="asc")).data
        assert (one.output, two.output) == ("rain", "noon")


async def test_deltas_of_calls_are_those_of_openai(tmp_path: Path) -> None:
    async with talking(tmp_path, asks("weather"), asks("weather")) as talk:
        stream = await talk.client.chat.completions.create(
            model="one", messages=GO, tools=CHAT_TOOLS, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        pieces = [
            chunk.choices[0].delta.tool_calls[0]
            for chunk in chunks
            if chunk.choices and chunk.choices[0].delta.tool_calls
        ]
        assert [(piece.index, piece.type, bool(piece.id)) for piece in pieces] == [
            (0, "function", True),
            (0, None, False),
        ]
        assert pieces[0].function.name == "weather"
        assert "".join(piece.function.arguments or "" for piece in pieces) == ARGUMENTS
        assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "tool_calls"
        assert chunks[-1].usage.total_tokens == 15
        events: list[Any] = []
        async with talk.client.responses.stream(model="one", input="Go.", tools=TOOLS) as responses:
            events = [event async for event in responses]
        assert [event.type.removeprefix("response.") for event in events] == [
            "created", "in_progress", "output_item.added", "function_call_arguments.delta",
            "function_call_arguments.done", "output_item.done", "completed",
        ]  # fmt: skip
        assert events[2].item.arguments == ""
        assert (events[4].arguments, events[4].name) == (ARGUMENTS, "weather")


@pytest.mark.parametrize("stream", [False, True])
async def test_the_same_results_again_have_the_same_answer(tmp_path: Path, stream: bool) -> None:
    async with talking(tmp_path, asks("weather"), asks("clock"), says("Sunny.")) as talk:
        first = await complete(talk, GO, stream=stream)
        history = [*GO, *results_of(first.message, "rain")]
        second = await complete(talk, history, stream=stream)
        again = await complete(talk, history, stream=stream)
        assert again.message.tool_calls[0].id == second.message.tool_calls[0].id
        history += results_of(second.message, "noon")
        last = [await complete(talk, history, stream=stream) for _ in range(2)]
        assert [each.message.content for each in last] == ["Sunny.", "Sunny."]
        whole = (await complete(talk, [*GO, *results_of(first.message, "rain")], stream=stream)).message
        assert whole.tool_calls[0].id == second.message.tool_calls[0].id, "even when the run has gone on"
        assert len(talk.endpoint.requests) == 3


async def test_results_for_a_run_that_is_gone_start_a_session(tmp_path: Path) -> None:
    async with talking(tmp_path, asks("weather"), says("Rainy.")) as talk:
        first = await complete(talk, GO)
        [run] = await talk.engine.service.runs()
        await talk.engine.service.cancel(run.origin.run_id)
        await talk.engine.service.wait(run.origin.run_id)
        answer = await complete(talk, [*GO, *results_of(first.message, "rain")])
        assert answer.message.content == "Rainy."
        assert [one["role"] for one in talk.sent] == ["user", "assistant", "user"]
        assert "rain" in talk.sent[-1]["content"]
        assert await count_runs(talk) == 2


async def test_another_result_than_before_starts_a_session(tmp_path: Path) -> None:
    async with talking(tmp_path, asks("weather"), says("Rainy."), says("Snowy.")) as talk:
        first = await complete(talk, GO)
        await complete(talk, [*GO, *results_of(first.message, "rain")])
        other = await complete(talk, [*GO, *results_of(first.message, "snow")])
        assert other.message.content == "Snowy."
        assert "rain" not in str(talk.sent)


async def test_a_later_turn_shows_the_model_the_calls_of_the_earlier_ones(tmp_path: Path) -> None:
    async with talking(tmp_path, asks("weather"), says("Rainy."), says("You are welcome.")) as talk:
        first = await complete(talk, GO)
        history = [*GO, *results_of(first.message, "rain"), {"role": "assistant", "content": "Rainy."}]
        await complete(talk, history[:-1])
        await complete(talk, [*history, {"role": "user", "content": "Thanks."}])
        assert [one["role"] for one in talk.sent] == ["user", "assistant", "tool", "assistant", "user"]
        assert talk.sent[1]["tool_calls"][0]["function"]["name"] == "weather"


@pytest.mark.parametrize("has_ended", [False, True])
async def test_words_of_the_user_after_results_are_answered(tmp_path: Path, has_ended: bool) -> None:
    """By the run that has the results or, if it has ended without them, by the next one of its session."""
    slow = Answer([PAUSE, delta(role="assistant", content="Rainy."), delta(finish="stop"), usage(), DONE])
    async with talking(tmp_path, asks("weather"), slow, says("Regen.")) as talk:
        first = await complete(talk, GO)
        [run] = await talk.engine.service.runs()
        history = [*GO, *results_of(first.message, "rain")]
        if has_ended:
            talk.endpoint.go_on.set()
            assert (await complete(talk, history)).message.content == "Rainy."
        asking = asyncio.create_task(complete(talk, [*history, {"role": "user", "content": "In German."}]))
        while not has_ended and not await was_steered(talk, run.origin.run_id):  # noqa: ASYNC110 -- as a client looks
            await asyncio.sleep(0)
        talk.endpoint.go_on.set()
        assert (await asking).message.content.endswith("Regen.")
        said = [one["content"] for one in talk.sent if one["role"] in ("user", "tool")]
        assert said[1:] == ["rain", "In German."]
        assert await count_runs(talk) == 1 + has_ended


async def was_steered(talk: Talking, run_id: RunId) -> bool:
    return any([event.type == "message_steered" async for event in talk.engine.service.read_stored(run_id)])


async def test_a_call_without_a_result_is_refused_by_name(tmp_path: Path) -> None:
    async with talking(tmp_path, asks(*NAMES), says("Fine.")) as talk:
        first = await complete(talk, GO)
        whole = results_of(first.message, "rain", "noon")
        with pytest.raises(openai.BadRequestError, match="clock has no result"):
            await complete(talk, [*GO, *whole[:2]])
        assert (await complete(talk, [*GO, *whole])).message.content == "Fine."


async def test_a_client_that_changes_its_tools_starts_a_session(tmp_path: Path) -> None:
    async with talking(tmp_path, asks("weather"), says("Handed over.")) as talk:
        first = await complete(talk, GO)
        other: list[Any] = [{"type": "function", "function": {"name": "refund"}}]
        answer = await complete(talk, [*GO, *results_of(first.message, "to sales")], tools=other)
        assert answer.message.content == "Handed over."
        assert [tool["function"]["name"] for tool in talk.endpoint.requests[-1].json["tools"]] == ["refund"]
        _, old = await talk.engine.service.wait((await talk.engine.service.runs())[1].origin.run_id)
        assert old.outcome == "cancelled"


CHOICES: list[tuple[Any, Any, Sequence[str]]] = [
    ("auto", None, NAMES),
    ("none", "none", NAMES),
    ("required", "required", NAMES),
    ({"type": "function", "name": "clock"}, {"type": "function", "function": {"name": "clock"}}, ["clock"]),
    (
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "weather"}]},
        None,
        ["weather"],
    ),
    (
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": n} for n in NAMES]},
        "required",
        NAMES,
    ),
]


@pytest.mark.parametrize(("choice", "sent", "offered"), CHOICES)
async def test_every_tool_choice_reaches_the_model(
    tmp_path: Path, choice: Any, sent: Any, offered: Sequence[str]
) -> None:
    def nest(choice: Any) -> Any:
        """Return the choice in the form of chat completions."""
        if isinstance(choice, str):
            return choice
        if choice["type"] == "function":
            return {"type": "function", "function": {"name": choice["name"]}}
        tools = [{"type": "function", "function": {"name": tool["name"]}} for tool in choice["tools"]]
        return {"type": "allowed_tools", "allowed_tools": {"mode": choice["mode"], "tools": tools}}

    async with talking(tmp_path, says("Fine."), says("Fine.")) as talk:
        await respond(talk, "Go.", tool_choice=choice, parallel_tool_calls=False)
        await complete(talk, GO, tool_choice=nest(choice), parallel_tool_calls=False)
        for request in talk.endpoint.requests:
            assert request.json.get("tool_choice") == sent
            assert [tool["function"]["name"] for tool in request.json["tools"]] == list(offered)
            assert request.json["parallel_tool_calls"] is False


async def test_a_choice_of_a_missing_tool_is_refused(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        wrong: list[Any] = [
            "perhaps", {"type": "function"}, {"type": "function", "function": {"name": "nothing"}},
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"name": "nothing"}]}},
        ]  # fmt: skip
        for choice in wrong:
            with pytest.raises(openai.BadRequestError) as refused:
                await complete(talk, GO, tool_choice=choice)
            assert (refused.value.param or "").startswith("tool_choice")
        named: list[Any] = [{"type": "function", "function": {"name": "a b"}}]
        unusable: list[Any] = ["x", [3], [{}], [{"type": "function"}], named]
        for tools in unusable:
            with pytest.raises(openai.BadRequestError) as refused:
                await complete(talk, GO, tools=tools)
            assert (refused.value.param or "").startswith("tools")


async def test_a_name_of_the_agents_own_tool_stays_that_of_the_client(tmp_path: Path) -> None:
    glob: list[Any] = [{"type": "function", "function": {"name": "glob", "parameters": SCHEMA}}]

    async with talking(tmp_path, asks("client__glob"), says("Found."), more="tools: [glob]") as talk:
        first = await complete(talk, GO, tools=glob)
        assert first.message.tool_calls[0].function.name == "glob"
        answer = await complete(talk, [*GO, *results_of(first.message, "a.txt")], tools=glob)
        assert answer.message.content == "Found."


async def test_the_agents_own_tools_run_before_those_of_the_client(tmp_path: Path) -> None:
    own = calls(fragment(0, "c1", "glob", '{"pattern": "*"}'))

    async with talking(tmp_path, own, asks("weather"), says("Done."), more="tools: [glob]") as talk:
        first = await respond(talk, "Go.", stream=True)
        assert [item.type for item in first.output] == ["function_call"]
        done = await respond(talk, outputs_of(first, "rain"), previous_response_id=first.id)
        assert done.output_text == "Done."


async def test_freeform_and_shell_tools_have_items_of_their_own(tmp_path: Path) -> None:
    patch, shell = '{"input": "*** Begin"}', '{"command": ["ls", "-l"], "timeout_ms": 5}'
    fragments = [fragment(0, "a", "apply_patch", patch), fragment(1, "b", "local_shell", shell)]
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}
    tools: list[Any] = [
        {"type": "custom", "name": "apply_patch", "description": "Patch.", "format": grammar},
        {"type": "local_shell"},
        {"type": "web_search"},
    ]

    async with talking(tmp_path, calls(*fragments), says("Patched.")) as talk:
        raw = talk.client.responses.with_raw_response
        reply = await raw.create(model="one", input="Go.", tools=tools)
        assert reply.headers["x-treadle-ignored"] == "tools.web_search"
        first = reply.parse()
        custom, local = first.output
        assert (custom.type, custom.name, custom.input) == ("custom_tool_call", "apply_patch", "*** Begin")
        assert (local.type, local.action.command, local.action.timeout_ms) == ("local_shell_call", ["ls", "-l"], 5)
        assert "start: /.+/" in str(talk.endpoint.requests[-1].json["tools"])
        history: list[Any] = [
            {"role": "user", "content": "Go."},
            *(item.model_dump(exclude_none=True) for item in first.output),
            {"type": "custom_tool_call_output", "call_id": custom.call_id, "output": "ok"},
            {"type": "local_shell_call_output", "id": local.call_id, "output": "a.txt"},
        ]
        last = await talk.client.responses.create(model="one", input=history, tools=tools)
        assert last.output_text == "Patched."
        assert told(talk)[-2:] == ["ok", "a.txt"]


async def test_a_result_may_have_images(tmp_path: Path) -> None:
    picture = f"data:image/png;base64,{PIXEL}"

    async with talking(
        tmp_path, asks("weather"), says("A dot."), home="\nmodels: {fake/m: {image_results: true}}\n"
    ) as talk:
        first = await respond(talk, "Go.")
        [output] = outputs_of(first, "")
        output["output"] = [{"type": "input_text", "text": "Look:"}, {"type": "input_image", "image_url": picture}]
        await respond(talk, [output], previous_response_id=first.id)
        assert picture in str(talk.sent)


async def test_another_token_learns_nothing_of_a_call(tmp_path: Path) -> None:
    async with talking(tmp_path, asks("weather"), says("No idea."), says("Sunny.")) as talk:
        first = await complete(talk, GO)
        history = [*GO, *results_of(first.message, "sun")]
        other = Talking(talk.server, talk.another(await talk.server.mint("run")), talk.endpoint, talk.engine)
        assert (await complete(other, history)).message.content == "No idea."
        assert await count_runs(talk) == 2, "the call is unknown to it, so it has a session of its own"
        assert (await complete(talk, history)).message.content == "Sunny."


async def test_a_message_without_results_supersedes_the_calls(tmp_path: Path) -> None:
    async with talking(tmp_path, asks("weather"), says("As you wish.")) as talk:
        first = await respond(talk, "Go.")
        second = await respond(talk, "Never mind.", previous_response_id=first.id)
        assert second.output_text == "As you wish."
        assert (await talk.client.responses.retrieve(first.id)).output[0].type == "function_call"


async def test_a_session_header_continues_with_results(tmp_path: Path) -> None:
    async with talking(tmp_path, says("Hi."), asks("weather"), says("Sunny.")) as talk:
        raw = talk.client.chat.completions.with_raw_response.create
        opened = await raw(model="one", messages=GO, tools=CHAT_TOOLS)
        session = {"X-Treadle-Session": opened.headers["x-treadle-session"]}
        first = await complete(talk, GO, extra_headers=session)
        last = await raw(
            model="one", messages=[*GO, *results_of(first.message, "sun")], tools=CHAT_TOOLS, extra_headers=session
        )
        assert last.parse().choices[0].message.content == "Sunny."
        assert last.headers["x-treadle-session"] == session["X-Treadle-Session"]
        assert [one["role"] for one in talk.sent] == ["user", "assistant", "user", "assistant", "tool"]


async def test_a_branch_before_a_call_does_not_see_its_result(tmp_path: Path) -> None:
    async with talking(tmp_path, asks("weather"), says("Rainy."), says("Snowy.")) as talk:
        first = await respond(talk, "Go.")
        await respond(talk, outputs_of(first, "rain"), previous_response_id=first.id)
        other = await respond(talk, outputs_of(first, "snow"), previous_response_id=first.id)
        assert other.output_text == "Snowy."
        told = str(talk.sent)
        assert "snow" in told
        assert "rain" not in told.lower()


@pytest.mark.parametrize("stream", [False, True])
async def test_calls_outlive_kills_of_the_server(tmp_path: Path, stream: bool) -> None:
    """The server is killed after a call, and again while the model reads its result: the same request again has the
    answer, and nothing is done twice."""
    slow = Answer([PAUSE, delta(role="assistant", content="Sunny."), delta(finish="stop"), usage(), DONE])
    async with FakeEndpoint(asks("weather"), slow, says("Sunny.")) as endpoint:
        home = tmp_path / "home"
        write_home(home, endpoint.url)
        serving = Serving(Shell(home))
        await asyncio.to_thread(serving.start)
        http = openai.DefaultAsyncHttpxClient(verify=False)
        async with openai.AsyncOpenAI(
            api_key=serving.token, base_url=f"{serving.url}/v1", max_retries=0, http_client=http
        ) as opened:
            client: Any = opened

            async def send(messages: Sequence[Any]) -> Any:
                asked: dict[str, Any] = {"model": "one", "messages": messages, "tools": CHAT_TOOLS}
                if not stream:
                    return (await client.chat.completions.create(**asked)).choices[0].message
                async with client.chat.completions.stream(**asked) as events:
                    return (await events.get_final_completion()).choices[0].message

            first = await send(GO)
            serving.kill()
            await asyncio.to_thread(serving.start)
            history = [*GO, *results_of(first, "sun")]
            endpoint.asked.clear()
            cut = asyncio.ensure_future(send(history))
            await endpoint.asked.wait()
            serving.kill()
            with pytest.raises(openai.APIError):
                await cut
            await asyncio.to_thread(serving.start)
            assert (await send(history)).content == "Sunny."
            assert (await send(history)).content == "Sunny."
        messages = endpoint.requests[-1].json["messages"]
        [told] = [message["content"] for message in messages if message["role"] == "tool"]
        assert told.endswith("sun")
        await asyncio.to_thread(serving.stop)


async def test_each_request_chooses_for_its_own_first_step(tmp_path: Path) -> None:
    script = [asks("weather"), asks("clock"), asks("weather"), says("Done.")]

    async with talking(tmp_path, *script) as talk:
        history: list[Any] = list(GO)
        sent: list[Any] = []
        for choice in ("required", "auto", "required", "none"):
            message = (await complete(talk, history, tool_choice=choice)).message
            sent.append(talk.endpoint.requests[-1].json.get("tool_choice"))
            history += results_of(message, choice) if message.tool_calls else []
        assert sent == ["required", None, "required", "none"]
        assert await count_runs(talk) == 1
