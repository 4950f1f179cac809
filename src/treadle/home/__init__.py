"""A home as the engine and the operations use it: ports implemented with its files, its vault and its MCP servers,
and what is set up, inspected and approved in it without an engine."""
