"""What happens around a model's words, as one short line for a person, or none."""

from treadle.domain import events as e
from treadle.surfaces.cli.terminal import one_line

WIDTH = 100


def activity(data: e.EventData) -> str | None:
    """The line for an event. Most have none: a quiet terminal shows what matters."""
    match data:
        case e.ToolCallStart(name=name, arguments=arguments):
            return f"· {name} {one_line(arguments, WIDTH)}"
        case e.ToolCallEnd(name=name, content=content, duration_ms=duration_ms):
            return f"  {name}: {one_line(content, WIDTH) or '(nothing)'} · {duration_ms} ms"
        case e.ToolCallError(name=name, kind=kind, content=content):
            return f"  {name} {kind}: {one_line(content, WIDTH)}"
        case e.ToolCallBlocked(name=name, guard=guard, content=content):
            return f"  {name} blocked by the {guard} guard: {one_line(content, WIDTH)}"
        case e.LlmFallback(to=to, reason=reason):
            return f"{one_line(reason)} Now {to} takes over."
        case e.BreakerOpened(provider=provider, model=model):
            return f"{provider}/{model} fails too often and is left alone for a while"
        case e.BreakerClosed(provider=provider, model=model):
            return f"{provider}/{model} answers again"
        case e.RunRecovered(reason=reason):
            return f"taken up again: {reason}"
        case e.MessageSteered(message=message):
            return f"message to the run: {one_line(message.text, WIDTH)}"
        case _:
            return _guarded(data)


def _guarded(data: e.EventData) -> str | None:
    """The line for what a guard did."""
    match data:
        case e.LoopWarning(tool=tool, count=count):
            return f"{tool} was called {count} times in the same way; the model is told"
        case e.StuckDetected(kind=kind, count=count):
            return f"stuck: {kind.replace('_', ' ')} ({count})"
        case e.RecoveryAction(stage=stage):
            return f"recovery: {stage.replace('_', ' ')}"
        case e.EmptyTurn():
            return "the model said nothing; it is asked again"
        case e.Continuation(count=count):
            return f"the reply was cut at the model's token limit; continuing ({count})"
        case e.OutputRejected(error=error):
            return f"the answer does not fit the schema: {one_line(error, WIDTH)}; it is asked again"
        case _:
            return None
