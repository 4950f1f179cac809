"""The engine's estimates against what a real model counts, over sessions with tools."""

import asyncio
import json
import statistics
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.embedded import weights
from tests.tokens.measure import Measured, counter, replay
from tests.tokens.sessions import CHECK, FIT, KINDS, sessions
from treadle.config.home import DEFAULT_PERMITTED_TOOLS, Home
from treadle.core.context.projection import estimate_preamble, make_preamble
from treadle.core.context.tokens import TokenCount, estimate_message
from treadle.domain.agents import ModelSettings
from treadle.domain.messages import user
from treadle.domain.tools import ToolSpec
from treadle.home.tool_names import list_known_tools
from treadle.models.local.models import PROFILE
from treadle.ports.model import Conversation, ModelRequest
from treadle.tools.builtin import SMALL_SET

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def path() -> Path:
    return weights()


@pytest.fixture(scope="module")
def measured(path: Path) -> list[Measured]:
    """Every request of every session."""

    async def measure() -> list[Measured]:
        async with counter(path) as count:
            return [request for session in sessions() for request in await replay(session, count)]

    return asyncio.run(measure())


def mean(some: Iterable[Measured]) -> float:
    return statistics.mean(request.error for request in some)


@pytest.mark.parametrize("half", [FIT, CHECK])
def test_the_mean_error_is_under_five_percent(measured: list[Measured], half: int) -> None:
    errors = sorted(request.error for request in measured if request.session.half == half)
    assert statistics.mean(errors) < 0.05
    assert errors[int(len(errors) * 0.98)] < 0.10
    assert errors[-1] < 0.15, "text of a kind that the session had not seen: base64, JSON, Chinese"


def test_the_mean_error_of_first_requests_is_under_five_percent(measured: list[Measured]) -> None:
    first = [request for request in measured if request.number == 0]
    assert mean(first) < 0.05
    assert max(request.error for request in first) < 0.10


@pytest.mark.parametrize("kind", KINDS)
def test_estimates_are_accurate_for_every_kind_of_text(measured: list[Measured], kind: str) -> None:
    assert mean(request for request in measured if request.session.kind == kind) < 0.05


async def test_the_server_reports_the_same_counts(path: Path, measured: list[Measured]) -> None:
    """The first requests of the smallest sessions are sent: prompts are read slowly here."""
    smallest = sorted((request for request in measured if request.number == 0), key=lambda request: request.counted)

    async def ask() -> list[int]:
        async with counter(path) as count:
            return [await count.reported(request.request) for request in smallest[:3]]

    assert await ask() == [request.counted for request in smallest[:3]]


def test_the_measured_sessions_are_numerous_and_varied(measured: list[Measured]) -> None:
    every = sessions()
    lengths = [max(len(r.messages) for r in measured if r.session == session) + 1 for session in every]
    assert len(every) >= 50
    assert min(lengths) >= 4
    assert max(lengths) >= 40
    assert max(request.counted + request.replied for request in measured) < 8192
    assert sum(bool(turn.asked) for session in every for turn in session.turns) > 1.5 * len(every)
    assert sessions() == every


MOST_TOKENS_OF_TOOLS = 1800


def default_tools(names: Iterable[str]) -> tuple[ToolSpec, ...]:
    return tuple([list_known_tools()[name] for name in sorted(names)])


def render_functions(tools: Iterable[ToolSpec]) -> str:
    """Return tools in the form of chat completions, as a chat template renders them: one to a line, with blanks."""
    functions = [{"name": tool.name, "description": tool.description, "parameters": tool.schema} for tool in tools]
    return "\n".join(json.dumps({"type": "function", "function": each}) for each in functions)


async def test_the_default_tools_are_small_and_estimated_within_ten_percent(path: Path, tmp_path: Path) -> None:
    """As the embedded model is told of them, and with the wrapper `type: function` that others are sent."""
    agent = Home(tmp_path).agent("default", "local/smollm2")
    sets = (default_tools(agent.tools), default_tools(SMALL_SET), default_tools(DEFAULT_PERMITTED_TOOLS))

    async def ask() -> list[tuple[int, int, int]]:
        async with counter(path) as count:
            found: list[tuple[int, int, int]] = []
            for tools in sets:
                prompt = make_preamble(agent, tools, ("Your working folder is /home/ada/work.",))
                conversation = Conversation([user("What is in notes.txt?")])
                request = ModelRequest("smollm2", prompt, conversation, ModelSettings(), profile=PROFILE)
                counts = TokenCount(estimate_preamble(prompt))
                estimate = counts.estimate(estimate_message(conversation.messages[0]))
                found.append((await count.prompt(request), estimate, await count.tokens(render_functions(tools))))
            return found

    measured = await ask()
    for counted, estimate, _ in measured:
        assert abs(estimate - counted) < 0.1 * counted
    counted, _, as_sent = measured[0]
    assert max(counted, as_sent) <= MOST_TOKENS_OF_TOOLS
    assert measured[1][0] < counted / 1.8, "the small set is small"


def test_every_parameter_of_the_default_tools_is_described(tmp_path: Path) -> None:
    for tool in default_tools(Home(tmp_path).agent("default", "local/smollm2").tools):
        assert tool.description
        assert all(schema.get("description") for schema in tool.schema["properties"].values()), tool.name
