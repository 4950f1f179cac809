"""Versions of files that runs changed, in the home: contents by their digest, and an index of changes by run."""
