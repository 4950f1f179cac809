"""Automation: schedules, inbound webhooks, and webhooks that receive events."""
