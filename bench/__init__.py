"""Runs the same work on Treadle, on a bare loop ("the floor") and on its peers."""
