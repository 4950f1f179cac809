"""Markdown of models on a terminal: parsed into styled lines, whole or while it is being written.

It needs `rich` and `markdown-it-py`, which come with the extra `tui`; import it only where they are used. All text
is made inert: control characters, changes of direction and markup in it are shown, not obeyed."""
