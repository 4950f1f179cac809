"""The MCP client: configured servers, approved pins, connections, and the tools of servers as tools of agents."""
