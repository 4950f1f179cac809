"""The terminal UI, driven without a terminal."""
