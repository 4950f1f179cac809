"""Stores of the journal and its projections: one package per database."""
