"""The seams: Protocols of five methods or fewer. The contract of each stands on it."""
