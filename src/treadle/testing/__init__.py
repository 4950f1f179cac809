"""Public test doubles, conformance checks for the ports, and a deterministic simulation."""
