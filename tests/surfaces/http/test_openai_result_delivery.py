"""Results of tools that OpenAI clients deliver twice, at once, for unknown calls, or as they disconnect."""

import asyncio
from pathlib import Path

import openai
import pytest

from tests.fake_endpoint import DONE, PAUSE, Answer, Behaviour, Request, delta, says, usage
from tests.surfaces.http.compatible import talking
from tests.surfaces.http.test_openai_tools import GO, asks, complete, count_runs, outputs_of, respond, results_of

SLOW = Answer([PAUSE, delta(role="assistant", content="Sunny."), delta(finish="stop"), usage(), DONE])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_disconnects_leaves_the_run_to_the_others(tmp_path: Path, stream: bool) -> None:
    async with talking(tmp_path, asks("weather"), SLOW) as talk:
        first = await complete(talk, GO)
        history = [*GO, *results_of(first.message, "sun")]
        clients = talk.server.app.waiting_clients
        [run] = await talk.engine.service.runs()
        both = [asyncio.create_task(complete(talk, history, stream=stream)) for _ in range(2)]
        while clients.count(run.origin.run_id) < 2:  # noqa: ASYNC110 -- the server counts, and tells no one
            await asyncio.sleep(0)
        both[0].cancel()
        while clients.count(run.origin.run_id) > 1:  # noqa: ASYNC110 -- likewise
            await asyncio.sleep(0)
        talk.endpoint.go_on.set()
        assert (await both[1]).message.content == "Sunny."
        assert await count_runs(talk) == 1


async def test_the_last_client_that_disconnects_cancels_the_run_and_may_ask_again(tmp_path: Path) -> None:
    async with talking(tmp_path, asks("weather"), SLOW, says("Again.")) as talk:
        first = await complete(talk, GO)
        history = [*GO, *results_of(first.message, "sun")]
        [run] = await talk.engine.service.runs()
        talk.endpoint.asked.clear()
        asking = asyncio.create_task(complete(talk, history))
        await talk.endpoint.asked.wait()
        asking.cancel()
        _, end = await talk.engine.service.wait(run.origin.run_id)
        assert (end.outcome, end.reason) == ("cancelled", "The run was cancelled: the client has disconnected")
        assert (await complete(talk, history)).message.content == "Again."


async def test_results_of_a_run_that_is_about_to_be_cancelled_start_a_session(tmp_path: Path) -> None:
    async with talking(tmp_path, asks("weather"), SLOW, says("Again.")) as talk:
        first = await complete(talk, GO)
        history = [*GO, *results_of(first.message, "sun")]
        [run] = await talk.engine.service.runs()
        talk.endpoint.asked.clear()
        asking = asyncio.create_task(complete(talk, history))
        await talk.endpoint.asked.wait()
        while not talk.server.app.waiting_clients.count(run.origin.run_id):  # noqa: ASYNC110 -- it tells no one
            await asyncio.sleep(0)
        await talk.engine.service.cancel(run.origin.run_id)
        assert (await complete(talk, history)).message.content == "Again."
        with pytest.raises(openai.ConflictError, match=r"asked for by the user\. .*cancelled"):
            await asking


async def test_a_result_of_an_unknown_call_leaves_the_calls_open(tmp_path: Path) -> None:
    async with talking(tmp_path, asks("weather"), says("Sunny.")) as talk:
        first = await respond(talk, "Go.")
        for unknown in ("call_1", "", "x" * 300):
            wrong = {"type": "function_call_output", "call_id": unknown, "output": "sun"}
            with pytest.raises(openai.BadRequestError, match="No call has the id"):
                await respond(talk, [wrong], previous_response_id=first.id)
        last = await respond(talk, outputs_of(first, "sun"), previous_response_id=first.id)
        assert last.output_text == "Sunny."


async def test_a_large_result_is_kept_and_cut_for_the_model(tmp_path: Path) -> None:
    async with talking(tmp_path, asks("weather"), says("Long.")) as talk:
        first = await complete(talk, GO)
        [run] = await talk.engine.service.runs()
        with pytest.raises(openai.APIStatusError) as refused:
            await complete(talk, [*GO, *results_of(first.message, "x" * 2**25)])
        assert refused.value.status_code == 413
        assert (await complete(talk, [*GO, *results_of(first.message, "x" * 1_000_000)])).message.content == "Long."
        assert len(talk.sent[-1]["content"]) < 100_000
        reply = await talk.server.ask("GET", f"/v1/runs/{run.origin.run_id}/calls/model_0/output")
        assert reply.json["length"] == 1_000_000


async def test_results_that_differ_at_once_each_have_an_answer_of_their_own(tmp_path: Path) -> None:
    def repeat(request: Request) -> Behaviour:
        return says(str(request.json["messages"][-1]["content"]).rpartition("\n")[2])

    async with talking(tmp_path, asks("weather"), policy=repeat) as talk:
        first = await complete(talk, GO)
        words = [f"sun {number}" for number in range(3)]
        histories = [[*GO, *results_of(first.message, word)] for word in words]
        answers = await asyncio.gather(*(complete(talk, history) for history in histories))
        assert [each.message.content for each in answers] == words
        assert await count_runs(talk) == 3
