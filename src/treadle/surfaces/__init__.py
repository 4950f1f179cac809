"""The ways in: each surface speaks to the engine on behalf of somebody."""
