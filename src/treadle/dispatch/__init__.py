"""Dispatchers: one process, or many workers."""
