"""A call to a model over HTTP, whatever the wire format."""
