"""Spans that are built from events: correct after a crash, and found by the ID of the run."""

import socket
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from subprocess import run
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv.attributes import error_attributes

import treadle
from tests.engine.running import agent, journal, until
from tests.patience import HANG_SECONDS
from tests.telemetry.collector import collecting
from tests.telemetry.watched import look, watched
from treadle.domain.envelope import Draft, Event, Origin
from treadle.domain.errors import UsageError
from treadle.domain.events import AgentSpawn
from treadle.domain.ids import AgentId, RunId, SessionId
from treadle.domain.runs import Usage
from treadle.ports.journal import RunFilter
from treadle.ports.model import ModelRequest
from treadle.system.clock import TimeOrderedIds
from treadle.telemetry import span_names
from treadle.telemetry.settings import Telemetry
from treadle.telemetry.traces import Traces, compute_span_id, compute_trace_id
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

TRACED = Telemetry(traces=True)
ENDS = {"llm_response": "chat x", "tool_call_end": "execute_tool look", "run_end": "invoke_agent hero"}


class TraceRecorder:
    """Traces of events that are told, and the spans they made."""

    def __init__(self, contents: bool = False) -> None:
        self._exporter = InMemorySpanExporter()
        self.traces = Traces(SimpleSpanProcessor(self._exporter), Resource({}), contents)

    def tell(self, events: Sequence[Event]) -> "TraceRecorder":
        for event in events:
            made = Draft(event.event_id, event.timestamp, event.type, event.data, event.raw)
            self.traces.observe(event.origin, event.sequence, [made])
        return self

    @property
    def all(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        """By name; every name once."""
        finished = self._exporter.get_finished_spans()
        assert len({span.name for span in finished}) == len(finished)
        return {span.name: span for span in finished}


async def run_and_read(tmp_path: Path, model: ScriptedModel, **fields: Any) -> list[Event]:
    async with watched(tmp_path, model) as engine:
        result = await engine.run(agent(**{"tools": [look], **fields}), "what is in the hall?")
        return await journal(engine, result.run_id)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def script() -> ScriptedModel:
    return ScriptedModel(
        ask(call("look", "c1", place="hall"), usage=Usage(100, 10, 40, 5)),
        ScriptedFailure("overloaded", "busy", True, retry_after=0.0),
        say("nothing", usage=Usage(200, 20)),
    )


async def test_a_run_its_model_calls_and_its_tool_calls_are_spans(tmp_path: Path) -> None:
    events = await run_and_read(tmp_path, script())
    origin, seen = events[0].origin, TraceRecorder().tell(events)
    exported = seen._exporter.get_finished_spans()  # pyright: ignore[reportPrivateUsage] -- its own
    assert [span.name for span in exported] == ["chat x", "execute_tool look", "chat x", "invoke_agent hero"]
    first, tool, second, whole = exported
    about = {
        span_names.RUN_ID: origin.run_id,
        span_names.CONVERSATION_ID: origin.session_id,
        span_names.AGENT_ID: origin.agent_id,
        span_names.AGENT_NAME: "hero",
    }
    for span in exported:
        assert about.items() <= attributes(span).items()
        assert span.context is not None
        assert span.context.trace_id == compute_trace_id(origin.run_id)
    for span in (first, tool, second):
        assert span.parent is not None
        assert span.parent.span_id == compute_span_id(origin.run_id)
    assert whole.parent is None
    assert attributes(first) == {
        **about,
        span_names.OPERATION: "chat",
        span_names.PROVIDER: "scripted",
        span_names.REQUEST_MODEL: "x",
        span_names.RESPONSE_MODEL: "x",
        span_names.REQUEST_STREAM: True,
        span_names.STEP: 1,
        span_names.ATTEMPT: 1,
        span_names.INPUT_TOKENS: 100,
        span_names.OUTPUT_TOKENS: 10,
        span_names.CACHE_READ_TOKENS: 40,
        span_names.CACHE_WRITE_TOKENS: 5,
        span_names.FINISH_REASONS: ("tool_call",),
    }
    assert [(event.name, dict(event.attributes or {})) for event in second.events] == [
        ("attempt", {span_names.ATTEMPT: 1}),
        ("attempt_failed", {span_names.ATTEMPT: 1, span_names.ERROR_TYPE: "overloaded"}),
        ("retry", {span_names.ATTEMPT: 1, span_names.DELAY: 0}),
        ("attempt", {span_names.ATTEMPT: 2}),
    ]
    assert second.status.is_unset, "it has answered in the end"
    assert attributes(tool)[span_names.TOOL_CALL_ID] == "c1"
    assert attributes(whole)[span_names.OUTCOME] == "completed"
    assert attributes(whole)[span_names.RUN_INPUT_TOKENS] == 300
    assert span_names.INPUT_TOKENS not in attributes(whole), "or a backend that adds them up counts them twice"


async def test_spans_start_and_end_at_the_times_of_their_events(tmp_path: Path) -> None:
    events = await run_and_read(
        tmp_path, ScriptedModel(ask(call("look", "c1", place="hall"))), limits={"max_steps": 1}
    )
    spans = TraceRecorder().tell(events).spans
    at = {event.type: round(event.timestamp * 1e9) for event in events}
    for name, begin, end in (
        ("invoke_agent hero", "run_queued", "run_end"),
        ("chat x", "llm_request", "llm_response"),
        ("execute_tool look", "tool_call_start", "tool_call_end"),
    ):
        assert (spans[name].start_time, spans[name].end_time) == (at[begin], at[end])
    whole = spans["invoke_agent hero"]
    assert (whole.status.is_ok, attributes(whole)[span_names.ERROR_TYPE]) == (False, "max_steps")
    assert whole.status.description == "max_steps"


async def test_contents_are_left_out_unless_enabled(tmp_path: Path) -> None:
    events = await run_and_read(
        tmp_path, ScriptedModel(ask(call("look", "c1", place="hall"))), limits={"max_steps": 1}
    )
    shown = {name: repr(attributes(span)) for name, span in TraceRecorder().tell(events).spans.items()}
    assert not any("hall" in text for text in shown.values())
    spans = TraceRecorder(contents=True).tell(events).spans
    tool = attributes(spans["execute_tool look"])
    assert (tool[span_names.TOOL_ARGUMENTS], tool[span_names.TOOL_RESULT]) == (
        '{"place":"hall"}',
        "nothing in hall",
    )
    assert attributes(spans["chat x"])[span_names.OUTPUT_MESSAGES] == (
        '[{"role":"assistant","parts":[{"type":"tool_call","id":"c1","name":"look",'
        '"arguments":"{\\"place\\":\\"hall\\"}"}],"finish_reason":"tool_call"}]'
    )
    assert attributes(spans["invoke_agent hero"])[span_names.INPUT_MESSAGES] == (
        '[{"role":"user","parts":[{"type":"text","content":"what is in the hall?"}]}]'
    )


async def test_text_that_was_sent_is_not_repeated_and_open_items_are_complete(tmp_path: Path) -> None:
    events = await run_and_read(
        tmp_path, ScriptedModel(ask(call("look", "c1", place="hall"))), limits={"max_steps": 1}
    )
    whole = TraceRecorder().tell(events).spans
    for cut in range(len(events)):
        seen = TraceRecorder()
        for event in events[:cut]:
            seen.traces.remember(event)
        after = seen.tell(events[cut:]).spans
        assert after.keys() == {ENDS[event.type] for event in events[cut:] if event.type in ENDS}
        for name, span in after.items():
            assert span.to_json() == whole[name].to_json(), f"{name}, when cut before {events[cut].type}"


async def test_a_run_tree_is_one_trace_with_child_runs_below_their_calls(tmp_path: Path) -> None:
    def policy(request: ModelRequest) -> ScriptStep:
        said = request.conversation.messages[0].text
        if said.startswith("<task>"):
            return say('{"score": 1, "reasons": "fine"}')
        below = {"go": "middle", "middle": "leaf"}.get(said)
        given = any(message.role == "tool" for message in request.conversation.messages)
        return say("done") if given or below is None else ask(call("agent_spawn", "c1", message=below))

    async def scenario() -> list[list[Event]]:
        async with watched(tmp_path, FunctionModel(policy)) as engine:
            hero = agent(tools=["agent_spawn"], quality={"checker": "quality-checker"})
            found = [(await engine.run(hero, "go")).run_id]
            for run_id in found:
                below = await engine.service.runs(RunFilter(parent_run_id=RunId(run_id)))
                found += [record.origin.run_id for record in below]
            return [await journal(engine, run_id) for run_id in found]

    seen, families = TraceRecorder(), await scenario()
    for events in reversed(families):  # each process tells what it has seen, in whatever order
        seen.tell(events)
    root = families[0][0].run_id
    contexts = {span.context.span_id: span for span in seen.all if span.context is not None}
    assert len(contexts) == len(seen.all)
    assert {span.context.trace_id for span in contexts.values() if span.context} == {compute_trace_id(root)}
    under = {
        (attributes(span)[span_names.AGENT_NAME], _path(span, contexts))
        for span in seen.all
        if "invoke" in span.name
    }
    one = "invoke_agent hero", "execute_tool agent_spawn"
    assert under == {
        ("hero", ()),
        ("hero", one),
        ("hero", (*one, *one)),
        ("quality-checker", ("invoke_agent hero",)),
    }


def _path(span: ReadableSpan, contexts: dict[int, ReadableSpan]) -> tuple[str, ...]:
    """The names of what a span is part of, the outermost first."""
    if span.parent is None:
        return ()
    above = contexts[span.parent.span_id]
    return (*_path(above, contexts), above.name)


async def test_a_trace_is_sampled_completely_or_not_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    events = await run_and_read(
        tmp_path, ScriptedModel(ask(call("look", "c1", place="hall"))), limits={"max_steps": 1}
    )
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    sizes: list[int] = []
    ids = TimeOrderedIds()
    seen = TraceRecorder()
    for _ in range(60):
        origin = Origin(RunId(ids("run")), SessionId("ses_1"), AgentId("agt_1"))
        for event in events:
            made = Draft(event.event_id, event.timestamp, event.type, event.data, event.raw)
            seen.traces.observe(origin, event.sequence, [made])
        exporter = seen._exporter  # pyright: ignore[reportPrivateUsage] -- its own
        sizes.append(len(exporter.get_finished_spans()))
        exporter.clear()
    assert set(sizes) == {0, 3}, "about half of them, although their ids differ by their time alone"


# ── Over the wire ──


async def test_spans_reach_a_collector_after_the_previous_process_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> tuple[str, float]:
        async with watched(tmp_path, ScriptedModel(Silence("half")), Telemetry()) as engine:
            run_id = await engine.submit(agent(), "go")
            await until(engine, run_id, "token")
        async with watched(tmp_path, ScriptedModel(say("whole")), TRACED) as engine:
            await engine.wait(run_id)
            events = await journal(engine, run_id)
        return run_id, next(event.timestamp for event in events if event.type == "llm_request")

    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
        run_id, requested = await scenario()
        chat, whole = collector.spans
        assert collector.paths == ["/v1/traces"]
    assert (chat.name, whole.name) == ("chat x", "invoke_agent hero")
    assert chat.start_time_unix_nano == round(requested * 1e9), "the first request, of the process that is gone"
    assert [event.name for event in chat.events] == ["attempt", "reply_lost", "attempt"]
    assert int.from_bytes(whole.trace_id, "big") == compute_trace_id(RunId(run_id))
    assert chat.parent_span_id == whole.span_id
    assert collector.resource["service.name"] == "treadle"
    assert collector.resource["deployment.environment"] == "test"


async def test_a_collector_that_never_answers_does_not_delay_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("treadle.telemetry.traces.Traces.close.__defaults__", (0.2,))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2")

    async def scenario() -> treadle.Result:
        async with watched(tmp_path, ScriptedModel(say("done")), TRACED) as engine:
            return await engine.run(agent(), "go")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{listener.getsockname()[1]}")
        assert (await scenario()).text == "done"
    assert "did not respond within 0.2 s; the last spans are lost" in caplog.text


# ── Settings ──


def test_traces_are_on_if_the_standard_variables_name_a_collector() -> None:
    def wanted(**environment: str) -> bool:
        return Telemetry.from_environment(environment).traces

    assert not wanted()
    assert wanted(OTEL_EXPORTER_OTLP_ENDPOINT="http://x:4318")
    assert wanted(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="http://x:4318/v1/traces")
    assert not wanted(OTEL_EXPORTER_OTLP_ENDPOINT="http://x:4318", OTEL_TRACES_EXPORTER="none")
    assert not wanted(OTEL_EXPORTER_OTLP_ENDPOINT="http://x:4318", OTEL_SDK_DISABLED="true")
    assert not Telemetry.from_environment({}).contents
    assert Telemetry.from_environment({span_names.CAPTURE_CONTENT: "true"}).contents
    with pytest.raises(UsageError, match="OTEL_EXPORTER_OTLP_PROTOCOL is `grpc`; accepted: http/protobuf"):
        wanted(OTEL_EXPORTER_OTLP_ENDPOINT="http://x:4317", OTEL_EXPORTER_OTLP_PROTOCOL="grpc")


async def test_a_missing_sdk_is_reported_with_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "treadle.telemetry.traces")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)

    async def scenario() -> None:
        async with watched(tmp_path, ScriptedModel(), TRACED):
            pass

    with pytest.raises(UsageError, match=r"is not installed. Install it with pip install 'treadle\[telemetry\]'"):
        await scenario()


def test_attribute_names_follow_the_semantic_conventions() -> None:
    conventions = vars(import_module("opentelemetry.semconv._incubating.attributes.gen_ai_attributes"))
    known = {value for name, value in conventions.items() if name.startswith("GEN_AI_")}
    ours = {value for value in vars(span_names).values() if isinstance(value, str) and value.startswith("gen_ai.")}
    assert ours <= known
    assert error_attributes.ERROR_TYPE == span_names.ERROR_TYPE
    operations = {member.value for member in conventions["GenAiOperationNameValues"]}
    assert {span_names.CHAT, span_names.INVOKE_AGENT, span_names.EXECUTE_TOOL} <= operations


def test_the_sdk_is_imported_only_if_traces_are_on() -> None:
    program = (
        "import sys\n"
        "from treadle.api.engine import create_engine\n"
        "from treadle.telemetry.settings import Telemetry\n"
        "create_engine('sqlite:///:memory:', telemetry=Telemetry(metrics=True, log_file=True))\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = run([sys.executable, "-c", program], capture_output=True, text=True, timeout=HANG_SECONDS, check=True)
    assert done.stdout == "[]\n"


async def test_the_span_of_a_delegated_call_lasts_as_long_as_its_child_run(tmp_path: Path) -> None:
    """The evaluation of the run is not one of its calls."""
    events = await run_and_read(
        tmp_path,
        ScriptedModel(
            ask(call("agent_spawn", "c1", message="part")),
            say("part done"),
            say("done"),
            say('{"score": 1, "reasons": "good"}'),
        ),
        tools=["agent_spawn"],
        quality={"checker": "quality-checker"},
    )
    begun = next(event for event in events if event.type == "agent_spawn")
    ended = next(event for event in events if event.type == "tool_call_end")
    seen = TraceRecorder(contents=True)
    seen.tell(events)
    finished = [span for span in seen.all if span.name.startswith("execute_tool")]
    [span] = finished
    assert span.name == "execute_tool agent_spawn"
    assert (span.start_time, span.end_time) == tuple(round(each.timestamp * 1e9) for each in (begun, ended))
    assert span.attributes is not None
    assert isinstance(begun.data, AgentSpawn)
    assert span.attributes[span_names.CHILD_RUN_ID] == begun.data.run_id
    assert span.attributes[span_names.TOOL_ARGUMENTS] == '{"message":"part"}'
