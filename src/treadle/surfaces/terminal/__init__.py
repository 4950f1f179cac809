"""What the surfaces of a terminal share: text made harmless and fitted to its width, output, questions, and the
process of a command."""
