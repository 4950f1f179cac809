"""Runs in the trace of the program that submits them."""

from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span

import treadle
from treadle.testing.models import ScriptedModel, ScriptStep, Silence, ask, call, say


@treadle.tool(effect="read", repeatable=True)
def look() -> str:
    """Look."""
    return "seen"


def find_trace(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id


async def test_a_run_and_its_child_runs_are_in_the_trace_of_the_program(tmp_path: Path) -> None:
    exporter, ids = InMemorySpanExporter(), RandomIdGenerator()
    processor = SimpleSpanProcessor(exporter)
    outer = SpanContext(ids.generate_trace_id(), ids.generate_span_id(), is_remote=True, trace_flags=TraceFlags(1))
    helper = treadle.Agent("helper", model="helper/x", tools=[look])
    lead = treadle.Agent("lead", model="lead/x", tools=[helper])
    async with treadle.Engine("sqlite:///:memory:", home=tmp_path, span_processor=processor) as engine:
        delegate = ask(call("invoke_agent", agent="helper", message="Look."))
        engine.add_model("lead", ScriptedModel(delegate, say("Done."), say("Again.")))
        engine.add_model("helper", ScriptedModel(ask(call("look")), say("Seen.")))
        with use_span(NonRecordingSpan(outer)):
            await engine.run(lead, "Go.")
        inside = exporter.get_finished_spans()
        await engine.run(lead, "Go on.")
    assert {find_trace(span) for span in inside} == {outer.trace_id}
    above = {span.name: span.parent.span_id for span in inside if span.parent is not None}
    assert above["invoke_agent lead"] == outer.span_id
    assert {"invoke_agent helper", "execute_tool look"} <= set(above)
    outside = exporter.get_finished_spans()[len(inside) :]
    assert outer.trace_id not in {find_trace(span) for span in outside}
    processor.on_end(inside[0])  # it is not shut down with the engine
    assert len(exporter.get_finished_spans()) == len(inside) + len(outside) + 1


async def test_a_run_that_another_process_continues_stays_in_the_trace(tmp_path: Path) -> None:
    agent = treadle.Agent("hero", model="scripted/x", tools=[look])
    ids = RandomIdGenerator()
    outer = SpanContext(ids.generate_trace_id(), ids.generate_span_id(), is_remote=True, trace_flags=TraceFlags(1))
    exporter = InMemorySpanExporter()

    def make_engine(*script: ScriptStep) -> treadle.Engine:
        engine = treadle.Engine(
            f"sqlite:///{tmp_path}/t.db", home=tmp_path / "home", span_processor=SimpleSpanProcessor(exporter)
        )
        engine.add_model("scripted", ScriptedModel(*script))
        engine.add_tools(look)
        return engine

    async with make_engine(ask(call("look")), Silence()) as engine:
        with use_span(NonRecordingSpan(outer)):
            run_id = await engine.submit(agent, "Go.")
        async for event in engine.events(run_id):
            if event.type == "tool_call_end":
                break
    async with make_engine(say("Done.")) as engine:
        await engine.wait(run_id)
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert {find_trace(span) for span in spans.values()} == {outer.trace_id}
    parent = spans["invoke_agent hero"].parent
    assert parent is not None
    assert parent.span_id == outer.span_id
