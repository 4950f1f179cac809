"""Backups: one archive of a home, written and verified, unpacked and verified, and restored."""
