"""Checks of `treadle doctor` and `treadle models list`, each marked as probed or not."""
