"""The HTTP API: routes, streams and authentication. Started by `treadle serve`, and by any process that owns a
home when another process attaches to it."""
