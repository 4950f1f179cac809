"""Tools that share a connection."""

import sqlite3

import treadle


class Notes:
    def __init__(self) -> None:
        self.database = sqlite3.connect(":memory:", check_same_thread=False)
        self.database.execute("create table notes (text)")

    def add_note(self, text: str) -> str:
        """Keep a note."""
        self.database.execute("insert into notes values (?)", (text,))
        return "kept"

    def list_notes(self) -> list[str]:
        """Return all notes."""
        return [row[0] for row in self.database.execute("select text from notes")]


notes = Notes()
agent = treadle.Agent(name="secretary", model="openai/gpt-5", tools=[notes.add_note, notes.list_notes])
print(agent.run_sync("Note that the loom is blue, then list the notes.").text)
print(notes.list_notes())
