"""The runs of the golden corpus: agents, tools and a scripted model that bring a run into every state.

A message holds a tag such as `#plain`. The model looks up the script of the latest tag and replies with the step
that follows its own earlier replies."""

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import treadle
from treadle.api.engine import HostedEngine, create_engine
from treadle.core.context.compaction import INSTRUCTIONS
from treadle.domain.runs import Usage
from treadle.ports.model import ModelRequest
from treadle.testing.models import (
    FunctionModel,
    ScriptedFailure,
    ScriptedReply,
    ScriptStep,
    Silence,
    ask,
    call,
    say,
)

TAG = re.compile(r"#(\w+)")
PRICES = "models: {fake/m-1: {prices: {input: 1, output: 10}, max_output: 1000}}\nhouse_rules: Be kind.\n"
"""The `config.yaml` of the home in which the corpus is recorded and checked."""
TIMEOUT_SECONDS = 60.0
ASKING: dict[str, Any] = {"expires": "36500d", "rules": [{"tool": "sign", "do": "ask"}]}
"""Approvals that are still open when the corpus is checked."""


@treadle.tool(effect="read", repeatable=True)
async def look(place: str) -> str:
    """Look somewhere."""
    if place == "nowhere":
        raise LookupError("there is no such place")
    return f"There is a key in {place}."


@treadle.tool(effect="read", repeatable=True)
async def read_all() -> str:
    """Read a long text."""
    return "".join(f"line {number} of a text that is too long for the window\n" for number in range(300))


@treadle.tool
async def sign(text: str) -> str:
    """Sign a text."""
    return f"signed {text}"


def tools_that(block: asyncio.Event | None) -> Sequence[Any]:
    """Return the tools of the corpus. With an event, two of them never return until it is set."""

    @treadle.tool
    async def post(text: str) -> str:
        """Post a letter."""
        if block is not None:
            await block.wait()
        return f"posted {text}"

    @treadle.tool(effect="read", repeatable=True, parallel=True)
    async def watch(place: str) -> str:
        """Watch a place."""
        if block is not None and place == "the sea":
            await block.wait()
        return f"nothing moves in {place}"

    return (look, read_all, sign, post, watch)


SCRIPTS: dict[str, Sequence[ScriptStep]] = {
    # ended
    "plain": [
        ask(call("look", "c1", place="the hall"), call("look", "c2", place="nowhere"), thinking="Where?"),
        say("The key is in the hall.", thinking="There."),
    ],
    "silent": [say("NO_REPLY")],
    "steps": [*(ask(call("look", f"c{n}", place=f"room {n}"), text=f"Room {n}.") for n in range(9))],
    "loop": [*(ask(call("look", f"c{n}", place="the hall")) for n in range(9))],
    "empty": [say(""), say("Here I am.")],
    "cut": [say("The key is", stop="max_tokens"), say(" in the hall.")],
    "claim": [say("I have sent the email to Ada."), say("I have sent the email to Ada.")],
    "typed": [say("seven"), say("7")],
    "long": [
        ask(call("read_all", "c1")),
        ask(call("recall", "c2", call_id="c1", start=0, length=120)),
        say("Read."),
    ],
    "unknown": [ask(call("lok", "c1", place="the hall"), call("look", "c2", place=3)), say("Sorry.")],
    "hints": [*(ask(call("look", f"c{n}", place=f"room {n}")) for n in range(3)), say("Done.")],
    "sign": [
        ask(call("sign", "c1", text="a"), call("sign", "c2", text="b"), text="Two."),
        ask(call("clarify", "c3", question="Which colour?")),
        say("Signed."),
    ],
    "other": [
        ScriptedFailure("server", "the provider is down", retryable=False, next_model=True),
        say("From the second."),
    ],
    "broken": [ScriptedFailure("invalid_request", "the provider refuses it", retryable=False)],
    "steered": [ask(call("watch", "c1", place="the sea")), say("Watched.")],
    "again": [say("Again.")],
    # waiting
    "retry": [ScriptedFailure(retry_after=3600.0)],
    "think": [Silence("Let me think")],
    "ask": [ask(call("sign", "c1", text="here")), say("Signed here.")],
    "question": [ask(call("clarify", "c1", question="Which?")), say("That one.")],
    "rate": [ask(call("look", "c1", place="one")), ask(call("look", "c2", place="two")), say("Both.")],
    "child": [ask(call("agent_spawn", "c1", message="#think about it")), say("Thought.")],
    # children
    "spawn": [
        ask(
            call("agent_spawn", "c1", message="#plain look for the key", tools=["look"]),
            call("invoke_agent", "c2", agent="clerk", message="#again"),
        ),
        ask(call("agent_send", "c3", agent="clerk", message="#silent")),
        say("Both have answered."),
    ],
    # killed
    "post": [ask(call("look", "c1", place="the hall"), call("post", "c2", text="hello"), text="I post it.")],
    "sea": [
        ask(*(call("watch", f"c{n}", place=place) for n, place in enumerate(("a", "the sea", "b", "the sea"))))
    ],
    # memory
    "save": [ask(call("memory_save", "c1", text="Ada likes green tea.")), say("Ada likes green tea: saved.")],
    "tea": [say("Green tea.")],
    "note": [ask(call("journal_write", "c1", text="a quiet day")), say("Noted.")],
}
"""What the model replies, by tag. A script that ends is followed by `END`."""
END = say("Done.")


def answer(request: ModelRequest) -> ScriptStep:
    """Return the next step of the script that the latest tag names."""
    if request.preamble.system.startswith(INSTRUCTIONS):
        return say(
            "## Goal\nfind the key\n## Done\nlooked\n## Remember\n- Ada likes tea", usage=Usage(estimated=True)
        )
    messages = request.conversation.messages
    tagged = [n for n, message in enumerate(messages) if message.role == "user" and TAG.search(message.text)]
    if not tagged:
        return END
    tags = TAG.findall(messages[tagged[-1]].text)
    script = SCRIPTS.get(tags[-1], ())
    done = sum(message.role == "assistant" for message in messages[tagged[-1] :])
    return script[done] if done < len(script) else END


def answer_from_the_second(request: ModelRequest) -> ScriptStep:
    """Reply as the model that takes over from one that is down."""
    step = answer(request)
    return say("From the second.") if isinstance(step, ScriptedFailure) else step


def answer_at_once(request: ModelRequest) -> ScriptStep:
    """Reply as the model does when the corpus is checked: without failures and without silence."""
    step = answer(request)
    return step if isinstance(step, ScriptedReply) else END


def open_engine(url: str, home: Any, block: asyncio.Event | None, **more: Any) -> HostedEngine:
    """Return an engine that knows the agents, tools and models of the corpus."""
    engine = create_engine(url, home=home, **more)
    engine.add_model("fake", FunctionModel(answer if block is not None else answer_at_once))
    engine.add_model("second", FunctionModel(answer_from_the_second))
    if block is None:
        engine.add_model("absent", FunctionModel(answer_at_once))
        engine.add_model("down", FunctionModel(answer_at_once))
    else:
        engine.add_model("down", FunctionModel(lambda _: ScriptedFailure("server", "down", retryable=False)))
    engine.add_tools(*tools_that(block))
    engine.add_agents(agent("clerk"))
    return engine


def agent(name: str = "ada", **more: Any) -> treadle.Agent:
    """Return an agent of the corpus. It has every tool and remembers nothing unless told to."""
    tools = ["look", "read_all", "sign", "post", "watch", "clarify", "recall", "memory_save", "memory_search",
             "journal_write", "agent_spawn", "agent_send", "invoke_agent"]  # fmt: skip
    fields: dict[str, Any] = {
        "name": name,
        "model": "fake/m-1",
        "persona": "Be brief.",
        "tools": tools,
        "memory": {"recall": 0, "remember": False, "embedder": "none"},
        "model_settings": {"max_tokens": 500},
    }
    return treadle.Agent(**(fields | more))


async def reach(engine: HostedEngine, run_id: str, *types: str, count: int = 1) -> Any:
    """Wait until the run has so many events of these types; return the last of them."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        async for event in engine.events(run_id):
            count -= event.type in types
            if count == 0:
                return event
    raise AssertionError(f"{run_id} ended without {types}")


async def begin(engine: HostedEngine) -> None:
    """Start a run whose provider the next engine does not know, and leave it in the middle of a model call."""
    engine.add_model("absent", FunctionModel(lambda _: Silence("Hm")))
    run_id = await engine.submit(agent("absent", model="absent/m-1"), "hello")
    await reach(engine, run_id, "token")


async def tell(engine: HostedEngine, block: asyncio.Event) -> None:
    """Bring runs into every state of the corpus. The engine is to be copied before it is closed."""
    await _wait_unavailable(engine)
    await _end(engine, block)
    await _remember(engine)
    await _reshape_sessions(engine)
    await _wait(engine)
    await _leave_in_progress(engine)


async def _wait_unavailable(engine: HostedEngine) -> None:
    [record] = await engine.service.list_unfinished()
    await reach(engine, record.origin.run_id, "run_waiting")


async def _end(engine: HostedEngine, block: asyncio.Event) -> None:
    first = await engine.run(agent(), "#plain", session="ses_plain", key="the first")
    await engine.run(agent(), "#silent", session="ses_plain")
    await engine.run(agent(limits={"max_steps": 2}), "#steps")
    await engine.run(agent(), "#loop")
    for tag in ("empty", "cut", "claim", "unknown", "broken"):
        await engine.run(agent(), f"#{tag}")
    await engine.run(agent(output={"type": "integer"}), "#typed")
    await engine.run(agent(limits={"context_window": 6000}), "#long")
    await engine.run(agent(limits={"max_steps": 4}, budget_hints=True), "#hints")
    await engine.run(agent(fallbacks=["second/m-2"]), "#other")
    await engine.run(agent(), "#spawn")
    signing = await engine.submit(agent(approvals=ASKING), "#sign", asker="terminal")
    denied = await reach(engine, signing, "approval_requested")
    await engine.decide(denied.data.approval_id, "deny", note="not that one")
    edited = await reach(engine, signing, "approval_requested", count=2)
    await engine.decide(edited.data.approval_id, "approve", arguments={"text": "edited"})
    question = await reach(engine, signing, "clarify_requested")
    await engine.answer(signing, question.data.call_id, "green")
    await engine.wait(signing)
    steered = await engine.submit(agent(), "#steered")
    await reach(engine, steered, "tool_call_start")
    await engine.steer(steered, "faster")
    block.set()
    await engine.wait(steered)
    block.clear()
    cancelled = await engine.submit(agent(), "#post")
    await reach(engine, cancelled, "tool_call_start", count=2)
    await engine.cancel(cancelled)
    await engine.wait(cancelled)
    await engine.wait(await engine.fork(first.run_id, step=2, message="#again"))


async def _remember(engine: HostedEngine) -> None:
    remembering = {"recall": 5, "remember": True, "embedder": "none"}
    await engine.run(agent("bea", memory=remembering), "#save What does Ada like to drink?", user="ada")
    await engine.run(agent("bea", memory=remembering), "#note Write a note.", user="ada")
    await engine.run(
        agent("bea", memory=remembering), "#tea What does Ada like to drink?", asker="terminal", user="ada"
    )
    await engine.run(agent("bea", memory=remembering | {"place": "system"}), "#tea What does Ada like?", user="ada")
    await engine.run(
        agent("bea", memory=remembering | {"when": "step"}), "#plain What green tea does Ada like?", user="ada"
    )


async def _reshape_sessions(engine: HostedEngine) -> None:
    for message in ("#plain one", "#again two", "/pin", "#plain three", "/compact the key", "#again four", "/undo",
                    "#again five", "/usage", "/reset", "#again six"):  # fmt: skip
        await engine.run(agent(), message, session="ses_reshaped")
    small = agent(limits={"context_window": 3000})
    for number in range(4):
        await engine.run(small, f"#again {number} " + "words that fill the window " * 60, session="ses_small")


async def _wait(engine: HostedEngine) -> None:
    async def waiting(maker: treadle.Agent, message: str, **more: Any) -> str:
        run_id = await engine.submit(maker, message, **more)
        await reach(engine, run_id, "run_waiting")
        return run_id

    await waiting(agent("retry"), "#retry")
    for _ in range(25):
        await engine.run(agent("down", model="down/m-1"), "hello")
        if engine.models.resolve("down/m-1", None).breaker.wait(engine.clock.monotonic(), "run_x") is not None:
            break
    await waiting(agent("down", model="down/m-1"), "hello")
    asking = agent("asking", approvals=ASKING)
    await waiting(asking, "#ask", asker="terminal")
    await waiting(agent("question"), "#question", asker="terminal")
    await waiting(agent("rate", quotas={"max_tool_calls_per_minute": 1}), "#rate")
    await waiting(agent("parent"), "#child")
    limited = agent("limited", tools=[], quotas={"max_llm_tokens_per_hour": 900})
    holding = await engine.submit(limited, "#think")
    await reach(engine, holding, "llm_request")
    await waiting(limited, "#again")
    interrupted = await engine.submit(agent("stopped"), "#think", session="ses_stopped")
    await reach(engine, interrupted, "token")
    await engine.interrupt(interrupted)
    await reach(engine, interrupted, "run_waiting")


async def _leave_in_progress(engine: HostedEngine) -> None:
    posting = await engine.submit(agent(), "#post", session="ses_posting")
    await reach(engine, posting, "tool_call_start", count=2)
    await engine.steer(posting, "Use the red stamp.")
    await engine.submit(agent(), "#again after the post", session="ses_posting")
    watching = await engine.submit(agent(), "#sea")
    await reach(engine, watching, "tool_call_end", count=2)
    thinking = await engine.submit(agent(), "#think")
    await reach(engine, thinking, "token")
