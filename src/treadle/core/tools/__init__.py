"""Which tool calls run, in which order, and with whose permission."""
