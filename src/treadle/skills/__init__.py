"""What a home and a workspace tell an agent in writing: skills in the Agent Skills format, and
AGENTS.md.

A skill counts only as a person has approved it, byte for byte. A workspace may be hostile: nothing
here follows a link out of it, waits for a pipe, or reads more than a bounded amount."""
