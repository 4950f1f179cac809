"""Shell commands on this machine, confined by bubblewrap if it is available. No command outlives the engine."""
