"""Adapters that break their contract and callers that send invalid data cause an error result or a refusal. The run
can always continue or end."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.engine.running import agent, in_virtual_time, journal, opened, types, until, virtually
from tests.observed import all_told
from treadle.domain.errors import InvalidState, UsageError
from treadle.domain.events import ApprovalRequested, ToolCallStart
from treadle.domain.tools import ToolSpec
from treadle.ports.hooks import HookedCall, Rewrite
from treadle.ports.tool import Observation, Subjects, ToolContext
from treadle.testing.models import ScriptedFailure, ScriptedModel, ask, call, say
from treadle.tools.function import tool

TERMINAL: dict[str, Any] = {"asker": "terminal"}


class OddTool:
    """A tool that returns a given value."""

    def __init__(self, result: Any, subjects: Any = None) -> None:
        self.spec = ToolSpec("odd", "Be odd.", {"type": "object"})
        self._result, self._subjects = result, subjects

    def parse(self, arguments: str) -> Any:
        return None

    def subjects(self, arguments: Any) -> Subjects:
        if self._subjects is not None:
            raise self._subjects
        return Subjects(())

    async def run(self, arguments: Any, context: ToolContext) -> Any:
        return self._result


async def run_tool(
    folder: Path, *tools: Any, hooks: tuple[treadle.Hook, ...] = (), **more: Any
) -> tuple[str, list[str]]:
    """Return the result of a call of the first tool as the model sees it, and the types of the events."""
    name = tools[0].spec.name
    model = ScriptedModel(ask(call(name, "c1")), say("done"))

    async with opened(folder, model) as engine:
        engine.add_hooks(*hooks)
        result = await engine.run(agent(tools=list(tools), **more), "go")
        assert result.text == "done"
        kinds = types(await journal(engine, result.run_id))
    assert "run_recovered" not in kinds, "the engine itself did not fail"
    [told] = all_told(model.requests[-1].conversation.messages[-1].parts)
    return told.content, kinds


NONSENSE: list[Any] = [
    None,
    {"a": 1},
    b"x",
    5,
    Observation(5),  # pyright: ignore[reportArgumentType] -- that is the point
    Observation("x", exit_code="1"),  # pyright: ignore[reportArgumentType] -- that is the point
]


@pytest.mark.parametrize("result", NONSENSE, ids=str)
async def test_a_tool_that_returns_an_invalid_result_has_failed(tmp_path: Path, result: Any) -> None:
    told, _ = await run_tool(tmp_path, OddTool(result))
    assert "`odd` failed: TypeError: it returned" in told


async def test_a_tool_whose_subjects_fail_does_not_run(tmp_path: Path) -> None:
    told, kinds = await run_tool(tmp_path, OddTool("ran", LookupError("no idea")), approvals={"default": "ask"})
    assert "LookupError: no idea" in told
    assert "tool_call_start" not in kinds


@tool(effect="none")
async def fine() -> str:
    """Be fine."""
    return "fine"


class AnsweringHook(treadle.Hook):
    def __init__(self, before: Any = None, after: Any = None, error: BaseException | None = None) -> None:
        self._before, self._after, self._error = before, after, error

    async def before(self, call: HookedCall) -> Any:
        if self._error is not None:
            raise self._error
        return self._before

    async def after(self, call: HookedCall, result: Observation) -> Any:
        return self._after


class PlainHook(treadle.Hook):
    def before(self, call: HookedCall) -> Any:
        raise ValueError("not even async")


@pytest.mark.parametrize(
    "hook",
    [
        AnsweringHook(before=False),
        AnsweringHook(before="block it"),
        AnsweringHook(before={"block": True}),
        AnsweringHook(before=Rewrite({"x": {1, 2}, "y": object()})),
        AnsweringHook(before=Rewrite("not an object")),  # pyright: ignore[reportArgumentType] -- that is the point
        AnsweringHook(error=asyncio.CancelledError()),
        AnsweringHook(error=SystemExit(3)),
        PlainHook(),
    ],
    ids=["false", "a word", "a mapping", "no JSON", "no object", "cancelled", "exit", "not async"],
)
async def test_a_hook_with_an_invalid_answer_blocks(tmp_path: Path, hook: treadle.Hook) -> None:
    told, kinds = await run_tool(tmp_path, fine, hooks=(hook,))
    assert "`fine` was not run" in told
    assert "tool_call_start" not in kinds


@pytest.mark.parametrize("after", ["text", b"x", 5])
async def test_an_invalid_replacement_by_a_hook_withholds_the_result(tmp_path: Path, after: Any) -> None:
    told, _ = await run_tool(tmp_path, fine, hooks=(AnsweringHook(after=after),))
    assert "its result is withheld" in told


async def test_a_hook_cannot_change_the_arguments_in_place(tmp_path: Path) -> None:
    said: list[str] = []

    @treadle.tool(effect="none")
    async def echo(text: str) -> str:
        said.append(text)
        return text

    class Sly(treadle.Hook):
        async def before(self, call: HookedCall) -> None:
            call.arguments["text"] = "changed"

    model = ScriptedModel(ask(call("echo", "c1", text="as it was")), say("done"))

    async with opened(tmp_path, model) as engine:
        engine.add_hooks(Sly())
        await engine.run(agent(tools=[echo]), "go")
    assert said == ["as it was"]


def test_a_cancel_does_not_wait_for_a_hook() -> None:
    class Slow(treadle.Hook):
        async def before(self, call: HookedCall) -> None:
            await asyncio.sleep(20)

    async def scenario() -> None:
        async with in_virtual_time(ScriptedModel(ask(call("fine", "c1")))) as engine:
            engine.add_hooks(Slow())
            run_id = await engine.submit(agent(tools=[fine]), "go")
            await until(engine, run_id, "llm_response")
            await engine.cancel(run_id)
            result = await engine.wait(run_id)
            assert (result.outcome, result.metrics.duration_ms) == ("cancelled", 0)

    virtually(scenario())


# ── Callers ──


@treadle.tool
async def post(letter: str) -> str:
    """Post a letter."""
    return f"posted {letter}"


@pytest.mark.parametrize(
    "wrong",
    [
        {"decision": "approved"},
        {"decision": 1},
        {"remember": "forever"},
        {"note": 5},
        {"arguments": {"letter": 5}},
    ],
)
async def test_a_wrong_decision_is_refused_and_the_right_one_still_counts(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    model = ScriptedModel(ask(call("post", "c1", letter="x")), say("done"))
    async with opened(tmp_path, model) as engine:
        run_id = await engine.submit(agent(tools=[post], approvals={"default": "ask"}), "go", **TERMINAL)
        asked = await until(engine, run_id, "approval_requested")
        assert isinstance(asked.data, ApprovalRequested)
        answer: dict[str, Any] = {"decision": "approve", **wrong}
        with pytest.raises((UsageError, TypeError)):
            await engine.decide(asked.data.approval_id, **answer)
        await engine.decide(asked.data.approval_id, "approve")
        assert (await engine.wait(run_id)).text == "done"


async def test_an_invalid_steer_mode_or_asker_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(ask(call("post", "c1", letter="x")))) as engine:
        with pytest.raises(UsageError):
            await engine.submit(agent(tools=[post]), "go", asker="me")  # pyright: ignore[reportArgumentType] -- nonsense
        assert await engine.service.runs() == []
        run_id = await engine.submit(agent(tools=[post], approvals={"default": "ask"}), "go", **TERMINAL)
        await until(engine, run_id, "run_waiting")
        with pytest.raises(UsageError):
            await engine.steer(run_id, "hi", "now")  # pyright: ignore[reportArgumentType] -- nonsense
        await engine.cancel(run_id)
        assert (await engine.wait(run_id)).outcome == "cancelled"


async def test_a_rule_for_an_unknown_tool_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel()) as engine:
        with pytest.raises(UsageError, match="`bsh`, which is not a known tool"):
            await engine.submit(agent(approvals={"rules": [{"tool": "bsh", "do": "deny"}]}), "go")
        with pytest.raises(UsageError, match="is not a folder"):
            await engine.submit(agent(workspace=tmp_path / "nowhere"), "go")


async def test_a_message_for_another_agent_does_not_go_to_the_run_that_waits(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(ask(call("post", "c1", letter="x")))) as engine:
        hero = agent(tools=[post], approvals={"default": "ask"})
        run_id = await engine.submit(hero, "go", session="ses_a", **TERMINAL)
        await until(engine, run_id, "run_waiting")
        with pytest.raises(InvalidState, match="a run of agent `hero`"):
            await engine.submit(agent(name="other"), "hello", session="ses_a")
        await engine.cancel(run_id)


# ── Rules cannot be walked around ──


async def test_another_name_of_a_tool_does_not_get_around_its_rules(tmp_path: Path) -> None:
    model = ScriptedModel(ask(call("run_command", "c1", command="touch evil")), say("done"))
    rules = [{"tool": "bash", "match": "touch *", "do": "deny"}]

    async with opened(tmp_path, model) as engine:
        hero = agent(tools=["run_command"], workspace=tmp_path, approvals={"rules": rules})
        await engine.run(hero, "go")
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    ("allowed", "called"), [("bash", "run_command"), ("run_command", "bash"), ("run_*", "bash")]
)
async def test_the_two_names_of_the_command_tool_select_one_tool(tmp_path: Path, allowed: str, called: str) -> None:
    model = ScriptedModel(ask(call(called, "c1", command="touch here")), say("done"))

    async with opened(tmp_path, model) as engine:
        hero = agent(tools=[allowed], workspace=tmp_path, approvals={"rules": [{"tool": "bash", "do": "auto"}]})
        await engine.run(hero, "go")
    assert [spec.name for spec in model.requests[0].preamble.tools] == ["bash"]
    assert (tmp_path / "here").exists()


async def test_replacing_a_tool_replaces_its_aliases(tmp_path: Path) -> None:
    @treadle.tool(name="bash")
    async def mine(command: str) -> str:
        """Mine."""
        return command

    async with opened(tmp_path, ScriptedModel(say("done"))) as engine:
        engine.add_tools(mine)
        with pytest.raises(UsageError, match="no tool is called `run_command`"):
            await engine.submit(agent(tools=["run_command"]), "go")


async def test_a_rule_sees_text_at_any_depth(tmp_path: Path) -> None:
    sent: list[Any] = []

    @treadle.tool
    async def send(to: list[str], extra: dict[str, list[str]]) -> str:
        """Send."""
        sent.append((to, extra))
        return "sent"

    model = ScriptedModel(
        ask(call("send", "c1", to=["x@evil.com"], extra={})),
        ask(call("send", "c2", to=[], extra={"cc": ["y@evil.com"]})),
        say("done"),
    )

    async with opened(tmp_path, model) as engine:
        await engine.run(
            agent(tools=[send], approvals={"rules": [{"tool": "send", "match": "*@evil.com", "do": "deny"}]}),
            "go",
        )
    assert sent == []


async def test_edited_arguments_are_seen_by_hooks_and_rules(tmp_path: Path) -> None:
    model = ScriptedModel(ask(call("post", "c1", letter="nice")), say("done"))
    rules = [{"tool": "post", "match": "*evil*", "do": "deny"}]

    async with opened(tmp_path, model) as engine:
        hero = agent(tools=[post], approvals={"default": "ask", "rules": rules})
        run_id = await engine.submit(hero, "go", **TERMINAL)
        asked = await until(engine, run_id, "approval_requested")
        assert isinstance(asked.data, ApprovalRequested)
        await engine.decide(asked.data.approval_id, "approve", arguments={"letter": "evil"})
        await engine.wait(run_id)
        events = [event.data for event in await journal(engine, run_id)]
    assert not [data for data in events if isinstance(data, ToolCallStart)]


async def test_calls_that_a_hook_redirects_to_one_path_run_one_after_the_other(tmp_path: Path) -> None:
    at_once: list[int] = []
    running = 0

    @treadle.tool(effect="write", paths=["path"])
    async def write(path: str) -> str:
        nonlocal running
        running += 1
        at_once.append(running)
        await asyncio.sleep(0.01)
        running -= 1
        return path

    class Lead(treadle.Hook):
        async def before(self, call: HookedCall) -> Rewrite:
            return Rewrite({"path": "same"})

    model = ScriptedModel(ask(call("write", "c1", path="a"), call("write", "c2", path="b")), say("done"))

    async with opened(tmp_path, model) as engine:
        engine.add_hooks(Lead())
        await engine.run(agent(tools=[write]), "go")
    assert at_once == [1, 1]


def test_an_approval_that_comes_too_late_is_refused() -> None:
    async def scenario() -> None:
        model = ScriptedModel(ask(call("post", "c1", letter="x")), say("went on"))
        async with in_virtual_time(model) as engine:
            hero = agent(tools=[post], approvals={"default": "ask", "expires": 60})
            run_id = await engine.submit(hero, "go", **TERMINAL)
            asked = await until(engine, run_id, "approval_requested")
            assert isinstance(asked.data, ApprovalRequested)
            assert asked.data.expires_at is not None
            await asyncio.sleep(60)
            with pytest.raises(InvalidState):
                await engine.decide(asked.data.approval_id, "approve")
            assert (await engine.wait(run_id, until="ended")).text == "went on"

    virtually(scenario())


async def test_a_denial_does_not_count_as_a_tool_failure(tmp_path: Path) -> None:
    steps = [ask(call("post", f"c{n}", letter=f"letter {n}")) for n in range(10)]

    async def scenario() -> treadle.Result:
        async with opened(tmp_path, ScriptedModel(*steps, say("I give up"))) as engine:
            hero = agent(tools=[post], approvals={"default": "deny"}, limits={"stuck_steps": 20})
            return await engine.run(hero, "go")

    assert (await scenario()).text == "I give up"


@pytest.mark.parametrize("then", ["no steps left", "nothing", "a failure"])
async def test_a_challenged_answer_is_delivered_if_no_better_one_follows(tmp_path: Path, then: str) -> None:
    more = {
        "no steps left": (),
        "nothing": (say(""), say("")),
        "a failure": (ScriptedFailure("auth", "no key", retryable=False),),
    }[then]
    model = ScriptedModel(say("I have sent the email to Bob."), *more)

    async with opened(tmp_path, model) as engine:
        hero = agent(tools=[post], limits={"max_steps": 1 if then == "no steps left" else 9})
        result = await engine.run(hero, "go")
    assert (result.outcome, result.text) == ("completed", "I have sent the email to Bob.")
    assert result.unverified_claim == result.text


async def test_results_of_two_runs_that_share_a_call_id_are_distinguished(tmp_path: Path) -> None:
    @treadle.tool(effect="read")
    async def big(letter: str) -> str:
        """Be long."""
        return letter * 300_000

    model = ScriptedModel(
        ask(call("big", "c1", letter="a")),
        say("one"),
        ask(call("big", "c1", letter="b")),
        ask(call("recall", "c2", call_id="c1", start=1000, length=10)),
        say("two"),
    )

    async with opened(tmp_path, model) as engine:
        hero = agent(tools=[big, "recall"])
        first = await engine.run(hero, "go")
        await engine.run(hero, "again", session=first.session_id)
    [told] = all_told(model.requests[-1].conversation.messages[-1].parts)
    assert told.content.startswith("aaaaaaaaaa\n")
