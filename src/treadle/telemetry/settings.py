"""The telemetry settings of an engine, from options and from the standard OTEL_ variables."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from treadle.domain.errors import UsageError
from treadle.telemetry.span_names import CAPTURE_CONTENT

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL = "http/protobuf"
_TRUE = ("true", "1", "yes", "on", "span_only", "span_and_event")


class Telemetry(Struct, frozen=True):
    """Which telemetry an engine produces."""

    metrics: bool = False
    """Count, for `Engine.metrics`."""
    log_file: bool = False
    """Write the log to `logs/treadle.log` in the home, including how each run ended."""
    log_json: bool = False
    """Write the log to standard error as JSON lines instead of text."""
    traces: bool = False
    """Send spans to the collector that the OTEL_ variables name."""
    processor: "SpanProcessor | None" = None
    """Give the spans to a processor of the program instead."""
    contents: bool = False
    """Include messages, and the arguments and results of tool calls, in spans."""
    process: int | None = None
    """Number of this process in log lines, if the server has several."""

    @classmethod
    def from_environment(
        cls,
        environment: Mapping[str, str],
        *,
        metrics: bool = False,
        log_file: bool = False,
        log_json: bool = False,
    ) -> "Telemetry":
        """Return the settings, with traces if the OTEL_ variables name a collector. Raise UsageError for an
        unsupported protocol."""
        is_configured = environment.get("OTEL_TRACES_EXPORTER", "otlp") != "none" and any(
            map(environment.get, ENDPOINTS)
        )
        off = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        if is_configured and not off:
            _check_protocol(environment)
        contents = environment.get(CAPTURE_CONTENT, "").strip().lower() in _TRUE
        return cls(metrics, log_file, log_json, traces=is_configured and not off, contents=contents)


def _check_protocol(environment: Mapping[str, str]) -> None:
    name = next((name for name in PROTOCOLS if environment.get(name)), None)
    if name is not None and environment[name] != PROTOCOL:
        raise UsageError(
            f"{name} is `{environment[name]}`; accepted: {PROTOCOL}. Set it to that (collectors usually have port "
            "4318 for it), or unset it."
        )
