"""AG-UI 1.0 over the runs of an agent: the events of the protocol, made from the one transcript."""
