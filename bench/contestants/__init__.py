"""One file per contestant; each runs in a process, and each peer in an environment, of its own."""
