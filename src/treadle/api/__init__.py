"""What programs import through `treadle`: the engine, agents and results."""
