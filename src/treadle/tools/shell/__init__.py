"""Static analysis of shell command lines from their syntax. Nothing here runs anything."""
