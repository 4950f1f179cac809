"""What a line of shell would do, read from its syntax: nothing here runs anything."""
