"""The journal on PostgreSQL: many processes on many machines, one database."""
