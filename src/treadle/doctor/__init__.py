"""What `treadle doctor` and `treadle models list` look at: each finding says whether it was probed or is a setting."""
