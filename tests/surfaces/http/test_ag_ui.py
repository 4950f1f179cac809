"""AG-UI: threads, events, interrupts, joining a run again, and users who know nothing of each other."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.fake_endpoint import DONE, PAUSE, Answer, FakeEndpoint, Silence, calls, delta, fragment, says, usage
from tests.surfaces.http.ag_ui import ServingProcess, UiThread
from tests.surfaces.http.process import Serving
from tests.surfaces.http.served_home import ServedHome, serve_home, wants_a_file, write_home
from tests.surfaces.shell import Shell

END = (delta(finish="stop"), usage(), DONE)
SUCCESS = {"type": "success"}


def change_agent(server: ServedHome, settings: str, agent: str = "one") -> None:
    file = server.home.agent_file(agent)
    file.write_text(f"{file.read_text()}{settings}\n")


async def test_an_answer_with_thinking_is_streamed_and_a_thread_is_a_session(tmp_path: Path) -> None:
    thinks = Answer(
        [delta(role="assistant", reasoning_content="Hm."), delta(content="Yes"), delta(content="."), *END]
    )
    async with serve_home(tmp_path, thinks, says("No.")) as server:
        thread = UiThread(server)
        last = await thread.ask("Is it?")
        assert last["outcome"] == SUCCESS
        assert last["result"] == {"outcome": "completed", "text": "Yes."}
        assert last["usage"] == [
            {"provider": "fake", "model": "m", "inputTokens": 10, "outputTokens": 5, "totalTokens": 15}
        ]
        assert thread.types[:4] == [
            "RUN_STARTED", "REASONING_START", "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT"
        ]  # fmt: skip
        assert thread.texts == [("user", "Is it?"), ("reasoning", "Hm."), ("assistant", "Yes.")]
        session = thread.treadle["session_id"]
        await thread.ask("And that?")
        assert thread.treadle["session_id"] == session
        assert thread.texts[-2:] == [("user", "And that?"), ("assistant", "No.")]
        sent = json.loads(server.endpoint.requests[-1].body)["messages"]
        assert [each["content"] for each in sent if each["role"] != "system"] == ["Is it?", "Yes.", "And that?"]
        assert "MESSAGES_SNAPSHOT" not in thread.types


async def test_a_call_is_streamed_with_its_result(tmp_path: Path) -> None:
    async with serve_home(tmp_path, wants_a_file(), says("Written.")) as server:
        change_agent(server, "tools: [write_file]\napprovals: {default: auto}")
        thread = UiThread(server)
        await thread.ask("Write.")
        [call] = [call for each in thread.messages for call in each.get("toolCalls", ())]
        assert call["function"]["name"] == "write_file"
        assert json.loads(call["function"]["arguments"]) == {"path": "x.txt", "content": "hello"}
        [result] = [each for each in thread.messages if each["role"] == "tool"]
        assert result["toolCallId"] == call["id"]
        assert "x.txt" in result["content"]
        assert thread.texts[-1] == ("assistant", "Written.")


@pytest.mark.parametrize(
    ("status", "payload", "content"),
    [
        ("resolved", {"approved": True}, "hello"),
        ("resolved", {"approved": True, "editedArgs": {"path": "x.txt", "content": "edited"}}, "edited"),
        ("resolved", {"approved": False, "note": "Not now."}, None),
        ("cancelled", {}, None),
    ],
)
async def test_an_approval_is_an_interrupt(tmp_path: Path, status: str, payload: Any, content: str | None) -> None:
    async with serve_home(tmp_path, wants_a_file(), says("Done.")) as server:
        thread = UiThread(server, agent="asking")
        await thread.ask("Write.")
        [interrupt] = thread.interrupts
        assert interrupt["reason"] == "tool_call"
        assert interrupt["responseSchema"]["required"] == ["approved"]
        assert interrupt["expiresAt"].endswith("+00:00")
        [call] = [call for each in thread.messages for call in each.get("toolCalls", ())]
        assert interrupt["toolCallId"] == call["id"]
        last = await thread.resume(status, **payload)
        assert last["outcome"] == SUCCESS
        assert "TOOL_CALL_START" not in thread.types
        [result] = [each for each in thread.events if each["type"] == "TOOL_CALL_RESULT"]
        assert result["toolCallId"] == call["id"]
        written = [file.read_text() for file in tmp_path.rglob("x.txt")]
        assert written == ([] if content is None else [content])
        assert ("Not now." in str(result["content"])) == ("note" in payload)


async def test_a_question_is_an_interrupt(tmp_path: Path) -> None:
    asks = calls(fragment(0, "call_1", "clarify", '{"question": "Which?", "options": ["red", "blue"]}'))
    async with serve_home(tmp_path, asks, says("Blue.")) as server:
        change_agent(server, "tools: [clarify]\napprovals: {via: api}")
        thread = UiThread(server)
        await thread.ask("Paint.")
        [interrupt] = thread.interrupts
        assert (interrupt["reason"], interrupt["message"]) == ("input_required", "Which?")
        assert interrupt["responseSchema"]["properties"]["answer"]["enum"] == ["red", "blue"]
        assert (await thread.resume(answer="blue"))["outcome"] == SUCCESS
        assert "blue" in next(each["content"] for each in thread.messages if each["role"] == "tool")


async def test_a_run_that_someone_interrupts_is_resumed_or_cancelled(tmp_path: Path) -> None:
    async with serve_home(tmp_path, Silence(), says("Done."), Silence()) as server:
        for number, (status, outcome) in enumerate((("resolved", "success"), ("cancelled", "cancelled"))):
            server.endpoint.asked.clear()
            thread = UiThread(server, f"thread-{number}")
            asking = asyncio.create_task(thread.ask("Go."))
            await server.endpoint.asked.wait()
            [run] = (await server.ask("GET", "/v1/runs?unfinished=true")).json["items"]
            assert (await server.ask("POST", f"/v1/runs/{run['run_id']}/interrupt")).status == 202
            await asking
            [interrupt] = thread.interrupts
            assert interrupt["reason"] == "treadle:interrupted"
            assert (await thread.resume(status))["outcome"]["type"] == outcome


async def test_a_cancelled_run_and_a_failed_one_end_as_such(tmp_path: Path) -> None:
    async with serve_home(tmp_path, Silence(), Answer([], status=400)) as server:
        thread = UiThread(server)
        asking = asyncio.create_task(thread.ask("Go."))
        await server.endpoint.asked.wait()
        [run] = (await server.ask("GET", "/v1/runs")).json["items"]
        await server.ask("POST", f"/v1/runs/{run['run_id']}/cancel")
        assert (await asking)["outcome"] == {"type": "cancelled"}
        failed = await thread.ask("Again.")
        assert (failed["type"], failed["code"]) == ("RUN_ERROR", "model_error")
        assert failed["message"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"messages": []}, "interrupts_open"),
        ({"resume": []}, "interrupts_open"),
        ({"resume": [{"interruptId": "apr_0", "status": "resolved"}]}, "interrupts_open"),
        ({"extra": [{"interruptId": "apr_0", "status": "cancelled"}]}, "unknown_interrupt"),
        ({"payload": {"approved": "perhaps"}}, "invalid_payload"),
        ({"payload": None}, "invalid_payload"),
    ],
)
async def test_a_resume_must_answer_every_interrupt_and_no_other(tmp_path: Path, body: Any, code: str) -> None:
    two = calls(
        fragment(0, "call_1", "write_file", '{"path": "a.txt", "content": "a"}'),
        fragment(1, "call_2", "write_file", '{"path": "b.txt", "content": "b"}'),
    )
    async with serve_home(tmp_path, two, says("Done.")) as server:
        thread = UiThread(server, agent="asking")
        await thread.ask("Write.")
        interrupts = thread.interrupts
        assert len(interrupts) == 2
        good = [
            {"interruptId": each["id"], "status": "resolved", "payload": {"approved": True}} for each in interrupts
        ]
        if "payload" in body:
            wrong: Any = {"resume": [good[0], {**good[1], "payload": body["payload"]}]}
        else:
            wrong = (
                {"resume": [*good, *body["extra"]]} if "extra" in body else {"resume": body.get("resume", good[:1])}
            )
        text = "Something else." if not wrong["resume"] else None
        failed = await thread.ask(text, **wrong)
        assert (failed["type"], failed["code"]) == ("RUN_ERROR", code)
        assert not list(tmp_path.rglob("[ab].txt")), "nothing was decided"
        if text is not None:
            thread.messages.pop()
        assert (await thread.ask(resume=good))["outcome"] == SUCCESS
        assert len(list(tmp_path.rglob("[ab].txt"))) == 2
        again = await thread.ask(resume=good)
        assert again["outcome"] == SUCCESS, "the same answers again are safe"
        assert thread.texts[-1] == ("assistant", "Done.")


async def test_a_client_that_lost_its_stream_joins_the_run_again(tmp_path: Path) -> None:
    begins = Answer([delta(role="assistant", content="One, ")], ending="hang")
    async with serve_home(tmp_path, begins) as server:
        thread = UiThread(server)
        first = asyncio.create_task(thread.ask("Count."))
        await server.endpoint.asked.wait()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        again = asyncio.create_task(thread.ask())  # the same message again, in another run of AG-UI
        while len(server.streams) < 1:  # noqa: ASYNC110 -- the stream of another task
            await asyncio.sleep(0)
        [run] = (await server.ask("GET", "/v1/runs")).json["items"]
        assert run["outcome"] is None
        await server.ask("POST", f"/v1/runs/{run['run_id']}/cancel")
        assert (await again)["outcome"] == {"type": "cancelled"}
        assert thread.treadle["run_id"] == run["run_id"]
        assert thread.texts[0] == ("user", "Count.")
        assert len((await server.ask("GET", "/v1/runs")).json["items"]) == 1


async def test_a_page_that_was_loaded_again_has_the_same_messages(tmp_path: Path) -> None:
    async with serve_home(tmp_path, says("One, two."), says("Three.")) as server:
        thread, fresh = UiThread(server), UiThread(server)
        await thread.ask("Count.")
        assert (await thread.ask())["outcome"] == SUCCESS
        assert thread.texts == [("user", "Count."), ("assistant", "One, two.")]
        assert (await fresh.ask())["outcome"] == SUCCESS
        assert fresh.texts == thread.texts
        assert [each["id"] for each in fresh.messages[1:]] == [each["id"] for each in thread.messages[1:]]
        await fresh.ask("Go on.")
        assert [text for _, text in fresh.texts] == ["Count.", "One, two.", "Go on.", "Three."]
        assert len(server.endpoint.requests) == 2


async def test_a_client_gets_what_was_said_elsewhere_and_keeps_its_order(tmp_path: Path) -> None:
    async with serve_home(tmp_path, says("A."), says("B."), says("C.")) as server:
        thread = UiThread(server)
        await thread.ask("One.")
        session = thread.treadle["session_id"]
        run_id = await server.begin("one", message="Two.", session_id=session)
        await server.until(run_id, "completed")
        await thread.ask("Three.")
        assert [text for _, text in thread.texts] == ["One.", "A.", "Two.", "B.", "Three.", "C."]
        same = UiThread(server, session)
        await same.ask()
        assert [text for _, text in same.texts] == ["One.", "A.", "Two.", "B.", "Three.", "C."]


@pytest.mark.parametrize("has_part", [False, True])
async def test_a_message_during_an_answer_is_answered_after_it_with_the_whole_answer(
    tmp_path: Path, has_part: bool
) -> None:
    slow = Answer([delta(role="assistant", content="One, "), PAUSE, delta(content="two."), *END])
    async with serve_home(tmp_path, slow, says("Three.")) as server:
        first, second = UiThread(server), UiThread(server)
        asking = asyncio.create_task(first.ask("Count."))
        await server.endpoint.asked.wait()
        [run] = (await server.ask("GET", "/v1/runs")).json["items"]
        if has_part:
            part = {"id": f"{run['run_id']}:6.1", "role": "assistant", "content": "One, "}
            second.messages += [{"id": "msg-0", "role": "user", "content": "Count."}, part]
        second.messages.append({"id": "msg-9", "role": "user", "content": "Go on."})
        going_on = asyncio.create_task(second.ask())
        while len((await server.ask("GET", "/v1/runs")).json["items"]) < 2:
            pass
        server.endpoint.go_on.set()
        await asyncio.gather(asking, going_on)
        assert [text for _, text in second.texts] == ["Count.", "One, two.", "Go on.", "Three."]


async def test_text_of_a_failed_attempt_is_taken_back(tmp_path: Path) -> None:
    breaks = Answer([delta(role="assistant", content="Wrong sta")])
    async with serve_home(tmp_path, breaks, says("Right.")) as server:
        file = server.home.agent_file("one")
        file.write_text(file.read_text().replace("attempts: 0", "attempts: 1, base_ms: 0"))
        thread = UiThread(server)
        assert (await thread.ask("Go."))["outcome"] == SUCCESS
        assert thread.texts == [("user", "Go."), ("assistant", "Right.")]


async def test_the_plan_is_in_the_state_with_that_of_the_application(tmp_path: Path) -> None:
    plan = '{"entries": [{"content": "Look.", "status": "completed"}, {"content": "Tell."}]}'
    async with serve_home(tmp_path, calls(fragment(0, "call_1", "update_plan", plan)), says("Done.")) as server:
        change_agent(server, "tools: [update_plan]")
        thread = UiThread(server)
        thread.state = {"color": "red"}
        context = [{"description": "The page", "value": "Orders"}]
        await thread.ask("Go.", context=context)
        assert thread.state["color"] == "red"
        assert [(each["text"], each["status"]) for each in thread.state["plan"]] == [
            ("Look.", "completed"),
            ("Tell.", "pending"),
        ]
        sent = json.loads(server.endpoint.requests[0].body)["messages"][0]["content"]
        assert "The page:\nOrders" in str(sent)
        assert '{"color":"red"}' in str(sent)
        fresh = UiThread(server)
        await fresh.ask()
        assert len(fresh.state["plan"]) == 2


async def test_a_second_user_learns_nothing(tmp_path: Path) -> None:
    async with serve_home(tmp_path, wants_a_file(), says("Theirs."), says("Done.")) as server:
        change_agent(server, "tools: [write_file]\napprovals: {default: ask, via: api}")
        ours = UiThread(server, token=await server.mint("run", "read", "approve", visibility="own"))
        await ours.ask("Our secret.")
        stranger = await server.mint("run", "read", "approve", visibility="own")
        theirs, unknown = UiThread(server, token=stranger), UiThread(server, "none", token=stranger)
        for thread in (theirs, unknown):
            assert (await thread.ask())["code"] == "no_message"
            entries = [{"interruptId": ours.interrupts[0]["id"], "status": "resolved", "payload": True}]
            assert (await thread.ask(resume=entries))["code"] == "unknown_interrupt"
        assert theirs.last["message"] == unknown.last["message"]
        named: dict[str, Any] = {"threadId": ours.treadle["session_id"], "runId": "r", "messages": []}
        absent = {**named, "threadId": "ses_0"}
        replies = [
            await server.ask("POST", "/v1/agents/one/ag-ui", body, token=stranger) for body in (named, absent)
        ]
        assert [reply.status for reply in replies] == [404, 404]
        await theirs.ask("Hello.")
        assert theirs.treadle["session_id"] != ours.treadle["session_id"]
        assert theirs.texts == [("user", "Hello."), ("assistant", "Theirs.")]
        assert (await ours.resume(approved=True))["outcome"] == SUCCESS


async def test_a_token_that_may_not_approve_answers_no_interrupt(tmp_path: Path) -> None:
    async with serve_home(tmp_path, wants_a_file()) as server:
        change_agent(server, "tools: [write_file]\napprovals: {default: ask, via: api}")
        thread = UiThread(server, token=await server.mint("run"))
        await thread.ask("Write.")
        assert thread.last["outcome"]["type"] == "interrupt"
        assert (await thread.resume(approved=True))["code"] == "forbidden"
        assert (await server.ask("POST", "/v1/agents/one/ag-ui", {}, token=await server.mint("read"))).status == 403


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"threadId": "", "runId": "r", "messages": []}, 400),
        ({"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "robot"}]}, 400),
        (
            {
                "threadId": "t",
                "runId": "r",
                "messages": [
                    {
                        "id": "m",
                        "role": "user",
                        "content": [
                            {"type": "audio", "source": {"type": "data", "value": "", "mimeType": "audio/x"}}
                        ],
                    }
                ],
            },
            400,
        ),
    ],
)
async def test_a_request_that_is_none_is_refused(tmp_path: Path, body: Any, status: int) -> None:
    async with serve_home(tmp_path) as server:
        assert (await server.ask("POST", "/v1/agents/one/ag-ui", body)).status == status
        assert (await server.ask("POST", "/v1/agents/none/ag-ui", body)).status in (400, 404)


async def test_an_interrupt_outlives_the_server(tmp_path: Path) -> None:
    async with FakeEndpoint(wants_a_file(), says("Written.")) as endpoint:
        home = tmp_path / "home"
        write_home(home, endpoint.url)
        serving = Serving(Shell(home))
        await asyncio.to_thread(serving.start)
        thread = UiThread(ServingProcess(serving), agent="asking")
        await thread.ask("Write.")
        interrupt = thread.interrupts[0]
        serving.kill()
        await asyncio.to_thread(serving.start)
        entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
        assert (await thread.ask(resume=[entry]))["outcome"] == SUCCESS
        assert thread.texts[-1] == ("assistant", "Written.")
        assert [each["toolCallId"] for each in thread.messages if each["role"] == "tool"] == [
            interrupt["toolCallId"]
        ]
        await asyncio.to_thread(serving.stop)


WEATHER: dict[str, Any] = {
    "name": "weather",
    "description": "Look up the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def result_of(call_id: str, content: str, **more: Any) -> dict[str, Any]:
    return {"id": f"result-{call_id}", "role": "tool", "toolCallId": call_id, "content": content, **more}


async def test_the_client_runs_its_own_tools(tmp_path: Path) -> None:
    two = calls(
        fragment(0, "call_1", "weather", '{"city": "Oslo"}'), fragment(1, "call_2", "weather", '{"city": "Rome"}')
    )
    async with serve_home(tmp_path, two, says("Rain, then sun.")) as server:
        thread = UiThread(server, token=await server.mint("run"))
        last = await thread.ask("How is the weather?", tools=[WEATHER])
        asked = [call for each in thread.messages for call in each.get("toolCalls", ())]
        assert last["outcome"] == {"type": "success", "pendingToolCallIds": [call["id"] for call in asked]}
        assert [json.loads(call["function"]["arguments"])["city"] for call in asked] == ["Oslo", "Rome"]
        thread.messages.append(result_of(asked[0]["id"], "rain"))
        last = await thread.ask(tools=[WEATHER])
        assert last["outcome"]["pendingToolCallIds"] == [asked[1]["id"]]
        thread.messages.append(result_of(asked[1]["id"], "The sensor is broken.", error="OSError"))
        last = await thread.ask(tools=[WEATHER])
        assert last["outcome"] == SUCCESS
        assert thread.texts[-1] == ("assistant", "Rain, then sun.")
        sent = json.loads(server.endpoint.requests[-1].body)["messages"]
        told = [each["content"] for each in sent if each["role"] == "tool"]
        assert told[0] == "rain"
        assert "The sensor is broken." in told[1]
        assert "TOOL_CALL_RESULT" not in thread.types, "the client has its own results"
        texts = thread.texts
        assert (await thread.ask(tools=[WEATHER]))["outcome"] == SUCCESS
        assert thread.texts == texts
        fresh = UiThread(server, token=thread.token)
        await fresh.ask(tools=[WEATHER])
        assert [role for role, _ in fresh.texts] == ["user", "assistant", "tool", "tool", "assistant"]
        assert len(server.endpoint.requests) == 2


async def test_a_tool_of_the_client_keeps_its_name_if_the_agent_has_it_too(tmp_path: Path) -> None:
    theirs = calls(fragment(0, "call_1", "client__write_file", '{"city": "Oslo"}'))
    async with serve_home(tmp_path, theirs, says("Done.")) as server:
        change_agent(server, "tools: [write_file]")
        thread = UiThread(server)
        await thread.ask("Go.", tools=[{**WEATHER, "name": "write_file"}])
        [call] = [call for each in thread.messages for call in each.get("toolCalls", ())]
        assert call["function"]["name"] == "write_file"
        thread.messages.append(result_of(call["id"], "written"))
        assert (await thread.ask(tools=[{**WEATHER, "name": "write_file"}]))["outcome"] == SUCCESS


async def test_only_the_client_that_brought_a_tool_delivers_its_result(tmp_path: Path) -> None:
    asks = calls(fragment(0, "call_1", "weather", "{}"))
    async with serve_home(tmp_path, asks, says("Fine.")) as server:
        ours = UiThread(server, token=await server.mint("run", "read"))
        last = await ours.ask("Go.", tools=[WEATHER])
        [pending] = last["outcome"]["pendingToolCallIds"]
        body = {"threadId": ours.treadle["session_id"], "runId": "r", "messages": [result_of(pending, "mine")]}
        reply = await server.ask("POST", "/v1/agents/one/ag-ui", body)
        assert reply.problem == "Forbidden"
        ours.messages.append(result_of(pending, "sunny"))
        assert (await ours.ask(tools=[WEATHER]))["outcome"] == SUCCESS


async def test_a_new_message_supersedes_calls_that_the_client_abandoned(tmp_path: Path) -> None:
    asks = calls(fragment(0, "call_1", "weather", "{}"))
    async with serve_home(tmp_path, asks, says("Never mind.")) as server:
        thread = UiThread(server)
        await thread.ask("Go.", tools=[WEATHER])
        assert (await thread.ask("Stop that.", tools=[WEATHER]))["outcome"] == SUCCESS
        assert thread.texts[-1] == ("assistant", "Never mind.")


async def test_an_approval_of_a_child_run_is_an_interrupt_of_the_subagent(tmp_path: Path) -> None:
    spawns = calls(fragment(0, "call_1", "agent_spawn", '{"message": "Write."}'))
    async with serve_home(tmp_path, spawns, wants_a_file(), says("Written."), says("All done.")) as server:
        change_agent(server, "tools: [agent_spawn, write_file]\napprovals: {default: ask, via: api}")
        thread = UiThread(server)
        await thread.ask("Go.")
        if "subagentRunId" not in thread.interrupts[0]:  # to start a child run may need an approval, too
            await thread.resume(approved=True)
        interrupt: dict[str, Any] = thread.interrupts[0]
        assert interrupt["subagentRunId"].startswith("run_")
        assert (await thread.resume(approved=True))["outcome"] == SUCCESS
        assert interrupt["metadata"]["treadle"]["tool"] == "write_file"
        [started] = [each for each in thread.events if each["type"] == "SUBAGENT_STARTED"]
        assert started["subagentRunId"] == interrupt["subagentRunId"]
        assert [file.read_text() for file in tmp_path.rglob("x.txt")] == ["hello"]
        assert thread.texts[-1] == ("assistant", "All done.")
