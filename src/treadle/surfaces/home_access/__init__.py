"""Access of a surface to a home: it owns the home, or is attached to the process that does. Agents, sessions and
folders are found here by what users call them."""
