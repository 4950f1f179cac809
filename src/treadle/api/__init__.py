"""The public API, importable from `treadle`: the engine, agents and results."""
