"""The MCP server of Treadle: agents as tools, runs and sessions as resources, skills as prompts."""
