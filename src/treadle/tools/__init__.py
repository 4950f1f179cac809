"""Tools: the decorator that turns a function into a tool, the registry, and the built-in tools."""
