"""Commands of a shell on this machine: confined by bubblewrap where there is one, and never left behind."""
