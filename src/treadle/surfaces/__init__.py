"""The surfaces: command line, terminal UI, HTTP server, MCP server and editor protocol."""
