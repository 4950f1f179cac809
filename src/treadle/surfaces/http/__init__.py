"""The service over HTTP: routes, streams, and the gate before them. Started by `treadle serve`, and by whatever
process owns a home when another attaches to it."""
