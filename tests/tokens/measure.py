"""The sessions as the engine would have sent them, and what the embedded model counts.

The server has an endpoint that renders a conversation and one that counts tokens: together they
give the number that it reports as `prompt_tokens`, without the minutes that reading the prompts
would take it. `reported` asks for that number itself, so that the two can be compared."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from tests.tokens.sessions import Session
from treadle.core.context.projection import estimate_input, project
from treadle.core.fold import fold
from treadle.core.state import RunState, new_state
from treadle.domain import events as e
from treadle.domain.agents import AgentSpec
from treadle.domain.envelope import Origin
from treadle.domain.events import EventData
from treadle.domain.ids import AgentId, RunId, SessionId
from treadle.domain.messages import Message, Part, ToolUse, user
from treadle.domain.runs import Usage
from treadle.models.formats.chat_completions import FORMAT
from treadle.models.local.models import CONTEXT_WINDOW, PROFILE, PROVIDER
from treadle.models.local.server_processes import LocalServers
from treadle.ports.model import Conversation, ModelRequest

_ORIGIN = Origin(RunId("run_1"), SessionId("ses_1"), AgentId("agt_1"))


@dataclass(frozen=True)
class Measured:
    """One request: what was estimated before it was sent, and what was counted."""

    session: Session
    number: int
    estimate: int
    counted: int
    replied: int
    """Tokens of the reply to it."""
    request: ModelRequest
    """With the messages that it had then."""

    @property
    def messages(self) -> list[Message]:
        return self.request.conversation.messages

    @property
    def error(self) -> float:
        return abs(self.estimate - self.counted) / self.counted


class Counter:
    """Asks the server of the embedded model."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http, self._url = http, url

    async def _ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        async with self._http.post(self._url + path, json=body, raise_for_status=True) as response:
            return await response.json()

    async def tokens(self, text: str) -> int:
        found = await self._ask("/tokenize", {"content": text, "add_special": True, "parse_special": True})
        return len(found["tokens"])

    async def prompt(self, request: ModelRequest) -> int:
        """Tokens of a request."""
        rendered = await self._ask("/apply-template", {"messages": _body(request)["messages"]})
        return await self.tokens(rendered["prompt"])

    async def reply(self, request: ModelRequest, parts: tuple[Part, ...]) -> int:
        """Tokens of a reply as the model would have written it, with the one that ends it."""
        alone = Conversation([Message("assistant", parts)])
        body = _body(msgspec.structs.replace(request, conversation=alone))
        return await self.tokens(body["messages"][-1]["content"]) + 1

    async def beginning(self, request: ModelRequest) -> str:
        """Return the reply to a request as the model wrote it, up to the request's limit of tokens."""
        answer = await self._ask("/v1/chat/completions", _body(request) | {"stream": False})
        return answer["choices"][0]["message"]["content"] or ""

    async def reported(self, request: ModelRequest) -> int:
        """What the server reports when the request is sent."""
        answer = await self._ask("/v1/chat/completions", _body(request) | {"stream": False, "max_tokens": 1})
        return answer["usage"]["prompt_tokens"]


@asynccontextmanager
async def counter(weights: Path) -> AsyncGenerator[Counter]:
    """The embedded model, served for as long as it is needed."""
    servers = LocalServers(lambda _: None)
    try:
        server = await servers.get(weights, CONTEXT_WINDOW)
        async with aiohttp.ClientSession() as http:
            yield Counter(http, server.url)
    finally:
        await servers.close()


def _body(request: ModelRequest) -> dict[str, Any]:
    return msgspec.json.decode(FORMAT.encode(request))


Count = Callable[[ModelRequest], Awaitable[int]]


async def replay(session: Session, count: Counter, prompt: Count | None = None) -> list[Measured]:
    """Tell a session as events, and measure every request of it. `prompt` counts one, if not
    `count` is to."""
    run = _Run(session)
    found: list[Measured] = []
    for turn in session.turns:
        if turn.asked and found:
            run.happens(e.UserMessage(user(turn.asked)))
        estimate = estimate_input(run.state)
        request = run.asks()
        counted, replied = await (prompt or count.prompt)(request), await count.reply(request, turn.reply)
        then = msgspec.structs.replace(request, conversation=Conversation(request.conversation.messages))
        found.append(Measured(session, len(found), estimate, counted, replied, then))
        run.replies(turn.reply, Usage(counted, replied))
        for use, result in zip((p for p in turn.reply if isinstance(p, ToolUse)), turn.results, strict=True):
            run.happens(
                e.ToolCallStart(use.call_id, use.name, use.arguments, "key"),
                e.ToolCallEnd(use.call_id, use.name, result, 3),
            )
    return found


class _Run:
    """A run under way, told as events."""

    def __init__(self, session: Session) -> None:
        self.state: RunState = new_state(_ORIGIN)
        self.happens(
            e.RunQueued(AgentSpec("measured", "local/smollm2", persona=session.persona)),
            e.UserMessage(user(session.turns[0].asked)),
            e.RunStart(session.tools),
            e.ModelResolved(PROVIDER, "smollm2", "chat_completions", "it was named"),
        )

    def happens(self, *data: EventData) -> None:
        for item in data:
            fold(self.state, item, self.state.sequence + 1, 1000.0)

    def asks(self) -> ModelRequest:
        step = self.state.step.number + 1
        self.happens(e.StepStart(step), e.LlmRequest(step, 1, PROVIDER, "smollm2", 1))
        return project(self.state, tools_offered=True, profile=PROFILE)

    def replies(self, parts: tuple[Part, ...], usage: Usage) -> None:
        stop = "tool_use" if any(isinstance(part, ToolUse) for part in parts) else "end_turn"
        self.happens(
            e.LlmResponse(
                step=self.state.step.number, attempt=1, parts=parts, stop=stop, usage=usage, duration_ms=7
            )
        )
