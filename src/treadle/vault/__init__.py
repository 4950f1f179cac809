"""The vault: secrets encrypted at rest, granted to agents, and taken out of every text that comes back."""
