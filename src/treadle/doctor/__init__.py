"""What `treadle doctor` and `treadle models list` look at, and whether each finding was probed."""
