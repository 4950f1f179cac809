"""Migration of a database with its whole history from SQLite to PostgreSQL."""
