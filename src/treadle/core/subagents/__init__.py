"""Child runs: their limits, their rights, and how a run waits for them."""
