"""The interfaces between the engine and the outside: small Protocols, each with its contract in its docstring."""
