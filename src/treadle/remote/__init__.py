"""Performing operations in another process: the client side of `surfaces/http`."""
