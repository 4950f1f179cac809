"""One test for each entry of the table of limits."""
