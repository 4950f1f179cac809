"""One file per contestant. Each runs in its own process, and each peer in its own environment."""
