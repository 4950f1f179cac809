"""Pure decisions over the folded journal: no I/O, no clock, no environment."""
