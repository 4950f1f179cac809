"""What surfaces show of sessions, runs and the system, over HTTP."""

import json
from pathlib import Path
from typing import Any

from tests.fake_endpoint import calls, fragment, says
from tests.surfaces.http.served_home import ServedHome, serve_home


async def finish_run(web: ServedHome, agent: str = "one", **body: Any) -> dict[str, Any]:
    run_id = await web.begin(agent, **body)
    return (await web.ask("GET", f"/v1/runs/{run_id}?wait=60")).json


async def read_transcript(web: ServedHome, session: str, query: str = "") -> dict[str, Any]:
    reply = await web.ask("GET", f"/v1/sessions/{session}/transcript{query}")
    assert reply.status == 200, reply
    return reply.json


async def test_a_transcript_has_messages_replies_calls_and_ends_and_is_read_backwards(tmp_path: Path) -> None:
    call = fragment(0, "call_1", "list_directory", '{"path": "."}')
    script = (calls(call), says("Two files."), says("Bye."))
    async with serve_home(tmp_path, *script) as web:
        first = await finish_run(web, message="What is here?")
        session = first["session_id"]
        await finish_run(web, message="Thanks.", session_id=session)
        page = await read_transcript(web, session)
        found = [(item["kind"], item.get("text", "")) for item in page["items"]]
        call = page["items"][1]
        assert (call["name"], call["step"]) == ("list_directory", 1)
        assert json.loads(call["arguments"]) == {"path": "."}
        assert (call["state"], call["error"]) == ("failed", "unknown_tool")
        kinds = ["message", "call", "answer", "end", "message", "answer", "end"]
        assert [kind for kind, _ in found] == kinds
        assert [found[0], found[2]] == [("message", "What is here?"), ("answer", "Two files.")]
        assert page["next"] is None
        collected: list[Any] = []
        cursor = ""
        while True:
            part = await read_transcript(web, session, f"?limit=3{cursor}")
            collected = [*part["items"], *collected]
            if part["next"] is None:
                break
            cursor = f"&before={part['next']}"
        assert collected == page["items"]
        wrong = await web.ask("GET", f"/v1/sessions/{session}/transcript?before=run_x:1")
        assert wrong.status == 400
        stranger = await web.mint("read", agents=["two"])
        hidden = await web.ask("GET", f"/v1/sessions/{session}/transcript", token=stranger)
        assert hidden.problem == "UnknownSession"


async def test_a_search_finds_messages_and_answers_that_the_caller_may_see(tmp_path: Path) -> None:
    async with serve_home(tmp_path, says("The parrot sleeps."), says("A 100% answer.")) as web:
        await finish_run(web, message='Where is the "PARROT"?')
        await finish_run(web, "two", message="Is it 50_50?")

        async def find(text: str, token: str | None = None) -> list[tuple[str, str]]:
            reply = await web.ask("GET", f"/v1/search?text={text}", token=token)
            assert reply.status == 200, reply
            return [(hit["kind"], hit["snippet"]) for hit in reply.json["items"]]

        assert await find("parrot") == [
            ("answer", "The parrot sleeps."), ("message", 'Where is the "PARROT"?'),
        ]  # fmt: skip
        assert await find("%22parrot%22") == [("message", 'Where is the "PARROT"?')]
        assert await find("100%25") == [("answer", "A 100% answer.")]
        assert await find("50_50") == [("message", "Is it 50_50?")]
        assert await find("5__50") == []
        assert await find("run_queued") == []
        assert await find("parrot", await web.mint("read", agents=["two"])) == []
        page = (await web.ask("GET", "/v1/search?text=parrot&limit=1")).json
        assert len(page["items"]) == 1
        further = (await web.ask("GET", f"/v1/search?text=parrot&cursor={page['next']}")).json
        assert [hit["kind"] for hit in further["items"]] == ["message"]
        for cursor in ("abc", "9" * 30):
            assert (await web.ask("GET", f"/v1/search?text=x&cursor={cursor}")).status == 400
        assert (await web.ask("GET", "/v1/search")).status == 400
        assert (await web.ask("GET", "/v1/runs?status=null")).status == 400


async def test_the_prompt_of_a_step_is_the_body_that_the_endpoint_received(tmp_path: Path) -> None:
    async with serve_home(tmp_path, says("One."), says("Two.")) as web:
        first = await finish_run(web, message="First?")
        second = await finish_run(web, message="Second?")
        prompt = (await web.ask("GET", f"/v1/runs/{first['run_id']}/steps/1/prompt")).json
        assert prompt["body"] == web.endpoint.requests[0].json
        assert [part["text"] for part in prompt["messages"][-1]["parts"]][-1].endswith("First?")
        latest = (await web.ask("GET", f"/v1/runs/{first['run_id']}/steps/0/prompt")).json
        assert latest["step"] == 1
        assert (await web.ask("GET", f"/v1/runs/{first['run_id']}/steps/9/prompt")).status == 400
        assert (await web.ask("GET", f"/v1/runs/{first['run_id']}/steps/x/prompt")).status == 400
        diff = (await web.ask("GET", f"/v1/runs/{first['run_id']}/diff/{second['run_id']}")).json
        assert [each["what"] for each in diff["outcome"]] == ["text"]
        hidden = await web.ask(
            "GET",
            f"/v1/runs/{first['run_id']}/diff/{second['run_id']}",
            token=await web.mint("read", agents=["two"]),
        )
        assert hidden.problem == "UnknownRun"
        tree = (await web.ask("GET", f"/v1/runs/{first['run_id']}/tree")).json
        assert [member["run"]["run_id"] for member in tree["members"]] == [first["run_id"]]
        assert tree["total"]["steps"] == 1


async def test_the_system_describes_itself(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as web:
        await finish_run(web)
        info = (await web.ask("GET", "/v1/system")).json
        assert (info["store"], info["home"]) == ("sqlite", str(web.home.path))
        limited = (await web.ask("GET", "/v1/system", token=await web.mint("read"))).json
        assert (limited["home"], limited["process_id"]) == ("", 0)
        guards = (await web.ask("GET", "/v1/system/guards?agent=one")).json["items"]
        assert {"steps", "loop", "quarantine"} <= {each["guard"] for each in guards}
        assert (await web.ask("GET", "/v1/system/guards?agent=nobody")).problem == "UnknownAgent"
        models = (await web.ask("GET", "/v1/system/models")).json["items"]
        assert any(each["resolved"] and each["context_window"] for each in models)
        found = (await web.ask("GET", "/v1/system/doctor?offline=true")).json["items"]
        assert "home" in {each["about"] for each in found}
        for path in ("/v1/system/doctor", "/v1/system/workers"):
            assert (await web.ask("GET", path, token=await web.mint("read"))).problem == "Forbidden"
        series = (await web.ask("GET", "/v1/usage/series?bucket=month&by=agent")).json["items"]
        assert [(point["key"], point["used"]["runs"]) for point in series] == [("one", 1)]
        assert len((await web.ask("GET", "/v1/usage/series")).json["items"]) == 1


async def test_a_skill_is_approved_by_the_hash_of_its_content(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as web:
        folder = web.home.path / "skills" / "greet"
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text("---\nname: greet\ndescription: Say hello.\n---\nBe kind.\n")
        listed = (await web.ask("GET", "/v1/skills")).json["items"]
        assert ("greet", "new") in {(each["name"], each["state"]) for each in listed}
        shown = (await web.ask("GET", "/v1/skills/greet")).json
        assert shown["files"][0]["text"].endswith("Be kind.\n")
        wrong = await web.ask("PUT", "/v1/skills/greet/approval", {"sha256": "0" * 64})
        assert wrong.status == 400
        assert "has changed since it was read" in wrong.json["detail"]
        path, body = "/v1/skills/greet/approval", {"sha256": shown["sha256"]}
        assert (await web.ask("PUT", path, body, token=await web.mint("run"))).problem == "Forbidden"
        assert (await web.ask("PUT", path, body)).json["state"] == "approved"
        assert (await web.ask("DELETE", path)).status == 204
        assert (await web.ask("DELETE", path)).problem == "UnknownSkill"
