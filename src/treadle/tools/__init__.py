"""Tools: the decorator that makes one of a function, and the registry that finds them."""
