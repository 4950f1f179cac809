"""Replays of stored runs with the current code, offline, up to the first event that differs."""
