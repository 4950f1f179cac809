"""At least 60 documented behaviours of OpenAI's API, by its official Python client."""

from pathlib import Path

from tests.fake_endpoint import DONE, Answer, Behaviour, Request, calls, delta, fragment, usage
from tests.surfaces.http.openai_behaviours import BEHAVIOURS
from tests.surfaces.http.served_home import serve_home

LEAST = 60


def answer(request: Request) -> Behaviour:
    """Answer as the behaviours expect: a call if the user asks for one, JSON if the user does, and otherwise a
    text."""
    messages = request.json["messages"]
    told = [message for message in messages if message["role"] in ("user", "tool")]
    said = str(told[-1]["content"])
    offered = {tool["function"]["name"]: tool["function"]["parameters"] for tool in request.json.get("tools", ())}
    if told[-1]["role"] == "tool":
        return make_text(f"It is {said.rpartition(chr(10))[2]}.")
    if said.startswith("call weather") and "weather" in offered:
        arguments = '{"city": "Ulm"}' if "city" in offered["weather"]["properties"] else '{"input": "Ulm"}'
        count = 2 if said.endswith("twice") else 1
        return calls(*(fragment(place, f"model_{place}", "weather", arguments) for place in range(count)))
    return make_text('{"x": 1}' if said.startswith("json") else "Fine.")


def make_text(text: str) -> Behaviour:
    """Return a reply with this text."""
    return Answer([delta(role="assistant", content=text), delta(finish="stop"), usage(), DONE])


async def test_the_documented_behaviours_hold(tmp_path: Path) -> None:
    import openai

    async with serve_home(tmp_path, policy=answer) as server:
        token = await server.mint("run")
        http = openai.DefaultAsyncHttpxClient(verify=False)  # to read all certificates takes long
        async with openai.AsyncOpenAI(
            api_key=token, base_url=f"{server.url}/v1", max_retries=0, http_client=http
        ) as client:
            failed: dict[str, str] = {}
            for behaviour in BEHAVIOURS:
                try:
                    await behaviour(client)
                except Exception as error:
                    failed[behaviour.__name__] = f"{type(error).__name__}: {error}"
    assert failed == {}
    assert len(BEHAVIOURS) >= LEAST
