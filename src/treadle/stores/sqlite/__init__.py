"""The journal on SQLite: one process, nothing to set up."""
