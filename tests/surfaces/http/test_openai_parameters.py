"""Parameters of OpenAI requests: those that reach the model, those that have no effect, and labels."""

from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.fake_endpoint import DONE, PAUSE, Answer, FakeEndpoint, delta, says, usage
from tests.surfaces.http.compatible import PIXEL, talking
from treadle.domain.messages import Image
from treadle.tools.web import images

GO: list[Any] = [{"role": "user", "content": "Go."}]
SAMPLING: dict[str, Any] = {
    "top_p": 0.5,
    "frequency_penalty": 0.25,
    "presence_penalty": -0.5,
    "seed": 7,
    "logit_bias": {"50256": -100},
    "stop": ["END", "\n\n"],
}
END = [delta(finish="stop"), usage(), DONE]


async def test_sampling_reaches_the_model(tmp_path: Path) -> None:
    async with talking(tmp_path, says("Fine."), says("Fine.")) as talk:
        raw = talk.client.chat.completions.with_raw_response
        reply = await raw.create(model="one", messages=GO, **SAMPLING)
        sent = talk.endpoint.requests[-1].json
        assert {name: sent[name] for name in SAMPLING} == SAMPLING
        assert "x-treadle-ignored" not in reply.headers
        made = await talk.client.responses.create(model="one", input="Go.", top_p=0.5, temperature=0.5)
        sent = talk.endpoint.requests[-1].json
        assert (sent["top_p"], sent["temperature"]) == (made.top_p, made.temperature) == (0.5, 0.5)


async def test_what_has_no_effect_is_named_in_a_header(tmp_path: Path) -> None:
    settings = "\nmodels: {fake/m: {refuses: [top_p, seed, stop]}}\n"

    async with talking(tmp_path, says("Fine. END of it"), says("Fine."), home=settings) as talk:
        raw = talk.client.chat.completions.with_raw_response
        useless = {"logprobs": True, "top_logprobs": 3, "service_tier": "flex", "store": True}
        reply = await raw.create(model="one", messages=GO, **useless, **SAMPLING)
        ignored = set(reply.headers["x-treadle-ignored"].split(", "))
        assert ignored == {*useless, "top_p", "seed"}
        assert reply.parse().choices[0].message.content == "Fine. ", "stop works without the model"
        sent = talk.endpoint.requests[-1].json
        assert not {"top_p", "seed", "stop"} & set(sent)
        assert sent["presence_penalty"] == -0.5
        told = talk.client.responses.with_raw_response
        answer = await told.create(model="one", input="Go.", top_p=0.5, truncation="auto")
        assert answer.headers["x-treadle-ignored"] == "top_p"


@pytest.mark.parametrize("refuses", ["[]", "[stop]"])
async def test_a_stream_ends_at_a_stop_text(tmp_path: Path, refuses: str) -> None:
    words = [delta(role="assistant", content="One E"), delta(content="N"), delta(content="D two"), PAUSE]

    async with talking(
        tmp_path, Answer([*words, *END]), home=f"\nmodels: {{fake/m: {{refuses: {refuses}}}}}\n"
    ) as talk:
        stream = await talk.client.chat.completions.create(model="one", messages=GO, stop="END", stream=True)
        chunks = [chunk async for chunk in stream]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "One "
        assert chunks[-1].choices[0].finish_reason == "stop"
        assert not talk.endpoint.go_on.is_set(), "the model had more to say"


async def test_metadata_becomes_that_of_the_run(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        labels = {"tenant": "acme", "ticket": "42"}
        made = await talk.client.responses.create(model="one", input="Go.", metadata=labels)
        kept = await talk.client.responses.retrieve(made.id)
        assert made.metadata == kept.metadata == labels
        raw = talk.client.chat.completions.with_raw_response
        session = (await raw.create(model="one", messages=GO, metadata=labels)).headers["x-treadle-session"]
        runs = await talk.server.ask("GET", "/v1/runs?metadata=tenant%3Dacme")
        assert [run["session_id"] for run in runs.json["items"]] == [session, made.conversation.id]
        named = {**labels, "treadle_session": session}
        await talk.client.chat.completions.create(model="one", messages=GO, metadata=named)
        [run, *_] = (await talk.server.ask("GET", "/v1/runs?metadata=tenant%3Dacme")).json["items"]
        assert (run["session_id"], run["metadata"]) == (session, labels)


@pytest.fixture
def links_reach_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server fetch images from the test's own server, by a name of the public internet."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    original = images.fetch_image

    async def fetch(url: str, max_bytes: int) -> Image:
        return await original(url, max_bytes, lambda _: None, resolve)

    monkeypatch.setattr(images, "fetch_image", fetch)


@pytest.mark.usefixtures("links_reach_loopback")
async def test_an_image_is_fetched_from_its_url(tmp_path: Path) -> None:
    picture = b64decode(PIXEL)
    shown = Answer([picture], headers={"Content-Type": "image/png"}, framing="length")
    page = Answer([b"<p>no image</p>"], headers={"Content-Type": "text/html"}, framing="length")

    async with (
        FakeEndpoint(shown, shown, page, shown) as pictures,
        talking(tmp_path, says("A dot."), says("A dot."), more="limits: {max_attachment_bytes: 1000}") as talk,
    ):
        url = pictures.url.replace("127.0.0.1", "pictures.example.com")

        def shows(url: str) -> list[Any]:
            return [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]

        await talk.client.chat.completions.create(model="one", messages=shows(f"{url}/a.png"))
        embedded = f"data:image/png;base64,{PIXEL}"
        assert embedded in str(talk.sent)
        item = {"role": "user", "content": [{"type": "input_image", "image_url": f"{url}/a.png"}]}
        await talk.client.responses.create(model="one", input=[item])
        assert embedded in str(talk.sent)
        with pytest.raises(openai.BadRequestError, match="not an image") as refused:
            await talk.client.chat.completions.create(model="one", messages=shows(f"{url}/a.html"))
        assert refused.value.param == "messages[0].content[0]"
        talk.server.home.agent_file("one").write_text(
            talk.server.home.agent_file("one").read_text().replace("1000", "10")
        )
        with pytest.raises(openai.BadRequestError, match="more than 10 bytes"):
            await talk.client.chat.completions.create(model="one", messages=shows(f"{url}/a.png"))


async def test_an_image_of_a_private_network_is_not_fetched(tmp_path: Path) -> None:
    async with FakeEndpoint() as secret, talking(tmp_path) as talk:
        for url in (secret.url, "http://169.254.169.254/latest/meta-data", "http://localhost/x.png"):
            content = [{"type": "image_url", "image_url": {"url": url}}]
            with pytest.raises(openai.BadRequestError, match="not fetched"):
                await talk.client.chat.completions.create(
                    model="one", messages=[{"role": "user", "content": content}]
                )
        assert secret.connections == 0
