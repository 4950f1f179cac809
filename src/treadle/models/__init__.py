"""Models behind their wire formats, one format per file, and the registry that finds them."""
