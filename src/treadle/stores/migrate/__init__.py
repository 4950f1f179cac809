"""Moving a database from SQLite to PostgreSQL, with its whole history."""
