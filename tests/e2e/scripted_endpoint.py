"""A scripted model endpoint in a thread of its own, for tests that drive a real terminal."""

import asyncio
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.fake_endpoint import (
    DONE,
    PAUSE,
    Answer,
    Behaviour,
    FakeEndpoint,
    Policy,
    Request,
    delta,
    fragment,
    usage,
)


class ScriptedEndpoint:
    """The endpoint as a test sees it: where it is, what it was asked, and when it goes on."""

    def __init__(self, server: FakeEndpoint, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self.url = server.url

    @property
    def requests(self) -> list[Request]:
        return self._server.requests

    def last_texts(self) -> list[str]:
        """Return the texts of the messages of the latest request."""
        return [_text(message) for message in self.requests[-1].json["messages"]]

    def go_on(self) -> None:
        """Let the answer that pauses go on."""
        self._loop.call_soon_threadsafe(self._server.go_on.set)


@contextmanager
def serve(*script: Behaviour, policy: Policy | None = None) -> Generator[ScriptedEndpoint]:
    """Serve a script; a policy answers what comes after it."""
    started, stop = threading.Event(), threading.Event()
    made: list[ScriptedEndpoint] = []

    async def run() -> None:
        server = FakeEndpoint(*script, policy=policy or (lambda request: says("Done.")))
        await server.__aenter__()
        made.append(ScriptedEndpoint(server, asyncio.get_running_loop()))
        started.set()
        while not stop.is_set():  # noqa: ASYNC110 -- the flag of another thread
            await asyncio.sleep(0.05)
        with suppress(AssertionError):  # a test may end before the script does
            await server.__aexit__()

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    assert started.wait(30)
    try:
        yield made[0]
    finally:
        stop.set()
        thread.join(10)


def says(*pieces: str) -> Answer:
    """Return an answer in these pieces. An empty piece pauses until the test continues it."""
    body = [PAUSE if not piece else delta(content=piece) for piece in pieces]
    return Answer([delta(role="assistant", content=""), *body, delta(finish="stop"), usage(1200, 40), DONE])


def calls(tool: str, call_id: str = "c1", **arguments: object) -> Answer:
    """Return an answer with one tool call."""
    asked = fragment(0, call_id, tool, json.dumps(arguments))
    return Answer([delta(role="assistant", tool_calls=[asked]), delta(finish="tool_calls"), usage(1200, 40), DONE])


def write_home(home: Path, url: str, *, agent: str = "") -> dict[str, str]:
    """Write a home whose default agent uses the endpoint; return the variables for commands."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.yaml").write_text(f"providers: {{fake: {{base_url: '{url}'}}}}\ndefaults: {{model: fake/m}}\n")
    if agent:
        folder = home / "agents" / "default"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.yaml").write_text(agent)
    return {"TREADLE_HOME": str(home), "HOME": str(home.parent), "COLORFGBG": "15;0"}


def _text(message: dict[str, object]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))  # pyright: ignore
    return str(content or "")
