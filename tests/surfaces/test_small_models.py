"""A small model on the command line and over the OpenAI-compatible endpoints: it gets tools only if they are asked
for, and one line says so."""

from pathlib import Path
from typing import Any

import pytest

from tests.fake_endpoint import FakeEndpoint, says
from tests.surfaces.http.served_home import serve_home
from tests.surfaces.shell import Shell
from treadle.config.home import SMALL_MODEL_PERSONA
from treadle.tools.builtin import SMALL_SET

SMALL = "{fake/m: {parameters: 135000000}}"
LINE = "small model (under one billion parameters): "


def name_tools(request: dict[str, Any]) -> list[str]:
    return sorted(tool["function"]["name"] for tool in request.get("tools", ()))


@pytest.mark.parametrize(
    ("options", "given"),
    [((), []), (("--tools", "@small"), sorted(SMALL_SET)), (("--tools", "glob, grep"), ["glob", "grep"])],
    ids=["default", "small", "named"],
)
async def test_the_command_line_gives_a_small_model_the_tools_that_are_asked_for(
    shell: Shell, options: tuple[str, ...], given: list[str]
) -> None:
    async with FakeEndpoint(says("A reed, a shuttle.")) as server:
        shell.write(
            "config.yaml",
            f"providers: {{fake: {{base_url: '{server.url}'}}}}\nmodels: {SMALL}\n",
        )
        done = await shell("run", "-m", "fake/m", *options, "Write a haiku.")
        assert (done.code, done.out) == (0, "A reed, a shuttle.\n"), done.err
        assert name_tools(server.requests[0].json) == given
        said = [line for line in done.err.splitlines() if LINE in line]
        assert len(said) == 1
        assert ("tools withheld" in said[0]) == (not given)


PERSON = {"role": "user", "content": "Write a haiku."}


@pytest.mark.parametrize("own", ["", "small_models: {tools: ['@small']}\n"], ids=["default", "asked"])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [PERSON]}),
        ("/v1/chat/completions", {"messages": [PERSON], "stream": True}),
        ("/v1/responses", {"input": "Write a haiku."}),
    ],
    ids=["chat", "stream", "responses"],
)
async def test_the_openai_endpoints_give_a_small_model_the_tools_of_its_settings(
    tmp_path: Path, own: str, path: str, body: dict[str, Any]
) -> None:
    more = f"defaults: {{model: fake/m}}\nmodels: {SMALL}\n"
    async with serve_home(tmp_path, says("A reed, a shuttle."), more=more) as server:
        server.home.agent("default")
        file = server.home.agent_file("default")
        if own:
            text = file.read_text()
            assert "\nsmall_models:" in text
            head, _, _ = text.partition("\nsmall_models:")
            file.write_text(f"{head}\n{own}")
        reply = await server.ask("POST", path, {"model": "default", **body})
        assert reply.status == 200, reply
        sent = server.endpoint.requests[0].json
        assert name_tools(sent) == (sorted(SMALL_SET) if own else [])
        assert own or sent["messages"][0]["content"] == SMALL_MODEL_PERSONA
        run_id = reply.headers["x-treadle-run"]
        shown = (await server.ask("GET", f"/v1/runs/{run_id}/transcript")).json
        notes = [item["text"] for item in shown["items"] if item["kind"] == "note" and LINE in item["text"]]
        assert len(notes) == 1
        assert "tools withheld" in notes[0]
