"""Where the journal is kept: one package per database."""
