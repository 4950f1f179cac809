"""Asking another process: the mirror of `surfaces/http`, and an adapter of `service.Service`."""
