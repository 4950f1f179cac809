"""The configuration of a home: its files, its agents, and the location of its database."""
