"""Backups: one archive of a home, written and checked, unpacked and checked, and put in its place."""
