"""The metric families, with their names and help texts."""

from treadle.telemetry.exposition import Family, Histogram

QUICK = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
CALLS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 600.0)
RUNS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 21600.0, 86400.0, 604800.0)
MODEL = ("provider", "model")


class RunFamilies:
    """Metrics of runs and their steps."""

    def __init__(self) -> None:
        self.queued = Family("treadle_runs_queued_total", "Runs that were queued.", ("agent",))
        self.ended = Family("treadle_runs_total", "Runs that ended.", ("agent", "outcome"))
        self.now = Family("treadle_runs", "Runs that have not ended, by status.", ("status",), "gauge")
        self.waits = Family("treadle_run_waits_total", "Times that a run had to wait, by reason.", ("reason",))
        self.recovered = Family("treadle_runs_recovered_total", "Runs that were resumed after a crash.")
        self.duration = Histogram(
            "treadle_run_duration_seconds",
            "Time from the start of a run to its end, including waits.",
            ("agent",),
            RUNS,
        )
        self.step = Histogram(
            "treadle_step_duration_seconds", "Duration of one model turn with its tool calls.", (), RUNS
        )
        self.armed = Family("treadle_guard_armed_total", "Runs that a guard checked.", ("guard",))
        self.fired = Family(
            "treadle_guard_fired_total", "Times that a guard fired, by verdict.", ("guard", "verdict")
        )


class ModelFamilies:
    """Metrics of model calls."""

    def __init__(self) -> None:
        self.calls = Family(
            "treadle_model_calls_total", "Requests that ended, by stop reason or kind of error.", (*MODEL, "result")
        )
        self.lost = Family(
            "treadle_model_calls_repeated_total", "Requests sent again because a crash lost the reply.", MODEL
        )
        self.tokens = Family("treadle_tokens_total", "Tokens, as counted by the providers.", (*MODEL, "kind"))
        self.cost = Family("treadle_cost_dollars_total", "Cost in dollars, where prices are known.", MODEL)
        self.unpriced = Family("treadle_model_calls_unpriced_total", "Calls without a known price.", MODEL)
        self.retries = Family("treadle_model_retries_total", "Requests that were retried.", MODEL)
        self.fallbacks = Family("treadle_model_fallbacks_total", "Times that a fallback model was used.", MODEL)
        self.duration = Histogram("treadle_model_call_duration_seconds", "Duration of one request.", MODEL, CALLS)
        self.first = Histogram(
            "treadle_model_first_token_seconds", "Time from the request to its first token.", MODEL, CALLS
        )
        self.opened = Family(
            "treadle_breaker_opened_total", "Times that the circuit breaker of a model opened.", MODEL
        )
        self.breaker = Family(
            "treadle_breaker_state",
            "0: closed; 1: half-open, one call is tried; 2: open, no calls.",
            MODEL,
            "gauge",
        )


class ToolFamilies:
    """Metrics of tool calls and approvals."""

    def __init__(self) -> None:
        self.started = Family("treadle_tool_calls_started_total", "Tool calls that started.", ("tool",))
        self.mcp = Family(
            "treadle_mcp_connections_total",
            "Connections to MCP servers: connected, disconnected (lost during a call) or failed.",
            ("server", "event"),
        )
        self.mcp_now = Family(
            "treadle_mcp_connections",
            "Connections to MCP servers now, by state: starting, connected, failed, closed.",
            ("server", "state"),
            "gauge",
        )
        self.channels_now = Family(
            "treadle_channels",
            "Chat channels now, by state: starting, connected, waiting, failed, stopped.",
            ("channel", "state"),
            "gauge",
        )
        self.channel_messages = Family(
            "treadle_channel_messages_total",
            "Messages of chat channels: received, dropped, sent, retried, failed.",
            ("channel", "event"),
        )
        self.calls = Family("treadle_tool_calls_total", "Tool calls that have a result.", ("tool", "result"))
        self.duration = Histogram("treadle_tool_call_duration_seconds", "Duration of tool calls.", ("tool",), CALLS)
        self.killed = Family("treadle_processes_killed_total", "Commands that were stopped, by cause.", ("why",))
        self.asked = Family("treadle_approvals_requested_total", "Tool calls that needed an approval.")
        self.decided = Family(
            "treadle_approvals_decided_total", "Approvals that were decided or expired.", ("decision",)
        )
        self.secrets = Family("treadle_secrets_total", "Secrets that tools received or were denied.", ("result",))
        self.redactions = Family("treadle_redactions_total", "Texts from which secrets were redacted.", ("where",))


class EngineFamilies:
    """Metrics of context, memory, and the engine itself."""

    def __init__(self) -> None:
        self.trimmed = Family(
            "treadle_context_trimmed_total", "Times that a conversation was trimmed, by stage.", ("stage",)
        )
        self.compactions = Family("treadle_compactions_total", "Summaries that were requested.", ("result",))
        self.degraded = Family("treadle_memory_degraded_total", "Times that an embedder did not answer.")
        self.events = Family("treadle_events_total", "Committed events.", ("type",))
        self.lag = Histogram(
            "treadle_publish_lag_seconds", "Time from the creation of an event to its publication.", (), QUICK
        )
        self.streams = Family("treadle_sse_streams_open", "Open event streams over HTTP.", (), "gauge")
