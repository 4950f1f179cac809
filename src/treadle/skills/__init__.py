"""Instructions for agents: skills in the Agent Skills format, and AGENTS.md.

A skill counts only in the form that a user has approved, byte for byte. A workspace may be hostile: nothing here
follows a link out of it, blocks on a pipe, or reads more than a bounded amount."""
