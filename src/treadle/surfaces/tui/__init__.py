"""The terminal UI: a chat with an agent that streams, steers, approves and searches.

It uses the shared operations only, in the process that owns the home or attached to it. Textual is imported only
by the modules that draw (`app`, `*_view`, `*_panel`, `*_screen`), and only when the UI is opened."""

import os

FRAMES_PER_SECOND = 120
"""How often the screen may change. With 60, the default of Textual, the echo of a key often waits for a frame while
an answer streams. Frames without changes cost nothing."""

os.environ.setdefault("TEXTUAL_FPS", str(FRAMES_PER_SECOND))  # Textual reads it when it is imported
