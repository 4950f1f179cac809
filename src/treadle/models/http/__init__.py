"""Model calls over HTTP, independent of the wire format."""
