"""Pure decisions over the folded journal. No I/O, no clock, no environment."""
