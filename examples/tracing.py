"""Spans of OpenTelemetry: a run is in the trace of the request that started it. It needs the extra `telemetry`."""

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import treadle
from treadle.testing import ScriptedModel, ask, call, say

SPANS = InMemorySpanExporter()  # in production OTLPSpanExporter(), with a BatchSpanProcessor
PROCESSOR = SimpleSpanProcessor(SPANS)
PROVIDER = TracerProvider()
PROVIDER.add_span_processor(PROCESSOR)
trace.set_tracer_provider(PROVIDER)


@treadle.tool(effect="read", repeatable=True)
def temperature(city: str) -> float:
    "Return the temperature in a city, in degrees Celsius."
    return {"Rome": 24.5}[city]


def main() -> None:
    agent = treadle.Agent(name="weather", model="scripted/any", tools=[temperature])
    with treadle.Engine("sqlite:///:memory:", span_processor=PROCESSOR) as engine:
        script = (ask(call("temperature", city="Rome")), say("It is 24.5 degrees."))
        engine.add_model("scripted", ScriptedModel(*script))
        with trace.get_tracer(__name__).start_as_current_span("GET /weather"):
            engine.run_sync(agent, "How warm is it in Rome?")
    finished = SPANS.get_finished_spans()
    names = {span.context.span_id: span.name for span in finished if span.context is not None}
    for span in finished:
        print(span.name, "in", "nothing" if span.parent is None else names[span.parent.span_id])
    print(len({span.context.trace_id for span in finished if span.context is not None}), "trace")


if __name__ == "__main__":
    main()
