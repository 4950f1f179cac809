"""The overview of all runs: counts, sums and figures of agents and models, and what each caller sees of them."""

from pathlib import Path

from tests.fake_endpoint import Answer, Behaviour, Request, calls, fragment, says
from tests.surfaces.http.served_home import serve_home
from treadle.operations.percentiles import Percentiles, find_percentiles

NOT_FOUND = Answer(
    [b'{"error": {"message": "no such model"}}'], 404, {"Content-Type": "application/json"}, framing="length"
)


def reply(request: Request) -> Behaviour:
    text = str(request.json["messages"])
    if "No such thing." in text:
        return NOT_FOUND
    if "Store it." in text:
        return calls(fragment(0, "call_1", "write_file", '{"path": "a", "content": "b"}'))
    return says("Done.")


async def test_the_overview_counts_what_the_caller_can_see(tmp_path: Path) -> None:
    async with serve_home(tmp_path, policy=reply) as server:
        for message in ("Go.", "Go on.", "No such thing."):
            run_id = await server.begin(message=message)
            await server.until(run_id, "failed" if "No" in message else "completed")
        await server.until(await server.begin("asking", message="Store it."), "waiting")
        found = (await server.ask("GET", "/v1/overview")).json
        assert (found["today"]["runs"], found["today"]["failed"], found["yesterday"]["runs"]) == (4, 1, 0)
        assert (found["running"], found["pending"], found["waiting"]) == (0, 0, {"approval": 1})
        [failure] = found["failed"]
        assert (failure["summary"], failure["outcome"]) == ("No such thing.", "model_error")
        assert "no such model" in failure["reason"]
        assert len(found["slowest"]) == 3
        assert [(each["agent"], each["runs"], each["failed"]) for each in found["agents"]] == [
            ("one", 3, 1),
            ("asking", 1, 0),
        ]
        [model] = found["models"]
        assert (model["runs"], model["failed"]) == (4, 1)
        assert "no such model" in model["problem"]
        assert found["is_partial"] is False
        listed = (await server.ask("GET", "/v1/runs?order=steps&limit=1")).json["items"]
        assert listed[0]["steps"] == 1
        sums = (await server.ask("GET", "/v1/run-sums?status=failed")).json
        assert (sums["runs"], sums["failed"]) == (1, 1)
        only = await server.mint("read", agents=("asking",))
        seen = (await server.ask("GET", "/v1/overview", token=only)).json
        assert (seen["today"]["runs"], seen["failed"], seen["models"][0]["problem"]) == (1, [], "")
        own = await server.mint("read", visibility="own")
        nothing = (await server.ask("GET", "/v1/overview", token=own)).json
        assert (nothing["today"]["runs"], nothing["waiting"], nothing["agents"]) == (0, {}, [])
        later = (await server.ask("GET", "/v1/overview?since=2999-01-01T00:00:00Z")).json
        assert (later["today"]["runs"], later["waiting"]) == (0, {"approval": 1})


def test_percentiles_are_values_of_the_sample() -> None:
    assert find_percentiles([]) is None
    assert find_percentiles([7]) == Percentiles(7, 7)
    assert find_percentiles(list(range(100, 0, -1))) == Percentiles(51, 96)
