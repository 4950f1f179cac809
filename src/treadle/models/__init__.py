"""Model clients, one wire format per file, and the registry that resolves a model name to a client."""
