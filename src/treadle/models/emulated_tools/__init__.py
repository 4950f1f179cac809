"""Calls that a model describes in its text, because it cannot make them in its wire format."""
