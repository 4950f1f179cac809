"""The configuration of a home: its files, the agents they describe, and where its database is."""
