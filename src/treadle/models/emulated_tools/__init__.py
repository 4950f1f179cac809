"""Tool calls written in the text of a reply, for models that cannot make native tool calls."""
