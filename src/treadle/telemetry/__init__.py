"""Telemetry for operators: metrics, logs and traces, derived from committed events."""
