"""The terminal UI: a chat with an agent that streams, steers, approves and searches.

It uses the shared operations only, in the process that owns the home or attached to it. Textual is imported only
by the modules that draw (`app`, `*_view`, `*_panel`, `*_screen`), and only when the UI is opened."""
