"""The one transcript: a pure fold of durable and live events into items, totals and typed changes."""
