"""The effects: the one loop, its model calls and its tool calls."""
