"""The store on PostgreSQL, on a real server."""
