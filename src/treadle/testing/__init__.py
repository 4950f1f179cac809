"""Public doubles for what Treadle talks to, conformance checks for its ports, and a simulation."""
