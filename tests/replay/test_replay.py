"""Replay of journals with the current code: it produces the same events, and a changed decision is found where it
was made."""

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

import treadle
from tests.domain.test_envelope import ORIGIN
from tests.engine.running import agent, in_virtual_time, journal, opened, until, virtually
from tests.engine.test_compaction import SMALL, UNCOUNTED, WORDS, is_summary
from tests.stores.corpus import make
from treadle.api.engine import HostedEngine
from treadle.bootstrap.offline_service import open_service_readonly
from treadle.core.fold.registry import HANDLERS
from treadle.core.guards import loop as loop_guard
from treadle.domain import events as e
from treadle.domain.envelope import VERSION, Event, make_draft
from treadle.domain.errors import UnknownRun
from treadle.domain.ids import RunId
from treadle.domain.runs import Usage
from treadle.engine import tool_results
from treadle.operations.replay_service import add_earlier_runs, read_recorded_run
from treadle.ports.hooks import Block, HookedCall, Rewrite
from treadle.ports.model import ModelRequest
from treadle.ports.tool import Observation, Subjects
from treadle.replay.comparison import compare
from treadle.replay.recording import Recorded
from treadle.replay.replay import Replayed, replay
from treadle.stores.sqlite.connection import connect, open_database
from treadle.testing.models import (
    FunctionModel,
    ScriptedFailure,
    ScriptedModel,
    ScriptStep,
    Silence,
    ask,
    call,
    say,
)
from treadle.tools.toolbox import ToolRegistry
from treadle.vault.store import SecretGrant, VaultStore

QUIET = {"recall": 0, "remember": False}


@treadle.tool(effect="read", repeatable=True)
async def look(at: str) -> str:
    """Look at something."""
    if at == "nothing":
        raise LookupError("there is nothing")
    return "always the same"


@treadle.tool
async def post(text: str) -> str:
    """Post something."""
    return f"posted {text}"


@treadle.tool(effect="read")
async def fetch_all() -> str:
    """Fetch a lot."""
    return "".join(f"line {n}\n" for n in range(20_000))


async def record_of(engine: HostedEngine, run_id: str) -> Recorded:
    service: Any = engine.service
    return await read_recorded_run(RunId(run_id), service._journal, service._sessions, service._approvals)


async def same(engine: HostedEngine, run_id: str) -> Replayed:
    replayed = await engine.service.replay(RunId(run_id))
    assert replayed.is_same, replayed
    assert replayed.wording == (), "the code that recorded it words it the same way"
    assert replayed.same == replayed.events > 3
    return replayed


def test_every_kind_of_step_replays(tmp_path: Path) -> None:
    """Retries, loops that are warned of and blocked, errors, empty turns, continuations, claims, long results."""
    script: list[ScriptStep] = [
        ScriptedFailure(), ScriptedFailure(retry_after=0.05),
        *(ask(call("look", f"a{n}", at="it"), thinking="hm") for n in range(3)),
        *(ask(call("look", f"b{n}", at="nothing", n=n)) for n in range(3)),
        ask(call("look", "x", at="1"), call("nonsense", "y"), call("look", "z", at="2"), text="so"),
        ask(call("fetch_all", "f")), say(""), say("I have sent the email.", stop="max_tokens"), say(" Indeed."),
        say("1"),
    ]  # fmt: skip

    async def scenario() -> None:
        async with opened(tmp_path, ScriptedModel(*script)) as engine:
            hero = agent(tools=[look, fetch_all], retry={"attempts": 3, "base_ms": 1}, budget_hints=True,
                         limits={"max_steps": 13}, output={"type": "integer"})  # fmt: skip
            result = await engine.run(hero, "go")
            await same(engine, result.run_id)

    asyncio.run(scenario())


def test_every_reaction_to_a_refusal_replays(tmp_path: Path) -> None:
    model = ScriptedModel(
        ScriptedFailure("invalid_request", "max_tokens is too large", False, longest_reply=8192),
        ScriptedFailure("invalid_request", "the call cannot be read", True, once=True),
        ask(call("look", at="hall")),
        ScriptedFailure("rate_limited", "slow down", True, retry_after=0.05),
        ScriptedFailure("invalid_request", "Bad Request", False, status=400, unclear=True),
        ScriptedFailure("rate_limited", "come back tomorrow", True, retry_after=86_400.0),
    )

    async def scenario() -> None:
        async with opened(tmp_path, model) as engine:
            hero = agent(tools=[look], retry={"attempts": 3, "base_ms": 1}, memory=QUIET)
            first = await engine.run(hero, "go")
            second = await engine.run(hero, "and?", session=first.session_id)
            assert (first.outcome, second.outcome) == ("model_error", "model_error")
            assert "It asks to wait 24 h" in second.reason
            for result in (first, second):
                await same(engine, result.run_id)

    asyncio.run(scenario())


def test_decisions_hooks_and_secrets_replay(tmp_path: Path) -> None:
    class Strict(treadle.Hook):
        async def before(self, call: HookedCall) -> Block | Rewrite | None:
            match call.arguments.get("text"):
                case "forbidden":
                    return Block("not that")
                case "shout":
                    return Rewrite({"text": "SHOUT"})
                case _:
                    return None

        async def after(self, call: HookedCall, result: Observation) -> Observation | None:
            if call.arguments.get("text") == "hidden":
                raise RuntimeError("nobody may see this")
            return None

    script = [
        ask(call("post", "p1", text="forbidden"), call("post", "p2", text="shout")),
        ask(call("post", "p3", text="hidden")),
        ask(call("post", "p4", text="{{vault:TOKEN}}"), call("post", "p5", text="{{vault:OTHER}}")),
        ask(call("post", "p6", text="hunter2-hunter2"), text="it is hunter2-hunter2"),
        ask(call("sign", "s1", text="a")), ask(call("sign", "s2", text="b")), ask(call("sign", "s3", text="c")),
        ask(call("clarify", "q1", question="Which?")),
        say("done"),
    ]  # fmt: skip

    @treadle.tool
    async def sign(text: str) -> str:
        """Sign something."""
        return f"signed {text}"

    async def scenario() -> None:
        with closing(VaultStore(tmp_path / "home", {})) as vault:
            vault.put("TOKEN", "hunter2-hunter2", (SecretGrant("hero"),))
        async with opened(tmp_path, ScriptedModel(*script)) as engine:
            engine.add_hooks(Strict())
            rules = [{"tool": "sign", "do": "ask"}]
            hero = agent(tools=[post, sign, "clarify"], approvals={"rules": rules}, memory=QUIET)
            decided = iter((
                ("deny", None, "once"), ("approve", {"text": "edited"}, "session"), ("approve", None, "once"),
            ))  # fmt: skip
            run_id = await engine.submit(hero, "go: hunter2-hunter2", asker="terminal")
            async for event in engine.events(run_id):
                match event.data:
                    case e.ApprovalRequested(approval_id):
                        how, arguments, remember = next(decided)
                        choice: Any = how
                        kept: Any = remember
                        await engine.decide(approval_id, choice, arguments=arguments, remember=kept)
                    case e.ClarifyRequested(call_id):
                        await engine.answer(run_id, call_id, "this one")
                    case _:
                        pass
            events = await journal(engine, run_id)
            assert not any(b"hunter2" in event.raw for event in events)
            assert {"hook_blocked", "secret_used", "secret_denied", "redacted"} <= {event.type for event in events}
            assert sum(isinstance(event.data, e.ApprovalRequested) for event in events) == 2, "one was granted"
            await same(engine, run_id)

    asyncio.run(scenario())


def test_crashes_messages_and_interrupts_replay(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, ScriptedModel(ask(call("look", at="it")), Silence("half"))) as engine:
            run_id = await engine.submit(agent(tools=[look], memory=QUIET), "go")
            await until(engine, run_id, "token")
            await until(engine, run_id, "step_end")
            await engine.steer(run_id, "faster")
        async with opened(tmp_path, ScriptedModel(Silence("again"), say("done"))) as engine:
            engine.add_tools(look)
            await until(engine, run_id, "token")
            await engine.interrupt(run_id)
            await until(engine, run_id, "run_waiting")
            await same(engine, run_id)
            await engine.resume(run_id)
            await engine.wait(run_id)
            await same(engine, run_id)

    asyncio.run(scenario())


def test_fallbacks_and_open_breakers_replay() -> None:
    records: list[Recorded] = []

    async def gathered() -> None:
        down = ScriptedFailure("server", "down", retryable=False, next_model=True)
        async with in_virtual_time(FunctionModel(lambda _: down)) as engine:
            engine.add_model("second", FunctionModel(lambda _: say("instead")))
            engine.add_provider("nobody", base_url="http://127.0.0.1:9/v1", api_key_env="SET_NOWHERE")
            hero = agent(fallbacks=["nobody/here", "second/y"], memory=QUIET)
            runs = [(await engine.run(hero, "go")).run_id for _ in range(25)]
            records.extend([await record_of(engine, run_id) for run_id in runs])

    virtually(gathered())
    assert any(b"left alone" in event.raw for event in records[-1].events)
    for record in records:
        assert replay(record, ToolRegistry()).is_same


def test_summaries_counts_and_session_commands_replay() -> None:
    """The later runs go on with what the process had counted; it is in no journal."""
    records: list[Recorded] = []

    def answer(request: ModelRequest) -> ScriptStep:
        if is_summary(request):
            return say("## Done\nsomething\n## Remember\n- Ada likes tea", usage=UNCOUNTED)
        turns.append(request)
        size = sum(len(str(message)) for message in request.conversation.messages) // 3
        usage = Usage(size, 20)
        if len(turns) % 9:
            return ask(call("long", f"c{len(turns)}", n=len(turns)), usage=usage)
        return say("done", usage=usage)

    turns: list[ModelRequest] = []

    @treadle.tool(effect="read")
    async def long(n: int) -> str:
        """Look for long."""
        return f"{n} {WORDS * 6}"

    async def scenario() -> None:
        async with in_virtual_time(FunctionModel(answer)) as engine:
            hero = agent(tools=[long], **SMALL)
            session: str | None = None
            said = "one, two, /pin, /compact, /undo, /usage, /memory, /memory tea, three, /reset, four"
            for message in said.split(", "):
                result = await engine.run(hero, message, session=session)
                session = result.session_id
                record = await record_of(engine, result.run_id)
                service: Any = engine.service
                records.append(await add_earlier_runs(record, service._journal, service._sessions))
            assert any(isinstance(event.data, e.ContextCompacted) for event in records[0].events)

    virtually(scenario())
    for record in records:
        assert (found := replay(record, ToolRegistry())).is_same, found
    last = records[-3]
    alone = msgspec.structs.replace(last, earlier=())
    assert last.earlier
    assert replay(alone, ToolRegistry()).divergence is not None, "else nothing was carried over"


def test_recalled_memories_and_prompt_notes_replay(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "AGENTS.md").write_text("Run the tests with make.\n")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.yaml").write_text("house_rules: Be kind.\n")
    model = ScriptedModel(
        ask(call("journal_write", text="a quiet day")), say("Ada likes tea"), say("tea"), say("t")
    )

    async def scenario() -> None:
        async with opened(tmp_path, model) as engine:
            engine.add_provider("nobody", base_url="http://127.0.0.1:9/v1", api_key="x")
            for place, embedder in (("message", "none"), ("message", "nobody/there"), ("system", "none")):
                hero = agent(tools=["journal_write"], workspace=work, memory={"place": place, "embedder": embedder})
                result = await engine.run(hero, "What does Ada like?", asker="terminal", user="ada")
                (work / "AGENTS.md").write_text(f"Now with {place}.\n")
                await same(engine, result.run_id)
            events = await journal(engine, result.run_id)
            assert any(isinstance(event.data, e.MemoryRecalled) for event in events)

    asyncio.run(scenario())


def test_a_fork_replays_too(tmp_path: Path) -> None:
    model = ScriptedModel(ask(call("look", at="it")), ask(call("look", "c2", at="it")), say("done"), say("again"))

    async def scenario() -> None:
        async with opened(tmp_path, model) as engine:
            first = await engine.run(agent(tools=[look], memory=QUIET), "go")
            fork = await engine.fork(first.run_id, message="And?")
            await engine.wait(fork)
            await same(engine, fork)
            with pytest.raises(UnknownRun):
                await engine.service.replay(RunId("run_x"))

    asyncio.run(scenario())


# ── A changed decision ─────────────────────────────────────────────────────────────────────────────


def record_loop() -> tuple[Recorded, Any]:
    """A run that looks at the same thing again and again."""
    kept: list[Any] = []
    script = [*(ask(call("look", f"c{n}", at="it")) for n in range(4)), say("enough")]

    async def scenario() -> None:
        async with in_virtual_time(ScriptedModel(*script)) as engine:
            result = await engine.run(agent(tools=[look], memory=QUIET), "go")
            service: Any = engine.service
            kept.extend((await record_of(engine, result.run_id), service._tools))

    virtually(scenario())
    return kept[0], kept[1]


def first_of(record: Recorded, kind: type[e.EventData], nth: int = 0) -> Event:
    return [event for event in record.events if isinstance(event.data, kind)][nth]


def test_a_guard_that_decides_differently_is_found_at_its_event(monkeypatch: pytest.MonkeyPatch) -> None:
    record, tools = record_loop()
    assert replay(record, tools).is_same
    blocked = first_of(record, e.ToolCallBlocked)
    monkeypatch.setattr(loop_guard, "BLOCK_SAME_RESULTS", 9)
    found = replay(record, tools).divergence
    assert found is not None
    assert (found.sequence, found.type, found.today_type) == (
        blocked.sequence,
        "tool_call_blocked",
        "tool_call_start",
    )
    assert found.today is not None
    assert found.today["call_id"] == found.recorded["call_id"]


def test_a_reworded_note_is_reported_as_wording_and_not_as_a_divergence(monkeypatch: pytest.MonkeyPatch) -> None:
    record, tools = record_loop()
    warning: Any = first_of(record, e.LoopWarning)
    monkeypatch.setattr(loop_guard, "WARN_SAME_RESULTS", 3)
    found = replay(record, tools)
    assert found.divergence is not None
    assert (found.divergence.sequence, found.same) == (warning.sequence, warning.sequence - 1)
    monkeypatch.undo()
    judged: Any = loop_guard.judge_turn

    def reworded(*about: Any) -> Any:
        warn = judged(*about)
        return warn and type(warn)(tuple(msgspec.structs.replace(each, note="Stop it.") for each in warn.events))

    monkeypatch.setattr("treadle.core.guards.PACE", (reworded,))
    found = replay(record, tools)
    assert found.is_same, "a reworded note is not another decision"
    first, *_ = found.wording
    [difference] = first.differences
    assert (first.sequence, difference.path, difference.today) == (warning.sequence, "note", "Stop it.")
    assert {each.type for each in found.wording} == {"loop_warning"}
    assert difference.recorded == warning.data.note


def test_a_divergence_says_whether_the_request_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    record, tools = record_loop()
    request = first_of(record, e.LlmRequest, 1)
    raw = request.raw.replace(b'"attempt":1', b'"attempt":2')
    data = msgspec.json.decode(raw, type=e.LlmRequest)
    changed = msgspec.structs.replace(request, raw=raw, data=data)
    events = tuple(changed if event is request else event for event in record.events)
    found = replay(msgspec.structs.replace(record, events=events), tools).divergence
    assert found is not None
    assert (found.sequence, found.request_differs) == (request.sequence, ())
    raw = request.raw[:-1] + b',"tools_offered":false}'
    data = msgspec.json.decode(raw, type=e.LlmRequest)
    changed = msgspec.structs.replace(request, raw=raw, data=data)
    events = tuple(changed if event is request else event for event in record.events)
    found = replay(msgspec.structs.replace(record, events=events), tools).divergence
    assert found is not None
    assert (found.sequence, found.request_differs) == (request.sequence, ("tool_choice",))


def test_code_that_breaks_is_a_divergence_and_not_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    record, tools = record_loop()

    def broken(*about: Any) -> Any:
        raise KeyError("not there")

    monkeypatch.setattr(tool_results, "max_result_characters", broken)
    assert replay(record, tools).is_same, "which no result of it needs"
    monkeypatch.setattr("treadle.engine.tool_execution.finish_call", broken)
    found = replay(record, tools).divergence
    assert found is not None
    assert found.sequence == first_of(record, e.ToolCallEnd).sequence
    assert found.today_type == "run_recovered"
    assert "KeyError" in str(found.today)


def test_a_retry_that_is_no_longer_made_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def scenario() -> Recorded:
        async with opened(tmp_path, ScriptedModel(ScriptedFailure(), say("done"))) as engine:
            result = await engine.run(agent(retry={"attempts": 1, "base_ms": 1}, memory=QUIET), "go")
            return await record_of(engine, result.run_id)

    record = asyncio.run(scenario())
    assert replay(record, ToolRegistry()).is_same

    def never(*about: Any) -> None:
        return None

    monkeypatch.setattr("treadle.engine.model_call.plan_retry", never)
    found = replay(record, ToolRegistry()).divergence
    assert found is not None
    assert (found.type, found.today_type) == ("llm_retry", "run_end")


def test_code_that_waits_instead_of_continuing_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def scenario() -> Recorded:
        async with opened(tmp_path, ScriptedModel(Silence("hm"), say("done"))) as engine:
            run_id = await engine.submit(agent(memory=QUIET), "go")
            await until(engine, run_id, "token")
            await engine.interrupt(run_id)
            await until(engine, run_id, "run_waiting")
            await engine.resume(run_id)
            await engine.wait(run_id)
            return await record_of(engine, run_id)

    record = asyncio.run(scenario())
    resumed = first_of(record, e.ResumeRequested)
    assert replay(record, ToolRegistry()).is_same
    monkeypatch.delitem(HANDLERS, e.ResumeRequested)
    found = replay(record, ToolRegistry()).divergence
    assert found is not None
    assert (found.sequence, found.today_type) == (resumed.sequence + 1, "nothing")


def test_a_call_that_has_more_time_today_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    @treadle.tool(effect="read", timeout=0.05)
    async def dawdle() -> str:
        """Take long."""
        await asyncio.Event().wait()
        return "never"

    async def scenario() -> Recorded:
        async with opened(tmp_path, ScriptedModel(ask(call("dawdle")), say("done"))) as engine:
            result = await engine.run(agent(tools=[dawdle], memory=QUIET), "go")
            return await record_of(engine, result.run_id)

    record = asyncio.run(scenario())
    late = first_of(record, e.ToolCallError)
    assert replay(record, ToolRegistry()).is_same

    def longer(*about: Any) -> float:
        return 1000.0

    monkeypatch.setattr("treadle.engine.tool_execution._timeout", longer)
    found = replay(record, ToolRegistry()).divergence
    assert found is not None
    assert found.sequence == late.sequence


@pytest.mark.parametrize(
    ("recorded", "today", "same"),
    [
        ("it is [redacted:A].", "it is hunter2.", True),
        ("[redacted:A] and [redacted:B]", "x and y and z", True),
        ("it is [redacted:A].", "it was hunter2.", False),
        ("a[redacted:A]a", "a", False),
        ("[redacted:A]" * 60 + "x", "y" * 20_000, False),
    ],
)
def test_a_redacted_part_matches_any_text(recorded: str, today: str, same: bool) -> None:
    kept = make_draft("evt_1", 1.0, e.MemorySaved("mem_1", recorded, "tool"))
    event = Event(
        event_id=kept.event_id,
        timestamp=1.0,
        origin=ORIGIN,
        sequence=1,
        type=kept.type,
        data=kept.data,
        raw=kept.raw,
    )
    assert (compare(event, 1.0, e.MemorySaved("mem_1", today, "tool")).facts == ()) is same


# ── What cannot be told ────────────────────────────────────────────────────────────────────────────


def test_a_journal_of_a_later_version_is_reported() -> None:
    record, tools = record_loop()
    later = msgspec.structs.replace(
        record.events[-1], data=e.UnknownEvent(), type="from_the_future", version=VERSION + 1
    )
    found = replay(msgspec.structs.replace(record, events=(*record.events[:-1], later)), tools)
    assert found.divergence is None
    assert "later version" in found.cannot
    assert found.same == len(record.events) - 1, "as far as it can be read"


def test_a_tool_that_is_unknown_here_is_not_a_divergence(tmp_path: Path) -> None:
    """The rule looks for what the tool makes of its arguments, which only the tool can tell."""

    class Odd:
        spec: Any = msgspec.structs.replace(look.spec, name="odd")
        parse: Any = staticmethod(look.parse)

        def subjects(self, arguments: Any) -> Subjects:
            return Subjects(("seen otherwise",), pattern="seen*")

        async def run(self, arguments: Any, context: treadle.ToolContext) -> str:
            return "ran"

    async def scenario() -> Recorded:
        async with opened(tmp_path, ScriptedModel(ask(call("odd", at="it")), say("done"))) as engine:
            odd: Any = Odd()
            rules = [{"tool": "odd", "match": "seen *", "do": "deny"}]
            result = await engine.run(agent(tools=[odd], approvals={"rules": rules}, memory=QUIET), "go")
            await same(engine, result.run_id)
            return await record_of(engine, result.run_id)

    found = replay(asyncio.run(scenario()), ToolRegistry())
    assert found.divergence is None
    assert "`odd` is not known here" in found.cannot


def test_another_rule_that_is_offered_is_a_divergence(tmp_path: Path) -> None:
    async def scenario() -> tuple[Recorded, Any]:
        async with opened(tmp_path, ScriptedModel(ask(call("bash", command="true | cat")))) as engine:
            service: Any = engine.service
            made = agent(tools=["bash"], approvals={"default": "ask", "via": "api"}, memory=QUIET)
            run_id = await engine.submit(made, "go")
            await until(engine, run_id, "run_waiting")
            return await record_of(engine, run_id), service._tools

    record, tools = asyncio.run(scenario())
    asked = next(event for event in record.events if isinstance(event.data, e.ApprovalRequested))
    assert isinstance(asked.data, e.ApprovalRequested)
    assert asked.data.pattern == "exactly: true | cat"

    def offer(pattern: str | None) -> Replayed:
        data = msgspec.structs.replace(asked.data, pattern=pattern)
        changed = msgspec.structs.replace(asked, data=data, raw=msgspec.json.encode(data))
        events = tuple([changed if each is asked else each for each in record.events])
        return replay(msgspec.structs.replace(record, events=events), tools)

    assert offer(asked.data.pattern).divergence is None
    for pattern in (None, "true *"):
        other = offer(pattern).divergence
        assert other is not None
        assert [difference.path for difference in other.differences] == ["pattern"]


CHANGED_SINCE: dict[str, set[tuple[str, str, str]]] = {}
"""Format -> the recorded event, the event of today, and the field where the code of today parts from the one that
wrote it. A change of this kind is added here, with the format it parts from."""


@pytest.mark.parametrize("dump", sorted(make.FOLDER.glob("v*.sql")), ids=lambda dump: dump.stem)
def test_journals_of_each_format_replay(tmp_path: Path, dump: Path) -> None:
    """As far as they go: each was cut off in the middle, and the unfinished end in an event of the future. What
    differs is what was changed since."""
    path = str(tmp_path / "treadle.db")
    database = connect(path)
    database.execute(dump.read_text())
    database.close()
    open_database(path).close()  # which brings it up to date

    async def scenario() -> list[Recorded]:
        async with open_service_readonly(f"sqlite:///{path}") as service:
            runs: Any = service
            found = await service.runs()
            return [
                await read_recorded_run(each.origin.run_id, runs._journal, runs._sessions, runs._approvals)
                for each in found
            ]

    parted: set[tuple[str, str, str]] = set()
    for record in asyncio.run(scenario()):
        unknown = (at for at, event in enumerate(record.events) if isinstance(event.data, e.UnknownEvent))
        cut = next(unknown, len(record.events))
        found = replay(msgspec.structs.replace(record, events=record.events[:cut]), ToolRegistry())
        if found.divergence is None:
            assert (found.same, found.cannot) == (cut, "")
        else:
            parted.add((found.divergence.type, found.divergence.today_type, found.divergence.differences[0].path))
    assert parted == CHANGED_SINCE.get(dump.stem, set())


def test_a_replay_needs_only_the_journal(tmp_path: Path) -> None:
    """Nothing but the journal is needed: neither the agent, nor its model, nor its tools."""

    async def scenario() -> Recorded:
        async with opened(tmp_path, ScriptedModel(ask(call("look", at="it")), say("done"))) as engine:
            result = await engine.run(agent(tools=[look], memory=QUIET), "go")
            return await record_of(engine, result.run_id)

    record = asyncio.run(scenario())
    assert replay(record, ToolRegistry()).is_same


@pytest.mark.parametrize(("window", "told"), [(200_000, True), (1500, False)])
def test_summaries_by_another_model_replay(tmp_path: Path, window: int, told: bool) -> None:
    """What is known of that model is not on record: where it matters, that is said."""

    @treadle.tool(effect="read")
    async def long(n: int) -> str:
        """Look for long."""
        return f"{n} {WORDS * 25}"

    def answer(request: ModelRequest) -> ScriptStep:
        asked.append(request)
        if len(asked) < 12:
            return ask(call("long", f"c{len(asked)}", n=len(asked)), usage=UNCOUNTED)
        return say("so", usage=UNCOUNTED)

    asked: list[ModelRequest] = []

    async def scenario() -> Recorded:
        home = tmp_path / "home"
        home.mkdir()
        (home / "config.yaml").write_text(f"models: {{writer/w: {{context_window: {window}}}}}\n")
        async with opened(tmp_path, FunctionModel(answer)) as engine:
            engine.add_model("writer", FunctionModel(lambda _: say("They looked.", usage=Usage(100, 5))))
            limits = {"context_window": 4000}
            hero = agent(tools=[long], limits=limits, compaction={"model": "writer/w"}, memory=QUIET)
            result = await engine.run(hero, "Look.")
            return await record_of(engine, result.run_id)

    record = asyncio.run(scenario())
    assert first_of(record, e.ContextCompacted)
    found = replay(record, ToolRegistry())
    assert found.divergence is None, found
    assert (found.cannot == "") is told
    assert told or "writer/w" in found.cannot


def test_parent_runs_and_judged_runs_replay() -> None:
    def policy(request: ModelRequest) -> ScriptStep:
        said = request.conversation.messages[0].text
        given = sum(message.role == "tool" for message in request.conversation.messages)
        if said.startswith("<task>"):
            return say(
                '{"score": 0.4, "reasons": "thin"}' if "first" in said else '{"score": 1, "reasons": "good"}'
            )
        if said == "part":
            return say("part done") if given else ask(call("look", at="it"))
        if said == "talk":
            return say("talked")
        if given == 0:
            return ask(*(call("agent_spawn", message="part", tools=["look", "bash"]) for _ in range(5)))
        if given == 1:
            return ask(call("agent_send", agent="friend", message="talk"))
        if given == 2:
            return ask(call("invoke_agent", agent="friend", message="talk"))
        return say("first" if request.conversation.messages[-1].role == "tool" else "second")

    async def scenario() -> None:
        async with in_virtual_time(FunctionModel(policy)) as engine:
            engine.add_agents(agent(name="friend", tools=["bash"]))
            quality = {"checker": "quality-checker", "minimum": 0.5, "retries": 1}
            tools = ["agent_spawn", "agent_send", "invoke_agent", look]
            hero = agent(tools=tools, limits={"max_children": 2, "max_tree": 6}, quality=quality, memory=QUIET)
            result = await engine.run(hero, "go")
            assert result.score is not None
            for record in await engine.service.runs():
                await same(engine, record.origin.run_id)

    virtually(scenario())


def test_a_replay_stops_where_it_needs_agents_that_were_not_recorded() -> None:
    async def scenario() -> None:
        script = [ask(call("invoke_agent", agent="nobody", message="x")), say("done")]
        async with in_virtual_time(ScriptedModel(*script, *script)) as engine:
            hero = agent(tools=["invoke_agent"], memory=QUIET)
            await same(engine, (await engine.run(hero, "go")).run_id)
            engine.add_agents(agent(name="nobody", model="gone/gone"))
            result = await engine.run(hero, "go")
            replayed = await engine.service.replay(RunId(result.run_id))
            assert "which agents and models there were" in replayed.cannot

    virtually(scenario())
